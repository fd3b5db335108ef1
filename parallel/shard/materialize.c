/* parallel/shard/materialize.c - from recipes to shards, a parameter at a time. */
#include "core/offload.h"
#include "parallel/shard/materialize.h"
#include "core/host_data.h"
#include "core/nf4_tensor.h"
#include "parallel/shard/quantise_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/shard/sharding_plan.h"
#include "parallel/parallel_internal.h"
#include <inttypes.h>
#include <stdlib.h>

typedef wf_status action(wf_par *par, wf_nn_parameter *p);

/* Every parameter below a module, ties once. */
static wf_status each(wf_par *par, wf_nn_module *module, action *act)
{
    wf_context *ctx = par->ctx;
    wf_status status = WF_OK;
    int64_t count = 0;
    wf_nn_parameter **p;

    if (!module || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    p = wf_nn_parameters(module, &count);
    if (!p)
        return wf_fail(ctx, WF_ENOMEM, "no memory for a list of parameters");
    for (int64_t i = 0; i < count && status == WF_OK; i++)
        status = act(par, p[i]);
    free(p);
    return status;
}

static void put(wf_nn_parameter *p, wf_tensor *t)
{
    wf_tensor *last = p->tensor;

    p->tensor = wf_tensor_retain(t);
    wf_tensor_release(last);
}

/* Makes the tensor that a sharded parameter, or a master, is gathered to; no memory yet. */
static void prepare_gathered(wf_par *par, wf_nn_parameter *p, wf_tensor *stored)
{
    wf_par_parameter_state *h = wf_par_state_of(p);

    if (!stored || !wf_par_is_gathered(par, p))
        return;
    wf_tensor_release(h->gathered);
    h->gathered = wf_tensor_retain(
        h->stored == WF_NF4 ? wf_nf4_absent(stored, h->compute_layout)
                            : wf_tensor_absent(par->ctx, wf_par_gathered_dtype(par, h),
                                               stored->ndim, stored->dim, h->compute_layout));
    p->at_use = h->gathered;
}

/* Beside bf16, the f32 master is the optimizer's. */
static wf_memory_kind kind_stored(const wf_par *par, const wf_nn_parameter *p)
{
    return p->frozen                                          ? WF_MEMORY_FROZEN
           : par->options.param_dtype == WF_F32 || p->counted ? WF_MEMORY_PARAMETER
                                                              : WF_MEMORY_OPTIMIZER;
}

/* The same in 4 bits. */
static wf_tensor *quantised(wf_par *par, const wf_nn_parameter *p, const wf_tensor *t)
{
    wf_tensor *y = wf_nf4_new(par->ctx, t->ndim, t->dim, t->layout, kind_stored(par, p),
                              par->options.param_dtype);
    wf_host_data view = {.t = NULL};
    const float *values = y && !wf_context_dry_run(par->ctx) ? wf_data_read(t, &view) : NULL;
    wf_status status = y ? wf_par_quantise(par, y, values) : wf_context_status(par->ctx);

    if (view.t)
        wf_data_close(&view);
    return status == WF_OK ? y : NULL;
}

/* Makes the initial value, in its shard layout; recipes are replayed in f32. */
static wf_tensor *replayed(wf_par *par, const wf_nn_parameter *p)
{
    wf_context *ctx = par->ctx;
    const wf_tensor *fake = p->tensor;
    bool narrow = wf_par_state_of(p)->stored != WF_F32;
    wf_memory_kind kind = kind_stored(par, p), outside;
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, fake->ndim, fake->dim, wf_par_layout(p),
                                 narrow ? WF_MEMORY_WORKSPACE : kind);

    if (!t || wf_nn_replay(p, t) != WF_OK || !narrow)
        return t;
    if (wf_par_state_of(p)->stored == WF_NF4)
        return quantised(par, p, t);
    outside = wf_context_memory_kind(ctx, kind);
    t = wf_cast(t, wf_par_state_of(p)->stored);
    wf_context_memory_kind(ctx, outside);
    return t;
}

static wf_status make_real(wf_par *par, wf_nn_parameter *p)
{
    wf_context *ctx = par->ctx;
    wf_tensor *real;

    if (!wf_tensor_is_fake(p->tensor))
        return WF_OK;
    wf_scope_open(ctx);
    real = replayed(par, p);
    prepare_gathered(par, p, real);
    if (real && wf_context_status(ctx) == WF_OK)
        put(p, real);
    wf_scope_close(ctx);
    if (par->options.offload_optimizer && kind_stored(par, p) == WF_MEMORY_OPTIMIZER)
        wf_tensor_offload(p->tensor);
    return wf_context_status(ctx);
}

wf_status wf_par_unquantise(wf_par *par, wf_nn_parameter *p)
{
    wf_par_parameter_state *h = wf_par_state_of(p);
    wf_context *ctx = par->ctx;
    wf_memory_kind outside;
    wf_tensor *t;

    if (p->tensor->dtype != WF_NF4)
        return wf_context_status(ctx);
    wf_scope_open(ctx);
    outside = wf_context_memory_kind(ctx, kind_stored(par, p));
    t = wf_cast(p->tensor, par->options.param_dtype);
    wf_context_memory_kind(ctx, outside);
    if (t) {
        h->stored = par->options.param_dtype;
        put(p, t);
        prepare_gathered(par, p, t);
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

typedef struct planned {
    int64_t with, without;
    const wf_nn_parameter *first; /* .. of those without */
} planned;

static void count_planned(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    planned *n = arg;

    (void)m;
    (void)name;
    n->with += p->plan != NULL;
    n->without += p->plan == NULL;
    if (!p->plan && !n->first)
        n->first = p;
}

/* Plans a model that has no plan yet; a plan that lacks parameters is an error: the model was
   changed after it was planned. */
static wf_status plan_where_none_is(wf_par *par, wf_nn_module *module)
{
    planned n = {.with = 0};

    if (wf_context_status(par->ctx) != WF_OK)
        return wf_context_status(par->ctx);
    if (!module)
        return wf_fail(par->ctx, WF_EINVAL,
                       "a model to be made real is NULL, though nothing failed before");
    wf_nn_visit(module, NULL, count_planned, &n);
    if (n.with && n.without)
        return wf_fail(par->ctx, WF_EINVAL,
                       "parameter %s has no plan, and %" PRId64
                       " others of the model have one: it was added after wf_par_plan; say all "
                       "that changes a model (wf_nn_lora, modules of one's own) before",
                       n.first->path[0] ? n.first->path : "without a name", n.with);
    return n.without ? wf_par_plan(par, module, NULL) : WF_OK;
}

wf_status wf_par_materialize(wf_par *par, wf_nn_module *module)
{
    const char *phase = wf_context_phase(par->ctx, "initialisation");

    if (plan_where_none_is(par, module) == WF_OK)
        each(par, module, make_real);
    wf_par_report_inexact(par);
    wf_context_phase(par->ctx, phase);
    return wf_context_status(par->ctx);
}

wf_status wf_par_materialize_steps(wf_par *par, wf_nn_module *model, int64_t first,
                                   int64_t last)
{
    wf_nn_module *m;

    if (plan_where_none_is(par, model) != WF_OK)
        return wf_context_status(par->ctx);
    for (int64_t i = first; i < last; i++)
        for (int k = 0; (m = wf_nn_chain_module(model, i, k)); k++)
            wf_par_materialize(par, m);
    return wf_context_status(par->ctx);
}

static wf_status nobody_holds(wf_par *par, wf_nn_parameter *p)
{
    if (p->tensor->refs > 1 && !wf_tensor_is_fake(p->tensor))
        return wf_fail(par->ctx, WF_EINVAL,
                       "parameter %s is in use and cannot be made fake: close the trainer, or "
                       "release what else holds it, before",
                       p->path);
    return WF_OK;
}

static wf_status make_fake(wf_par *par, wf_nn_parameter *p)
{
    const wf_tensor *real = p->tensor;
    wf_par_parameter_state *h = wf_par_state_of(p);
    wf_context *ctx = par->ctx;
    wf_tensor *fake;

    if (wf_tensor_is_fake(real))
        return WF_OK;
    wf_nn_forget_uses(p); /* leaves of a pass that is over share the storage */
    wf_scope_open(ctx);
    fake = wf_tensor_fake(ctx, WF_F32, real->ndim, real->dim, NULL);
    if (fake) {
        put(p, fake);
        wf_tensor_release(h->gathered);
        wf_tensor_release(h->low_precision);
        h->gathered = h->low_precision = p->at_use = NULL;
    }
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

wf_status wf_par_dematerialize(wf_par *par, wf_nn_module *module)
{
    if (each(par, module, nobody_holds) != WF_OK)
        return wf_context_status(par->ctx);
    wf_par_models_change(par);
    return each(par, module, make_fake);
}
