/* kernels/cpu/row_ops.c - the rows of kernels/row_ops.c on the CPU: the thread pool shares the
   rows. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"
#include "kernels/row_ops_internal.h"
#include <math.h>

#define T        float
#define ROW_LOOP static inline
#include "kernels/row_loops_internal.h"
#undef ROW_LOOP
#undef T

typedef struct work {
    wf_row_job j;
    void (*loop)(const wf_row_job *, int64_t, const float *const *, float *const *);
} work;

static void task(void *arg, int64_t begin, int64_t end, int worker)
{
    const work *w = arg;

    (void)worker;
    for (int64_t r = begin; r < end; r++) {
        const float *in[3] = {NULL};
        float *out[2] = {NULL};

        for (int i = 0; i < w->j.n_in; i++)
            in[i] = (const float *)w->j.in[i] + r * w->j.width_in[i];
        for (int o = 0; o < w->j.n_out; o++)
            out[o] = (float *)w->j.out[o] + r * w->j.width_out[o];
        w->loop(&w->j, r, in, out);
    }
}

static double as_float(const void *data, int64_t e)
{
    return (double)((const float *)data)[e];
}

static wf_status run(const wf_call *call, bool indices,
                     void (*loop)(const wf_row_job *, int64_t, const float *const *,
                                  float *const *))
{
    work w = {wf_row_job_of(call), loop};
    int64_t width = w.j.width_in[0] > w.j.width_out[0] ? w.j.width_in[0] : w.j.width_out[0];

    if (indices && wf_check_indices(call, as_float) != WF_OK)
        return WF_EINVAL;
    wf_thread_pool_run(wf_cpu_of(call)->pool, w.j.rows, wf_task_rows(width), task, &w);
    return WF_OK;
}

#define ROW_OP(name)                                                                           \
    static wf_status name(const wf_call *call, void *workspace)                                \
    {                                                                                          \
        (void)workspace;                                                                       \
        return run(call,                                                                       \
                   call->op->id == WF_ID_gather || call->op->id == WF_ID_scatter ||            \
                       call->op->id == WF_ID_one_hot,                                          \
                   name##_row);                                                                \
    }                                                                                          \
    const wf_kernel wf_cpu_##name = {.run = name};
ROW_OPS
#undef ROW_OP
