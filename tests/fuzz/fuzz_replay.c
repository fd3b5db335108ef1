/* tests/fuzz/fuzz_replay.c - files of --log-digests: each row once, and parts that lie within
   their tensors. */
#include "parallel/recovery/replay_rows_internal.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    wf_replay_rows rows = {.count = 0};
    FILE *file = fmemopen((void *)(uintptr_t)data, size ? size : 1, "r");
    wf_status status;

    PROMISE(file);
    status = wf_replay_rows_read(&rows, file, "r", "n", &error);
    fclose(file);
    ANSWERED(status, error);
    wf_replay_rows_sort(&rows);
    for (int64_t i = 0; i < rows.count; i++) {
        const wf_replay_row *r = &rows.row[i];

        PROMISE(r->rank >= 0 && r->rank < rows.ranks && r->step >= 0);
        PROMISE(i == 0 || r->rank != r[-1].rank || r->step != r[-1].step);
        for (size_t k = 0; k < wf_replay_parts(r); k++) {
            wf_par_held_part part;

            wf_replay_part(r, k, &part);
            PROMISE(part.path && part.kind >= 0 && part.kind < WF_PAR_KINDS);
            for (int d = 0; d < part.ndim; d++) {
                PROMISE(part.start[d] >= 0 && part.local[d] >= 0);
                PROMISE(part.start[d] <= part.size[d] - part.local[d]);
            }
        }
    }
    wf_replay_rows_free(&rows);
    return 0;
}
