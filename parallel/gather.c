/*
 * parallel/gather.c - gathering and releasing units.
 *
 * Forward, unit u enters:   begin the gathers of u and of the next `prefetch` units; wait for u
 *          u leaves:        release it, unless it is kept for backward
 * Backward reaches u's end: the same for u and the units before it
 *          and its begin:   its gradients are complete and taken; release it
 *
 * So at most `prefetch` + 1 units are gathered or under way, beside those that contain the one
 * that runs. A unit's parameters travel in one collective. What modules compute with is one tensor
 * per parameter that stays, with all that aliases it, while its memory comes and goes: what a tape
 * has saved of it finds its data again in backward.
 */
#include "parallel/gather.h"
#include <stdlib.h>

wf_status wf_par_sequence_see(wf_par_units *all, wf_par_sequence *s, wf_par_unit *unit)
{
    if (s->at == s->count || s->unit[s->at] != unit) {
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

static wf_status begin(wf_par_unit *u)
{
    wf_par_units *all = u->of;

    if (u->here || u->coming || !u->split)
        return WF_OK;
    for (int64_t i = 0; i < u->split; i++) {
        all->list[i] = u->parameter[i]->tensor;
        all->to[i] = wf_par_holding_of(u->parameter[i])->use;
    }
    u->coming = wf_par_move_begin(all->par, WF_MEMORY_GATHERED, u->split, all->list, all->to);
    return wf_context_status(all->par->ctx);
}

/* Wait until it is here. */
static wf_status finish(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;
    wf_status status;

    if (!u->coming)
        return wf_context_status(ctx);
    wf_scope_open(ctx);
    status = wf_par_move_end(all->par, WF_MEMORY_GATHERED, u->coming, all->list);
    u->coming = NULL;
    for (int64_t i = 0; i < u->split && status == WF_OK; i++)
        status = wf_tensor_take(wf_par_holding_of(u->parameter[i])->gathered, all->list[i]);
    wf_scope_close(ctx);
    u->here = status == WF_OK;
    return status;
}

static void release(wf_par_unit *u)
{
    for (int64_t i = 0; u->here && i < u->split; i++)
        wf_tensor_drop(wf_par_holding_of(u->parameter[i])->gathered);
    u->here = false;
}

/* Gather u, and begin to gather those that follow s->unit[at], forwards or backwards. */
static wf_status gather(wf_par_unit *u, const wf_par_sequence *s, int64_t at, int way)
{
    int wanted = u->of->par->options.prefetch;
    wf_status status = begin(u);

    while (status == WF_OK && wanted > 0 && (at += way) >= 0 && at < s->count) {
        wf_par_unit *next = s->unit[at];

        if (next == u || next->here || !next->split)
            continue;
        status = begin(next);
        wanted--;
    }
    return status == WF_OK ? finish(u) : status;
}

/* Backward has gone through all that the unit's module computed. */
static wf_status complete(void *arg)
{
    wf_par_unit *u = arg;
    wf_par_units *all = u->of;
    wf_status status = wf_context_status(all->par->ctx);

    if (all->gradients && status == WF_OK)
        status = wf_par_gradients_take(all->gradients, u->count, u->parameter);
    if (u->entered == 0)
        release(u);
    return status;
}

/* Backward comes to the last thing that the unit's module computed. */
static wf_status needed_again(void *arg)
{
    wf_par_unit *u = arg;
    wf_par_sequence *s = &u->of->left;

    while (s->at > 0 && s->unit[--s->at] != u)
        ;
    return gather(u, s, s->at, -1);
}

void wf_par_unit_enter(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;

    if (all->depth++ == 0)
        all->entered.at = all->left.at = 0;
    u->entered++;
    if (wf_context_status(ctx) != WF_OK ||
        wf_par_sequence_see(all, &all->entered, u) != WF_OK ||
        gather(u, &all->entered, all->entered.at - 1, 1) != WF_OK)
        return;
    wf_tape_mark(ctx, complete, u);
}

void wf_par_unit_leave(wf_par_unit *u)
{
    wf_par_units *all = u->of;
    wf_context *ctx = all->par->ctx;
    bool recording = wf_context_recording(ctx);

    if (wf_context_status(ctx) == WF_OK && wf_par_sequence_see(all, &all->left, u) == WF_OK)
        wf_tape_mark(ctx, needed_again, u);
    all->depth--;
    if (--u->entered == 0 && (u->reshard || !recording))
        release(u);
    if (all->depth == 0 && !recording)
        wf_par_units_rest(all);
}

void wf_par_units_rest(wf_par_units *all)
{
    for (int64_t u = 0; all && u < all->count; u++) {
        if (wf_context_status(all->par->ctx) == WF_OK)
            finish(&all->unit[u]);
        release(&all->unit[u]);
    }
}
