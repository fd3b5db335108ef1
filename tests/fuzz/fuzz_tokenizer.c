/*
 * tests/fuzz/fuzz_tokenizer.c - tokenizers from strangers: a file of any kind, and after its
 * last NUL a text, which every accepted tokenizer encodes; the ids are ids, and decode.
 */
#include "nn/text/tokenizer/load_internal.h"
#include "tests/fuzz/fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The input as a file that has no name of its own. */
static wf_status open_input(const uint8_t *data, size_t size, wf_tok **tokenizer,
                            wf_error *error)
{
    static int fd = -1;
    static char path[64];

    if (fd < 0) {
        char name[] = "/tmp/weft-fuzz-XXXXXX";

        fd = mkstemp(name);
        PROMISE(fd >= 0 && unlink(name) == 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    PROMISE(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size);
    return wf_tok_open(path, tokenizer, error);
}

static void encode(const wf_tok *t, const char *text, size_t bytes)
{
    wf_tok_encoder *encoder;
    wf_tok_ids ids = {0};
    wf_tok_bytes out = {0};
    wf_error error = {WF_OK, ""};

    if (wf_tok_encoder_new(t, &encoder, &error) != WF_OK)
        return;
    for (int flags = 0; flags < 4; flags++) {
        wf_status status = wf_tok_encode(encoder, text, bytes, flags, &ids, &error);

        ANSWERED(status, error);
        if (status == WF_OK)
            PROMISE(wf_tok_decode(t, ids.data, ids.count, 0, &out, &error) == WF_OK);
        ids.count = out.bytes = 0;
        error = (wf_error){WF_OK, ""};
    }
    wf_tok_encoder_free(encoder);
    wf_tok_ids_free(&ids);
    wf_tok_bytes_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memrchr(data, '\0', size) : NULL;
    size_t file = end ? (size_t)(end - data) : size;
    wf_error error = {WF_OK, ""};
    wf_tok *t;
    wf_status status = open_input(data, file, &t, &error);

    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (t != NULL));
    if (t)
        encode(t, (const char *)data + file, size - file);
    wf_tok_close(t);
    return 0;
}
