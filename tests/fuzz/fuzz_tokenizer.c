/*
 * tests/fuzz/fuzz_tokenizer.c - tokenizers from strangers: a file of any kind, and behind its last NUL a text,
 * which whatever was accepted encodes; the ids are ids, and decode.
 */
#include "apps/tokenizer/load_internal.h"
#include "tests/fuzz/fuzz.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* The input as a file that has no name of its own. */
static wf_status open_input(const uint8_t *data, size_t size, app_tokenizer **tokenizer,
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
    return app_tokenizer_open(path, tokenizer, error);
}

static void encode(const app_tokenizer *t, const char *text, size_t bytes)
{
    app_tokenizer_encoder *encoder;
    app_tokenizer_ids ids = {0};
    app_tokenizer_bytes out = {0};
    wf_error error = {WF_OK, ""};

    if (app_tokenizer_encoder_new(t, &encoder, &error) != WF_OK)
        return;
    for (int flags = 0; flags < 4; flags++) {
        wf_status status = app_tokenizer_encode(encoder, text, bytes, flags, &ids, &error);

        ANSWERED(status, error);
        if (status == WF_OK)
            PROMISE(app_tokenizer_decode(t, ids.data, ids.count, 0, &out, &error) == WF_OK);
        ids.count = out.bytes = 0;
        error = (wf_error){WF_OK, ""};
    }
    app_tokenizer_encoder_free(encoder);
    app_tokenizer_ids_free(&ids);
    app_tokenizer_bytes_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memrchr(data, '\0', size) : NULL;
    size_t file = end ? (size_t)(end - data) : size;
    wf_error error = {WF_OK, ""};
    app_tokenizer *t;
    wf_status status = open_input(data, file, &t, &error);

    ANSWERED(status, error);
    PROMISE((status == WF_OK) == (t != NULL));
    if (t)
        encode(t, (const char *)data + file, size - file);
    app_tokenizer_close(t);
    return 0;
}
