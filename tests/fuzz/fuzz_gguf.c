/* tests/fuzz/fuzz_gguf.c - 2 bytes: how much data follows; then the header of a GGUF file, and its model. */
#include "parallel/models/gpt/gguf_weights_internal.h"
#include "tests/fuzz/fuzz.h"

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
        status = wf_gguf_config(&w, &error);
        ANSWERED(status, error);
        if (status == WF_OK)
            PROMISE(w.model.layers > 0 && w.model.heads % w.model.kv_heads == 0 &&
                    w.model.layers <= w.header.tensors);
    }
    wf_gguf_free(&w.header);
    return 0;
}
