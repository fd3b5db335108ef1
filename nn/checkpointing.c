/*
 * nn/checkpointing.c - activation checkpointing: a run of a module is one op on the tape. It
 * saves the input, and its gradient recomputes the run on a tape of its own, walked back at
 * once; what that defers, the outer tape does. The first run numbers the uses of parameters,
 * the second one gives them leaves under the same numbers.
 */
#include "nn/checkpointing.h"
#include "core/device.h"
#include "core/offload.h"
#include "nn/uses_internal.h"
#include <string.h>

/* The saved operands: the input, and documents where there are some. */
enum { INPUT, FIRST, POSITIONS, SAVED };

typedef struct run {
    wf_nn_module *module;
    int64_t first, end; /* numbers of its uses of parameters */
    struct wf_nn_pass *pass;
    bool source; /* the input wants no gradient, and one is recorded for the parameters alone */
} run;

/* Checks that both runs of a module do the same, or gradients would go to the wrong uses. */
static void check_uses(const run *r, int64_t end)
{
    if (end != r->end)
        wf_fail(r->module->ctx, WF_EINVAL,
                "module %s uses parameters %lld times in forward and %lld times when backward "
                "recomputes it: its forward and its hooks must do the same in both runs",
                r->module->path, (long long)(r->end - r->first), (long long)(end - r->first));
}

/* Recomputes a module and walks it back: its input's gradient is that of each use of it in the
   module. */
static void recompute_and_walk(wf_gradient *g, const run *r)
{
    wf_nn_module *m = r->module;
    wf_context *ctx = m->ctx;
    wf_nn_uses *uses = wf_nn_uses_of(ctx), outside = *uses;
    wf_tape *tape = wf_tape_open(ctx);
    const char *phase = wf_context_phase(ctx, "recomputed forward");
    wf_tensor *x = r->source ? wf_detach(g->in[INPUT]) : wf_source_of(g, INPUT), *y;
    bool later = wf_context_recorded_later(ctx, false);
    double share;

    *uses = (wf_nn_uses){.next = r->first,
                         .recompute = true,
                         .pass = r->pass,
                         .cache = outside.cache,
                         .first = g->n_in > 1 ? g->in[FIRST] : NULL,
                         .positions = g->n_in > 1 ? g->in[POSITIONS] : NULL};
    wf_scope_open(ctx);
    share = wf_context_model_share(ctx, 0);
    y = wf_scope_return(ctx, x ? m->type->forward(m, x) : NULL);
    wf_context_model_share(ctx, share);
    if (y)
        check_uses(r, uses->next);
    *uses = outside;
    wf_context_recorded_later(ctx, later);
    wf_context_phase(ctx, phase);
    if (y && y->requires_grad && g->dout[0])
        wf_backward(y, g->dout[0], g->defer);
    else
        wf_backward_roots(ctx, g->defer);
    wf_tape_adopt(g, tape);
}

static void backward(wf_gradient *g)
{
    const run *r = g->attr;
    wf_memory_kind kind = wf_context_memory_kind(g->ctx, WF_MEMORY_ACTIVATION);

    wf_tensor_fetch(g->in[INPUT]);
    if (((const run *)g->attr)->module->offload)
        wf_offload_fetch_next(g->ctx);
    recompute_and_walk(g, r);
    wf_context_memory_kind(g->ctx, kind);
}

#define RUN_OP(more)                                                                           \
    {                                                                                          \
        .name = "checkpoint", .signature = "", .flags = WF_OP_REPLAY | (more),                 \
        .integers = 1 << FIRST | 1 << POSITIONS,                                               \
        .save = WF_SAVE_IN(INPUT) | WF_SAVE_IN(FIRST) | WF_SAVE_IN(POSITIONS),                 \
        .backward = backward                                                                   \
    }

/* A module that adds losses is recomputed for their gradients, whether or not its output has
   one. */
static const wf_op run_op = RUN_OP(0), run_with_losses_op = RUN_OP(WF_OP_ROOT);

bool wf_nn_note_loss(wf_context *ctx, bool wants_gradient)
{
    wf_nn_uses *uses = wf_nn_uses_of(ctx);

    uses->losses += wants_gradient;
    return !uses->recompute && !uses->rerun;
}

/* Runs a module on the tape, after it has run without: nothing of it is recomputed. */
static wf_tensor *run_recorded(wf_nn_module *m, wf_tensor *x, int64_t first_use)
{
    wf_nn_uses *uses = wf_nn_uses_of(m->ctx);
    bool outside = uses->rerun;
    wf_tensor *y;

    uses->next = first_use;
    uses->rerun = true;
    y = m->type->forward(m, x);
    uses->rerun = outside;
    return y;
}

wf_tensor *wf_nn_checkpoint(wf_nn_module *m, wf_tensor *x)
{
    wf_nn_uses *uses = wf_nn_uses_of(m->ctx);
    run attr = {m, uses->next, 0, uses->pass, !x->requires_grad};
    int64_t losses = uses->losses;
    wf_call call = {.ctx = m->ctx,
                    .n_in = uses->first ? SAVED : 1,
                    .n_out = 1,
                    .attr = &attr,
                    .attr_size = sizeof attr};
    wf_tape *tape = wf_tape_switch(m->ctx, NULL);
    wf_tensor *y;

    wf_context_recorded_later(m->ctx, true); /* nothing is recomputed inside: no tape records */
    y = m->type->forward(m, x);
    wf_context_recorded_later(m->ctx, false);
    attr.end = uses->next;
    wf_tape_switch(m->ctx, tape);
    losses = uses->losses - losses;
    if (!y || (losses == 0 && (y == x || !y->requires_grad)))
        return y;
    /* uses of y are uses of what it was before: there is nothing to recompute */
    if (y == x || !y->requires_grad || !y->computed)
        return run_recorded(m, x, attr.first);
    call.op = losses ? &run_with_losses_op : &run_op;
    call.in[INPUT] = attr.source ? wf_source(x) : x; /* its parameters want theirs */
    call.in[FIRST] = uses->first;
    call.in[POSITIONS] = uses->positions;
    call.out[0] = y;
    if (!call.in[INPUT] || wf_tape_record(&call) != WF_OK)
        return NULL;
    return !m->offload || wf_tensor_offload_stacked(x) == WF_OK ? y : NULL;
}

typedef struct choice {
    const char *type;
    int64_t found;
} choice;

static void choose(void *arg, wf_nn_module *m)
{
    choice *c = arg;

    m->recompute =
        c->type && strcmp(m->type->name, c->type) == 0 && m->type->forward && !m->member;
    c->found += m->recompute;
}

wf_status wf_nn_recompute(wf_nn_module *root, const char *type)
{
    choice c = {type, 0};

    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    wf_nn_visit(root, choose, NULL, &c);
    if (!type || c.found)
        return WF_OK;
    return wf_fail(root->ctx, WF_EINVAL,
                   "no module of the model is of type %s and called by wf_nn_call, so that it "
                   "could be recomputed: name another type, \"block\" for instance",
                   type);
}

/* Marks what is recomputed, and counts it. */
static void mark_offloaded(void *arg, wf_nn_module *m)
{
    m->offload = m->recompute;
    *(int64_t *)arg += m->recompute;
}

wf_status wf_nn_offload_inputs(wf_nn_module *root)
{
    const wf_device *device = root ? wf_context_device(root->ctx) : NULL;
    int64_t found = 0;

    if (!root)
        return WF_EINVAL; /* the reason is in the context */
    if (!device->memory)
        return wf_fail(root->ctx, WF_EUNSUPPORTED,
                       "activations are offloaded to host memory, where device %s has them "
                       "already: leave that out",
                       device->name);
    wf_nn_visit(root, mark_offloaded, NULL, &found);
    return found ? WF_OK
                 : wf_fail(root->ctx, WF_EINVAL,
                           "activations are offloaded that recomputed modules keep, and none "
                           "is recomputed: have blocks recomputed, too");
}
