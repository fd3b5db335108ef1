/* core/files/fingerprint.c - what a file is, by its size and samples of its content; see
   output.h. */
#include "core/files/checksum_internal.h"
#include "core/files/output.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 1 << 14, BLOCKS = 256 };

static wf_status read_block(int fd, const char *path, char *to, int64_t n, int64_t at,
                            wf_error *error)
{
    while (n > 0) {
        ssize_t got = pread(fd, to, (size_t)n, at);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return wf_error_set(error, WF_EIO, "cannot read %s: %s", path,
                                got ? strerror(errno) : "it became shorter while it was read");
        to += got;
        at += got;
        n -= got;
    }
    return WF_OK;
}

wf_status wf_output_fingerprint(int fd, const char *path, uint64_t *fingerprint,
                                wf_error *error)
{
    wf_checksum_stream *stream = wf_checksum_begin();
    char *block = malloc(BLOCK);
    wf_status status = WF_OK;
    struct stat s;
    int64_t blocks, size;

    if (!stream || !block)
        status = wf_error_set(error, WF_ENOMEM, "no memory to read %s", path);
    else if (fstat(fd, &s) != 0)
        status = wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    if (status == WF_OK) {
        size = s.st_size;
        blocks = size > (int64_t)BLOCK * BLOCKS ? BLOCKS : (size + BLOCK - 1) / BLOCK;
        wf_checksum_add(stream, &size, sizeof size);
        for (int64_t i = 0; i < blocks && status == WF_OK; i++) {
            int64_t at = blocks < BLOCKS ? i * BLOCK : (size - BLOCK) * i / (BLOCKS - 1);
            int64_t n = size - at < BLOCK ? size - at : BLOCK;

            status = read_block(fd, path, block, n, at, error);
            if (status == WF_OK)
                wf_checksum_add(stream, block, (size_t)n);
        }
    }
    *fingerprint = stream ? wf_checksum_end(stream) : 0;
    free(block);
    return status;
}
