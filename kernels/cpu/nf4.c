/* kernels/cpu/nf4.c - what is stored as nf4, widened for an op that reads it. */
#include "core/nf4_tensor.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"

typedef struct job {
    const wf_tensor *t;
    wf_dtype as;
    void *to;
} job;

static void widen_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const job *j = arg;
    const wf_nf4_part part = wf_nf4_part_of(j->t);
    int64_t at = begin * part.columns;

    (void)worker;
    if (j->as == WF_BF16)
        wf_nf4_widen_bf16(&part, j->t->data, j->t->scales->data, begin, end - begin,
                          (uint16_t *)j->to + at);
    else
        wf_nf4_values(j->t, j->t->data, j->t->scales->data, begin, end - begin,
                      (float *)j->to + at);
}

void wf_cpu_widen_nf4(const wf_device *device, const wf_tensor *t, wf_dtype as, void *to)
{
    const wf_cpu *cpu = device->self;
    const wf_nf4_part part = wf_nf4_part_of(t);
    job j = {t, as, to};

    wf_thread_pool_run(cpu->pool, part.rows, wf_task_rows(part.columns), widen_rows, &j);
}
