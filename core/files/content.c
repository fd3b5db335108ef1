/* core/files/content.c - see the header. */
#include "core/files/content.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum {
    PIECE = 1 << 12,
    WHOLE = 1 << 16,
    STRETCH = 1 << 10,
    STRETCHES = 64,
    MOST_STRETCHES = 256
};

/* Adds the bytes from `at` on, as far as the file has them. Reads piece by piece: ranks are
 * threads, so a buffer of 64 KiB here, on a stack or per thread, is paid by each of them. */
static wf_status add_bytes(int descriptor, int64_t at, size_t bytes, wf_content *sum,
                           wf_error *error)
{
    char piece[PIECE];

    for (size_t done = 0; done < bytes; done += PIECE) {
        size_t want = bytes - done < PIECE ? bytes - done : PIECE;
        ssize_t n = pread(descriptor, piece, want, at + (int64_t)done);

        if (n < 0)
            return wf_error_set(error, WF_EIO, "cannot read: %s", strerror(errno));
        sum->hash = XXH3_64bits_withSeed(piece, (size_t)n, sum->hash);
        if ((size_t)n < want)
            break;
    }
    return WF_OK;
}

int wf_content_stretches(int64_t files)
{
    int64_t each = files > 0 ? MOST_STRETCHES / files : STRETCHES;

    return each < 2 ? 2 : each > STRETCHES ? STRETCHES : (int)each;
}

wf_status wf_content_add(int descriptor, int stretches, wf_content *sum, wf_error *error)
{
    size_t first = stretches < STRETCHES ? STRETCH : WHOLE;
    struct stat s;
    int64_t left;

    if (fstat(descriptor, &s) != 0)
        return wf_error_set(error, WF_EIO, "cannot read: %s", strerror(errno));
    sum->files++;
    sum->bytes += s.st_size;
    sum->hash = XXH3_64bits_withSeed(&(int64_t){s.st_size}, sizeof(int64_t), sum->hash);
    if (add_bytes(descriptor, 0, first, sum, error) != WF_OK)
        return error->code;
    left = s.st_size - (int64_t)first - STRETCH;
    for (int i = 1; left > 0 && i <= stretches; i++)
        if (add_bytes(descriptor, (int64_t)first + left * i / stretches, STRETCH, sum, error) !=
            WF_OK)
            return error->code;
    return left <= 0 && s.st_size > (int64_t)first
               ? add_bytes(descriptor, (int64_t)first, STRETCH, sum, error)
               : WF_OK;
}

static bool ends(const char *name, const char *with)
{
    size_t n = strlen(name), m = strlen(with);

    return n >= m && strcmp(name + n - m, with) == 0;
}

/* Files of a folder that say what a model is and computes. */
static int is_of_model(const struct dirent *entry)
{
    const char *name = entry->d_name;

    return ends(name, ".safetensors") || ends(name, ".safetensors.index.json") ||
           ends(name, "config.json") || ends(name, ".gguf") || ends(name, ".model") ||
           ends(name, ".tiktoken") || strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "vocab.json") == 0 || strcmp(name, "merges.txt") == 0 ||
           strcmp(name, "index.json") == 0 || strcmp(name, "run.json") == 0;
}

static void add_name(wf_content *sum, const char *path, int stretches)
{
    wf_error ignored = {WF_OK, ""};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return;
    wf_content_add(fd, stretches, sum, &ignored);
    close(fd);
}

static void add_folder(wf_content *sum, const char *path)
{
    struct dirent **entry = NULL;
    int n = scandir(path, &entry, is_of_model, alphasort);
    char name[4096];

    for (int i = 0; i < n; i++) {
        sum->hash = XXH3_64bits_withSeed(entry[i]->d_name, strlen(entry[i]->d_name), sum->hash);
        snprintf(name, sizeof name, "%.3800s/%.250s", path, entry[i]->d_name);
        add_name(sum, name, wf_content_stretches(n));
        free(entry[i]);
    }
    free(entry);
}

void wf_job_add_path(wf_job *job, const char *name, const char *path)
{
    wf_content sum = {.files = 0};
    struct stat s;

    if (!job || !path || stat(path, &s) != 0)
        return;
    if (S_ISDIR(s.st_mode))
        add_folder(&sum, path);
    else if (S_ISREG(s.st_mode))
        add_name(&sum, path, STRETCHES);
    wf_job_add(job, name,
               "%" PRId64 " file%s of %" PRId64 " bytes, hash of samples %016" PRIx64,
               sum.files, sum.files == 1 ? "" : "s", sum.bytes, sum.hash);
}
