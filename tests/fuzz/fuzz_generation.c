/*
 * tests/fuzz/fuzz_generation.c - generation_config.json: what is accepted says token ids, each
 * once, after those that were there.
 */
#include "parallel/models/gpt/hf_generation_internal.h"
#include "tests/fuzz/fuzz.h"

enum { THERE = 126 }; /* leaves room for two */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_par_pretrained_ends ends = {.count = 0};
    int64_t there = size % 2 ? THERE : 0;
    wf_status status;

    for (int64_t i = 0; i < there; i++)
        ends.id[ends.count++] = (int32_t)(1000 + i);
    status = wf_hf_generation_parse(&ends, "g", (const char *)data, size, &error);
    ANSWERED(status, error);
    PROMISE(ends.count >= there && ends.count <= WF_PAR_PRETRAINED_ENDS);
    PROMISE(status == WF_OK || ends.count == there);
    for (int64_t i = 0; i < ends.count; i++) {
        PROMISE(ends.id[i] >= 0 && (i >= there || ends.id[i] == 1000 + i));
        for (int64_t k = 0; k < i; k++)
            PROMISE(ends.id[k] != ends.id[i]);
    }
    return 0;
}
