/* kernels/cpu/optimizer.c - optimizer steps, in tasks over the elements. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/task_size_internal.h"

static wf_adamw_constants constants(const wf_update *u)
{
    return (wf_adamw_constants){.lr = u->lr,
                                .beta1 = u->beta1,
                                .beta2 = u->beta2,
                                .eps = u->eps,
                                .weight_decay = u->weight_decay,
                                .bias1 = u->bias1,
                                .bias2 = u->bias2,
                                .grad_scale = u->grad_scale};
}

static float *at(const wf_tensor *t, int64_t i)
{
    return (float *)t->data + i;
}

static void adamw_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    wf_adamw_constants c = constants(call->attr);

    (void)worker;
    wf_cpu_of(call)->simd->adamw(at(in[0], begin), at(in[1], begin), at(in[2], begin),
                                 at(in[3], begin), end - begin, &c);
}

static void sgd_task(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    wf_tensor *const *in = call->in;
    wf_adamw_constants c = constants(call->attr);

    (void)worker;
    wf_cpu_of(call)->simd->sgd(at(in[0], begin), at(in[1], begin), at(in[2], begin),
                               end - begin, &c);
}

static wf_status adamw(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->in[0]), WF_TASK_ELEMENTS,
                adamw_task, (void *)call);
    return WF_OK;
}

static wf_status sgd(const wf_call *call, void *workspace)
{
    (void)workspace;
    wf_team_run(wf_cpu_of(call)->team, wf_tensor_local_count(call->in[0]), WF_TASK_ELEMENTS,
                sgd_task, (void *)call);
    return WF_OK;
}

const wf_kernel wf_cpu_adamw = {.run = adamw};
const wf_kernel wf_cpu_sgd = {.run = sgd};
