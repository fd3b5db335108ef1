/* nn/layers/moe_adapters.c - adapters of the experts of a mixture (LoRA). */
#include "nn/layers/moe.h"
#include <math.h>

/* Returns a factor [experts, a, b] of adapters, uniform within the bound. */
static wf_nn_parameter *factor(wf_nn_moe *m, wf_dim a, wf_dim b, double bound)
{
    const wf_dim dims[] = {m->gate->tensor->dim[0], a, b};
    wf_nn_parameter *p = wf_nn_parameter_new(m->base.ctx, 3, dims, true);

    if (!p)
        return NULL;
    p->adapter = p->matrix = true;
    if (bound > 0)
        wf_nn_init_uniform(p, (float)-bound, (float)bound);
    return p;
}

static wf_status check_adapter(const wf_nn_moe *m, int64_t rank, const wf_nn_adapter *like)
{
    wf_context *ctx = m->base.ctx;

    if (m->gate->plan || !wf_tensor_is_fake(m->gate->tensor))
        return wf_fail(
            ctx, WF_EINVAL,
            "%s is planned or real already, so adapters of its experts would have no "
            "plan: adapt a model before wf_par_plan",
            m->base.path);
    if (rank < 1)
        return wf_fail(ctx, WF_EINVAL, "adapters of rank %lld: it must be at least 1",
                       (long long)rank);
    if (m->lora_gate_up_a)
        return wf_fail(ctx, WF_EINVAL, "the experts of %s have adapters already", m->base.path);
    if (like->dropout > 0)
        return wf_fail(ctx, WF_EINVAL,
                       "a dropout of %g of adapters, and those of experts have none (nor do "
                       "PEFT's): give 0, or adapt linears alone",
                       (double)like->dropout);
    return WF_OK;
}

wf_status wf_nn_moe_adapt(wf_nn_moe *m, int64_t rank, const wf_nn_adapter *like)
{
    wf_dim hidden, width, r = wf_dim_width(rank);

    if (!m || !m->gate || !m->up || !m->down)
        return WF_EINVAL; /* the reason is in the context */
    if (check_adapter(m, rank, like) != WF_OK)
        return wf_context_status(m->base.ctx);
    hidden = m->gate->tensor->dim[1];
    width = m->gate->tensor->dim[2];
    m->lora_scale = like->scale;
    m->lora_gate_up_a = factor(m, r, width, 1 / sqrt((double)width.size));
    m->lora_gate_b = factor(m, hidden, r, 0);
    m->lora_up_b = factor(m, hidden, r, 0);
    m->lora_down_a = factor(m, r, hidden, 1 / sqrt((double)hidden.size));
    m->lora_down_b = factor(m, width, r, 0);
    return wf_context_status(m->base.ctx);
}
