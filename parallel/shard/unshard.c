/*
 * parallel/shard/unshard.c - gathering and releasing units.
 *
 * Forward, unit u begins:   begin the gathers of u and of the next `prefetch` units; wait for u
 *          u ends:          release it, unless it is kept for backward
 * Backward reaches u's end: the same for u and the units before it
 *          and its begin:   its gradients are complete and taken; release it. Where those of
 *                           weights are deferred, they are taken when that walk comes here
 *
 * A stage of a pipeline that is resident pins its units: they are gathered once, and none of
 * this gives them back.
 *
 * The order of units is that of the pass before. One that was prefetched and is not used is
 * freed as soon as that shows: another unit runs instead, or the pass ends.
 *
 * So at most `prefetch` + 1 units are gathered or under way, beside those that contain the one
 * that runs. A unit's parameters travel in one collective. What modules compute with is one
 * tensor per parameter, which is kept with all that aliases it while its memory is allocated
 * and freed: what a tape has saved of it finds the regathered data in backward.
 */
#include "parallel/shard/unshard_internal.h"
#include "core/offload.h"
#include <stdlib.h>

bool wf_par_sequence_expects(const wf_par_sequence *s, const wf_par_unit *unit)
{
    return s->at < s->count && s->unit[s->at] == unit;
}

wf_status wf_par_sequence_see(wf_par_units *all, wf_par_sequence *s, wf_par_unit *unit)
{
    if (!wf_par_sequence_expects(s, unit)) {
        if (s->at == s->capacity) {
            int64_t wider = s->capacity ? 2 * s->capacity : all->count;
            wf_par_unit **larger = realloc(s->unit, (size_t)wider * sizeof *larger);

            if (!larger)
                return wf_fail(all->par->ctx, WF_ENOMEM, "no memory for the order of units");
            s->unit = larger;
            s->capacity = wider;
        }
        s->unit[s->at] = unit;
        s->count = s->at + 1;
    }
    s->at++;
    return WF_OK;
}

/* Returns the tensor that is gathered: the parameter's shard, or the low-precision copy of its
   master. */
static wf_tensor *source(wf_par *par, wf_nn_parameter *p)
{
    wf_par_parameter_state *h = wf_par_state_of(p);
    wf_memory_kind kind;

    if (p->tensor->dtype == wf_par_gathered_dtype(par, h))
        return p->tensor;
    if (h->low_precision)
        return h->low_precision;
    kind = wf_context_memory_kind(par->ctx, WF_MEMORY_PARAMETER);
    wf_scope_open(par->ctx);
    wf_tensor_fetch(p->tensor);
    h->low_precision = wf_tensor_retain(wf_cast(p->tensor, par->options.param_dtype));
    wf_tensor_put_back(p->tensor);
    wf_scope_close(par->ctx);
    wf_context_memory_kind(par->ctx, kind);
    return h->low_precision;
}

static void forget_low_precision(wf_nn_parameter *p)
{
    wf_par_parameter_state *h = wf_par_state_of(p);

    wf_tensor_release(h->low_precision);
    h->low_precision = NULL;
}

static wf_memory_kind kind_of(const wf_par_unit *u)
{
    return u->keep_unsharded ? WF_MEMORY_PARAMETER : WF_MEMORY_GATHERED;
}

static wf_status begin(wf_par_unit *u)
{
    wf_par_units *all = u->of;

    if (u->unsharded || u->handle || !u->split)
        return WF_OK;
    for (int64_t i = 0; i < u->split; i++) {
        all->list[i] = source(all->par, u->parameter[i]);
        if (!all->list[i])
            return wf_context_status(all->par->ctx);
        all->to[i] = wf_par_state_of(u->parameter[i])->compute_layout;
    }
    u->asked = all->pass.order;
    u->handle = wf_par_move_begin(all->par, kind_of(u), u->split, all->list, all->to);
    return wf_context_status(all->par->ctx);
}

/* Waits until it is gathered. */
static wf_status finish(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;
    wf_status status;

    if (!u->handle)
        return wf_context_status(ctx);
    wf_scope_open(ctx);
    status = wf_par_move_end(all->par, kind_of(u), u->handle, all->list);
    u->handle = NULL;
    for (int64_t i = 0; i < u->split && status == WF_OK; i++) {
        wf_par_parameter_state *h = wf_par_state_of(u->parameter[i]);

        wf_tensor_comes_with(h->gathered, u);
        status = wf_tensor_take(h->gathered, all->list[i]);
        if (all->list[i] == h->low_precision || !u->reshard ||
            u->keep_unsharded) /* it is in what was gathered */
            forget_low_precision(u->parameter[i]);
    }
    wf_scope_close(ctx);
    u->unsharded = status == WF_OK;
    return status;
}

static void release(wf_par_unit *u)
{
    if (u->keep_unsharded || u->pins > 0)
        return;
    for (int64_t i = 0; u->unsharded && i < u->split; i++)
        wf_tensor_drop(wf_par_state_of(u->parameter[i])->gathered);
    u->unsharded = false;
}

/* Gives back what this pass has prefetched, but for u. */
static wf_status give_back(wf_par_units *all, const wf_par_unit *u)
{
    wf_status status = wf_context_status(all->par->ctx);

    for (int64_t i = 0; i < all->count && status == WF_OK; i++) {
        if (&all->unit[i] == u || !all->unit[i].handle || all->unit[i].pins > 0 ||
            all->unit[i].asked != all->pass.order)
            continue;
        status = finish(&all->unit[i]);
        release(&all->unit[i]);
    }
    return status;
}

/* Gathers u, and prefetches the units after s->unit[at], forwards or backwards. */
static wf_status gather(wf_par_unit *u, const wf_par_sequence *s, int64_t at, int way)
{
    int wanted = u->policy.prefetch;
    wf_status status = begin(u);

    while (status == WF_OK && wanted > 0 && (at += way) >= 0 && at < s->count) {
        wf_par_unit *next = s->unit[at];

        if (next == u || next->unsharded || !next->split)
            continue;
        status = begin(next);
        wanted--;
    }
    return status == WF_OK ? finish(u) : status;
}

/* Backward has gone through all that the unit's module computed, for weights too. */
static wf_status take_gradients(void *arg)
{
    wf_par_unit *u = arg;
    wf_par_units *all = u->of;
    wf_status status = wf_context_status(all->par->ctx);

    if (all->pass.gradients && status == WF_OK)
        status = wf_par_gradients_take(all->pass.gradients, u->count, u->parameter);
    return status;
}

/* The same for inputs: gradients of weights, if they come later, read no parameter. */
static wf_status post_backward(void *arg)
{
    wf_par_unit *u = arg;

    if (u->active == 0)
        release(u);
    if (u == u->of->unit)
        u->of->pass.in_backward = false;
    return wf_context_status(u->of->par->ctx);
}

/* Gathers a unit before the backward of the last op of its module. */
static wf_status pre_backward(void *arg)
{
    wf_par_unit *u = arg;
    wf_par_sequence *s = &u->of->pass.order->backward;

    if (u == u->of->unit)
        u->of->pass.in_backward = true;
    while (s->at > 0 && s->unit[--s->at] != u)
        ;
    return gather(u, s, s->at, -1);
}

/* Enters a unit. Recomputation in backward is no part of the order in which units come in a
   pass. */
static wf_status enter(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_status status = WF_OK;

    if (all->pass.in_backward) {
        status = begin(u);
        return status == WF_OK ? finish(u) : status;
    }
    if (!wf_par_sequence_expects(&all->pass.order->forward, u))
        status = give_back(all, u);
    if (status == WF_OK)
        status = wf_par_sequence_see(all, &all->pass.order->forward, u);
    return status == WF_OK
               ? gather(u, &all->pass.order->forward, all->pass.order->forward.at - 1, 1)
               : status;
}

static void pass_begins(wf_par_units *all)
{
    all->pass.order->forward.at = all->pass.order->backward.at = 0;
    all->pass.recording = wf_context_recording(all->par->ctx);
}

static void pass_ends(wf_par_units *all)
{
    all->pass.order->forward.count = all->pass.order->forward.at;
    give_back(all, NULL);
}

void wf_par_unit_enter(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;

    if (all->pass.depth++ == 0 && !all->pass.in_backward) {
        pass_begins(all);
    }
    u->active++;
    if (wf_context_status(ctx) == WF_OK && enter(u) == WF_OK &&
        wf_tape_hook(ctx, WF_WALK_INPUTS, post_backward, u) == WF_OK)
        wf_tape_hook(ctx, WF_WALK_WEIGHTS, take_gradients, u);
}

void wf_par_unit_leave(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;

    if (wf_context_status(ctx) == WF_OK &&
        (all->pass.in_backward ||
         wf_par_sequence_see(all, &all->pass.order->backward, u) == WF_OK))
        wf_tape_hook(ctx, WF_WALK_INPUTS, pre_backward, u);
    all->pass.depth--;
    if (--u->active == 0 && !all->pass.in_backward && (u->reshard || !all->pass.recording))
        release(u); /* backward continues with what has just been recomputed */
    if (all->pass.depth > 0 || all->pass.in_backward)
        return;
    pass_ends(all);
    if (!all->pass.recording)
        wf_par_units_reshard(all);
}

void wf_par_units_reshard(wf_par_units *all)
{
    for (int64_t u = 0; all && u < all->count; u++) {
        if (wf_context_status(all->par->ctx) == WF_OK)
            finish(&all->unit[u]);
        all->unit[u].pins = 0;
        release(&all->unit[u]);
    }
    if (all) {
        all->pass.depth = 0;
        all->pass.in_backward = false;
        all->pass.order = &all->model;
    }
}

void wf_par_units_stage_begin(wf_par_units *all, wf_par_order *order, bool backward)
{
    all->pass.order = order;
    all->pass.in_backward = backward;
    if (backward)
        order->backward.at = order->backward.count;
    else
        pass_begins(all);
    all->pass.depth++;
}

void wf_par_units_stage_end(wf_par_units *all)
{
    all->pass.depth--;
    if (!all->pass.in_backward)
        pass_ends(all);
    all->pass.in_backward = false;
    all->pass.order = &all->model;
}

wf_status wf_par_unit_pin(wf_par_unit *u)
{
    u->pins++;
    return begin(u);
}

wf_status wf_par_unit_wait(wf_par_unit *u)
{
    return finish(u);
}

void wf_par_unit_unpin(wf_par_unit *u)
{
    if (--u->pins > 0)
        return;
    finish(u);
    if (u->active == 0)
        release(u);
}

void wf_par_units_change(wf_par_units *all)
{
    wf_par_units_reshard(all);
    for (int64_t u = 0; all && u < all->count; u++) {
        wf_par_unit *unit = &all->unit[u];

        for (int64_t i = 0; i < unit->split; i++) {
            forget_low_precision(unit->parameter[i]);
            if (unit->unsharded)
                wf_tensor_drop(wf_par_state_of(unit->parameter[i])->gathered);
        }
        unit->unsharded = false;
    }
}

void wf_par_models_change(wf_par *par)
{
    for (wf_par_units *all = par->models; all; all = all->next)
        wf_par_units_change(all);
}
