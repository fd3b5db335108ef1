/* kernels/cpu/dropout.c - dropout, a run of neighbours in the whole sequence at a time. */
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/pieces.h"
#include "kernels/shared.h"

static void piece(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_dropout_attr *attr = call->attr;
    const wf_tensor *t = call->in[0];
    const float *x = t->data;
    float *y = call->out[0]->data;
    int64_t per_sequence = wf_extent(t, 1, t->ndim), n;

    (void)worker;
    for (int64_t i = begin; i < end; i += n) {
        int64_t run, first = wf_global_index(t, 1, i % per_sequence, &run);
        uint32_t counter[3] = {(uint32_t)attr->site, (uint32_t)attr->step,
                               (uint32_t)(attr->first_sequence + i / per_sequence)};

        n = wf_least(run, end - i);
        wf_cpu_of(call)->simd->dropout(x + i, y + i, n, attr->key, counter, first, attr->p);
    }
}

static wf_status run_dropout(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->in[0]), WF_PIECE_ELEMENTS,
                piece, (void *)call);
    return WF_OK;
}

const wf_kernel wf_cpu_dropout = {.run = run_dropout};
