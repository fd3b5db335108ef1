/* tests/fuzz/fuzz_nf4.c - the quant_state of a matrix in 4 bits: what is accepted is of this
   matrix, with a finite offset. */
#include "parallel/models/gpt/hf_nf4_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const int64_t shape[] = {48, 131};
    wf_error error = {WF_OK, ""};
    wf_hf_nf4_state state = {.offset = 7};
    wf_status status =
        wf_hf_nf4_state_parse(&state, "q", (const char *)data, size, 2, shape, &error);

    ANSWERED(status, error);
    PROMISE(state.offset >= -1e38 && state.offset <= 1e38);
    PROMISE(status != WF_OK || state.nested || state.offset == 0);
    return 0;
}
