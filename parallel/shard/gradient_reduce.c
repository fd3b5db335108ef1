/* parallel/shard/gradient_reduce.c - the gradients of a step, from first to last: opened,
   reset, finished; see the header. */
#include "parallel/shard/gradient_slots_internal.h"
#include "core/tape.h"
#include <stdlib.h>

wf_par_gradients *wf_par_gradients_open(wf_par *par, int64_t sequences, int64_t count,
                                        wf_nn_parameter *const *parameter)
{
    wf_par_gradients *g = calloc(1, sizeof *g);

    if (g) {
        *g = (wf_par_gradients){.par = par,
                                .count = count,
                                .parameter = parameter,
                                .sequences = sequences,
                                .ranks = wf_par_ranks_along(par, par->reduced)};
        g->slots = calloc((size_t)count + 1, sizeof *g->slots);
    }
    if (!g || !g->slots) {
        wf_par_gradients_close(g);
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the gradients of %lld parameters",
                (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        wf_par_state_of(parameter[i])->slot = i;
    return g;
}

void wf_par_gradients_reset(wf_par_gradients *g)
{
    wf_par_gradients_settle(g);
    wf_par_gradients_sum_end(g);
    g->summed = false;
    for (int64_t i = 0; i < g->count; i++) {
        wf_nn_forget_uses(g->parameter[i]);
        for (int u = 0; u < g->slots[i].count; u++) {
            wf_par_sum_clear(&g->slots[i].slot[u]);
            wf_par_sum_clear(&g->slots[i].group[u]);
        }
        wf_par_sum_clear(&g->slots[i].ended);
    }
}

static void free_slots(struct slots *s)
{
    for (int u = 0; u < s->count; u++) {
        wf_par_sum_free(&s->slot[u]);
        wf_par_sum_free(&s->group[u]);
    }
    wf_par_sum_free(&s->ended);
    free(s->slot);
    free(s->group);
}

void wf_par_gradients_close(wf_par_gradients *g)
{
    if (!g)
        return;
    if (g->summing)
        wf_par_move_abandon(g->par, g->summing, g->list);
    if (g->bucket)
        wf_par_move_abandon(g->par, g->bucket, g->list);
    g->summing = g->bucket = NULL;
    g->nodes = 0;
    if (g->slots)
        wf_par_gradients_reset(g);
    for (int64_t i = 0; g->slots && i < g->count; i++)
        free_slots(&g->slots[i]);
    free(g->slots);
    free(g->list);
    free(g->to);
    free(g->slot);
    free(g->sum);
    free(g);
}

/* Adds the slots' sums in the order of use, after those of earlier uses. */
static void take_sum(const struct slots *s, wf_tensor **grad)
{
    wf_tensor *sum = *grad;

    for (int u = 0; u < s->count; u++) {
        wf_tensor *term = s->slot[u].open ? s->slot[u].node[0].sum : NULL;

        if (sum && term)
            wf_partial_add(&sum, term);
        else if (term)
            sum = wf_tensor_retain(term);
        wf_par_sum_clear(&s->slot[u]);
    }
    *grad = sum;
}

wf_status wf_par_gradients_finish(wf_par_gradients *g, wf_tensor **grad)
{
    wf_context *ctx = g->par->ctx;
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);

    if (!g->summed && wf_par_gradients_complete(g) == WF_OK)
        wf_par_gradients_list(g);
    wf_par_gradients_sum_end(g);
    wf_scope_open(ctx);
    for (int64_t i = 0; i < g->count && wf_context_status(ctx) == WF_OK; i++)
        take_sum(&g->slots[i], &grad[i]);
    wf_scope_close(ctx);
    wf_par_gradients_reset(g);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}
