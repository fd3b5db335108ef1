/* tests/fuzz/fuzz_gguf.c - 2 bytes: how much data follows; then the header of a GGUF file, and
   its model. */
#include "apps/tools/gguf_tokenizer.h"
#include "parallel/models/gpt/gguf_weights_internal.h"
#include "tests/fuzz/fuzz.h"

/* A tokenizer that comes of it can be opened, or is refused. */
static void check_tokenizer(const wf_gguf_weights *w)
{
    app_gguf_tokenizer t;
    wf_error error = {WF_OK, ""};
    wf_status status = app_gguf_tokenizer_open(&t, &w->header, "f", &w->model, &error);

    ANSWERED(status, error);
    PROMISE(status != WF_OK || t.tokenizer.bytes > 0);
    app_gguf_tokenizer_close(&t);
}

/* The first numbers of every tensor whose bytes are there. */
static void check_numbers(const wf_par_gguf *g, int64_t have)
{
    float block[256];

    for (int64_t i = 0; i < g->tensors; i++) {
        const wf_gguf_tensor *t = &g->tensor[i];
        int64_t n = wf_gguf_block(t->type), at = g->data + t->begin;

        if (at + wf_gguf_bytes(t->type, n) <= have)
            wf_gguf_numbers(t->type, g->bytes + at, block, n);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_gguf_weights w = {.file = {.calls = &wf_system_files, .fd = -1, .path = "f"}};
    wf_error error = {WF_OK, ""};
    wf_status status;
    int64_t bytes;
    bool more;

    if (size < 2)
        return 0;
    bytes = (int64_t)size - 2 + (data[0] | data[1] << 8);
    w.header.bytes = malloc(size);
    memcpy(w.header.bytes, data + 2, size - 2);
    status = wf_gguf_parse(&w.header, "f", size - 2, bytes, &more, &error);
    ANSWERED(status, error);
    if (status == WF_OK && !more) {
        for (int64_t i = 0; i < w.header.tensors; i++) {
            const wf_gguf_tensor *t = &w.header.tensor[i];

            PROMISE(t->begin >= 0 && t->bytes > 0 &&
                    w.header.data + t->begin + t->bytes <= bytes);
            PROMISE(wf_gguf_tensor_find(&w.header, t->name) == t);
        }
        check_numbers(&w.header, (int64_t)size - 2);
        w.used = calloc((size_t)w.header.tensors + 1, sizeof *w.used);
        status = wf_gguf_config(&w, &error);
        ANSWERED(status, error);
        if (status == WF_OK)
            check_tokenizer(&w);
        if (status == WF_OK)
            PROMISE(w.model.layers > 0 && w.model.heads % w.model.kv_heads == 0 &&
                    w.model.layers <= w.header.tensors);
    }
    free(w.used);
    wf_gguf_free(&w.header);
    return 0;
}
