/* tests/fuzz/fuzz_safetensors.c - 2 bytes: how much data follows; then the JSON of a header. */
#include "parallel/formats/safetensors_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_safetensors h;
    wf_status status;
    int64_t bytes, covered = 0;

    if (size < 2)
        return 0;
    bytes = data[0] | data[1] << 8;
    status = wf_safetensors_parse(&h, "f", (const char *)data + 2, size - 2, bytes, &error);
    ANSWERED(status, error);
    if (status != WF_OK)
        return 0;
    for (int64_t i = 0; i < h.count; i++) {
        const wf_safetensors_entry *e = &h.entry[i];
        int64_t want = wf_safetensors_dtype_size(e->dtype);

        for (int d = 0; d < e->ndim; d++)
            want *= e->shape[d];
        PROMISE(e->begin >= 0 && e->end <= bytes && want == e->end - e->begin);
        PROMISE(wf_safetensors_find(&h, e->name) == e);
        covered += want;
    }
    PROMISE(covered == bytes);
    wf_safetensors_close(&h);
    return 0;
}
