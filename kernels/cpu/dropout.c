/* kernels/cpu/dropout.c - dropout, a run of neighbours in the whole sequence at a time. */
#include "kernels/cpu/dropout_internal.h"
#include "kernels/cpu/rows_internal.h"

enum { ONE = WF_IN(0) | WF_OUT(0), TWO = ONE | WF_IN(1) };

void wf_cpu_dropout_range(const wf_simd *simd, const wf_dropout_attr *attr, const wf_tensor *t,
                          int64_t begin, int64_t n, const float *x, float *y)
{
    int64_t per_sequence = wf_extent(t, 1, t->ndim), some;

    for (int64_t i = 0; i < n; i += some) {
        int64_t at = begin + i, run, first = wf_global_index(t, 1, at % per_sequence, &run);
        uint32_t counter[3] = {
            (uint32_t)attr->site, (uint32_t)attr->step,
            (uint32_t)wf_sequence_of(&attr->sequences, t->start[0] + at / per_sequence)};

        some = wf_least(run, n - i);
        simd->dropout(x + i, y + i, some, attr->key, counter, first, attr->p);
    }
}

static void dropout_rows(const wf_row_run *r)
{
    wf_cpu_dropout_range(r->simd, r->call->attr, r->call->in[0], r->first, r->n, r->in[0],
                         r->out[0]);
}

/* y = x + dropout(z) */
static void dropout_add_rows(const wf_row_run *r)
{
    wf_cpu_dropout_range(r->simd, r->call->attr, r->call->in[1], r->first, r->n, r->in[1],
                         r->out[0]);
    r->simd->add(r->in[0], r->out[0], r->out[0], r->n);
}

static wf_status dropout(const wf_call *call, void *workspace)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->in[0]), ONE,
                           dropout_rows);
}

static wf_status dropout_add(const wf_call *call, void *workspace)
{
    return wf_cpu_run_rows(call, workspace, wf_tensor_local_count(call->in[0]), TWO,
                           dropout_add_rows);
}

const wf_kernel wf_cpu_dropout = WF_ROWS_KERNEL(dropout, ONE);
const wf_kernel wf_cpu_dropout_add = WF_ROWS_KERNEL(dropout_add, TWO);
