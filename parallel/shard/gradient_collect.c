/*
 * parallel/shard/gradient_collect.c - the gradients of a micro-step, taken from the tape's
 * leaves to the slots of their parameters' uses.
 */
#include "parallel/shard/gradient_slots_internal.h"
#include "core/numerics/tree.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include <stdlib.h>

/* The array with room for n elements, or as it is where there is no memory. */
static void *grow_array(void *array, int64_t n, size_t size, bool *there)
{
    void *grown = *there ? realloc(array, (size_t)n * size) : NULL;

    *there = grown != NULL;
    return grown ? grown : array;
}

/* Adds the gradient of use u from a micro-step, or from `count` of them, to the sum of the use
   or of the micro-step's group. Returns true where the group is complete; *whole is then its
   sum, for the caller, or NULL where there is none. */
static bool add_to_group(const wf_par_gradients *g, struct slots *s, int u, wf_tensor *term,
                         int64_t micro, int64_t count, wf_tensor **whole)
{
    wf_context *ctx = g->par->ctx;

    *whole = NULL;
    if (wf_par_sum_add_node(ctx, &s->group[u], term, micro, count, g->micros) != WF_OK ||
        !wf_par_sum_take(&s->group[u], micro, g->par->group, whole))
        return false;
    if (!*whole)
        wf_par_sum_add(ctx, &s->slot[u], NULL, micro / g->par->group,
                       g->micros / g->par->group);
    return true;
}

/* The terms of a slot's sum, and the first of those that a micro-step brings. */
static int64_t terms_of(const wf_par_gradients *g)
{
    return g->sequences ? g->sequences : g->micros / g->par->group;
}

static int64_t first_term(const wf_par_gradients *g, int64_t micro)
{
    return g->sequences ? micro * g->ranks : micro / g->par->group;
}

static int64_t end_of_terms(const wf_par_gradients *g, int64_t micro)
{
    int64_t end = first_term(g, micro) + (g->sequences ? g->ranks : 1);

    return end < terms_of(g) ? end : terms_of(g);
}

/* A micro-step, which is no group's, gives use u nothing. */
static void add_nothing(const wf_par_gradients *g, struct slots *s, int u, int64_t micro)
{
    for (int64_t i = first_term(g, micro); i < end_of_terms(g, micro); i++)
        wf_par_sum_add(g->par->ctx, &s->slot[u], NULL, i, terms_of(g));
}

/* A use that earlier micro-steps did not have: they count as nothing. */
static wf_status start_slot(const wf_par_gradients *g, struct slots *s, int u)
{
    wf_tensor *nothing;

    s->group[u] = s->slot[u] = (wf_par_sum){.node = NULL};
    if (g->par->group == 1 && !g->sequences)
        return wf_par_sum_start(g->par->ctx, &s->slot[u], &s->ended);
    for (int64_t i = 0; i < g->micros; i++) {
        if (!wf_par_sum_has(&s->ended, i))
            continue;
        if (g->sequences)
            add_nothing(g, s, u, i);
        else
            add_to_group(g, s, u, NULL, i, 1, &nothing);
    }
    return wf_context_status(g->par->ctx);
}

/* A slot for each of a parameter's uses, of which earlier micro-steps had none; returns how
   many are new. */
static int add_slots(const wf_par_gradients *g, struct slots *s, int uses, bool *there)
{
    int before = s->count;

    if (uses <= before)
        return 0;
    s->slot = grow_array(s->slot, uses, sizeof *s->slot, there);
    s->group = grow_array(s->group, uses, sizeof *s->group, there);
    while (*there && s->count < uses) {
        *there = start_slot(g, s, s->count) == WF_OK;
        s->count += *there;
    }
    return s->count - before;
}

/* Room for the uses that parameters have now. It stays, so that a step like the one before
   takes no memory. Nothing may be on its way to a slot. */
static wf_status make_room(wf_par_gradients *g, int64_t n, wf_nn_parameter *const *parameter)
{
    bool there = true;

    for (int64_t i = 0; i < n && there; i++)
        g->n_slots += add_slots(g, &g->slots[wf_par_state_of(parameter[i])->slot],
                                wf_nn_leaves_of(parameter[i], g->pass)->uses, &there);
    if (there && g->n_slots > g->room) {
        g->list = grow_array(g->list, g->n_slots, sizeof *g->list, &there);
        g->to = grow_array(g->to, g->n_slots, sizeof *g->to, &there);
        g->slot = grow_array(g->slot, g->n_slots, sizeof *g->slot, &there);
        g->sum = grow_array(g->sum, g->n_slots, sizeof *g->sum, &there);
        g->room = there ? g->n_slots : g->room;
    }
    return there ? WF_OK
                 : wf_fail(g->par->ctx, WF_ENOMEM,
                           "no memory for the gradients of %lld uses of parameters",
                           (long long)g->n_slots);
}

/* Add what has come for a slot: the sum over ranks, or the gradients of their sequences. */
static void add_what_came(const wf_par_gradients *g, wf_par_sum *sum, wf_tensor *came)
{
    int64_t first = first_term(g, g->micro), end = end_of_terms(g, g->micro);

    for (int64_t i = first; i < end; i++) {
        bool waits = i + 1 == end && wf_tree_merges(terms_of(g), i) == 0; /* for its sibling */
        wf_tensor *term =
            g->sequences ? wf_par_per_sequence_take(g->par, came, i - first, waits) : came;

        if (term)
            wf_par_sum_add(g->par->ctx, sum, term, i, terms_of(g));
    }
}

wf_status wf_par_gradients_settle(wf_par_gradients *g)
{
    wf_context *ctx = g->par->ctx;
    wf_status status = wf_context_status(ctx);
    wf_memory_kind kind;

    if (!g->summing || status != WF_OK)
        return status; /* after an error the peers may never come */
    kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);
    wf_scope_open(ctx);
    status = wf_par_move_end(g->par, WF_MEMORY_GRADIENT, g->summing, g->list);
    g->summing = NULL;
    for (int64_t i = 0; i < g->n_summing && wf_context_status(ctx) == WF_OK; i++)
        add_what_came(g, g->sum[i], g->list[i]);
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}

static const wf_layout *summed_layout(const wf_par *par, const wf_tensor *grad)
{
    const wf_layout *to = grad->layout;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (!wf_par_is_dp(par, axis) && wf_layout_is_partial(to, axis))
            to = wf_layout_whole(par->mesh, to, axis);
    return to;
}

/* Returns true for the gradient of a matrix with a row per sequence (kernels/linear_rows.h). */
static bool is_matrix_in_rows(const wf_nn_parameter *p, const wf_tensor *grad)
{
    return p->tensor->ndim > 1 && grad->ndim == p->tensor->ndim + 1;
}

/* Moves the gradients that are listed, each instead of the one before. */
static wf_status move_listed(wf_par_gradients *g, int64_t n)
{
    wf_status status;

    if (!n)
        return wf_context_status(g->par->ctx);
    wf_par_moved_begin(g->par);
    status = wf_move_run(g->par->ctx, n, g->list, g->to, g->list);
    wf_par_moved_end(g->par);
    for (int64_t i = 0; i < n && status == WF_OK; i++) {
        wf_tensor_retain(g->list[i]);
        wf_tensor_release(*g->slot[i]);
        *g->slot[i] = g->list[i];
    }
    return status;
}

/* Lists the gradients that are partial over axes which are not data-parallel: vectors of
   sequence-parallel regions, and what ranks of cp have of their tokens. Matrices in rows come
   to be split over cp and not whole, since a sum over sequences is yet to be taken. */
static int64_t list_partial(wf_par_gradients *g, int64_t count,
                            wf_nn_parameter *const *parameter)
{
    int64_t n = 0;

    for (int64_t i = 0; i < count; i++)
        for (int u = 0; u < wf_nn_leaves_of(parameter[i], g->pass)->uses; u++) {
            wf_tensor *leaf = wf_nn_leaves_of(parameter[i], g->pass)->use[u],
                      **grad = leaf ? &leaf->grad : NULL;
            const wf_layout *summed = grad && *grad ? summed_layout(g->par, *grad) : NULL;

            if (!grad || !*grad || summed == (*grad)->layout)
                continue;
            if (g->par->cp_axis >= 0 && is_matrix_in_rows(parameter[i], *grad))
                summed = wf_layout_split(g->par->mesh, summed, 1, g->par->cp_axis);
            g->slot[n] = grad;
            g->to[n] = summed;
            g->list[n++] = *grad;
        }
    return n;
}

/* Sums those over their axes, and matrices in rows over their sequences, which are split over
   cp then and gathered. */
static wf_status sum_over_tensor_axes(wf_par_gradients *g, int64_t count,
                                      wf_nn_parameter *const *parameter)
{
    int64_t n = list_partial(g, count, parameter), rows = 0;
    int cp = g->par->cp_axis;
    wf_status status = move_listed(g, n);

    for (int64_t i = 0; i < n && status == WF_OK && cp >= 0; i++) {
        wf_tensor *sum, **slot = g->slot[i];

        if (wf_layout_split_dim((*slot)->layout, cp) != 1 || (*slot)->ndim < 3)
            continue;
        sum = wf_batch_sum(*slot);
        if (!sum)
            return wf_context_status(g->par->ctx);
        g->slot[rows] = slot;
        g->to[rows] = wf_layout_whole(g->par->mesh, sum->layout, cp);
        g->list[rows++] = sum;
    }
    return status == WF_OK ? move_listed(g, rows) : status;
}

void wf_par_gradients_micro(wf_par_gradients *g, const wf_nn_pass *pass, int64_t micro,
                            int64_t micros, int64_t sequences)
{
    g->pass = pass;
    g->micro = micro;
    g->micros = micros;
    g->sequences = sequences;
}

int64_t wf_par_gradients_joined(const wf_par *par, int64_t micro, int64_t last, int64_t micros)
{
    int64_t end = last + 1;

    if (par->options.reduce_dtype != WF_F32 || par->cp_axis >= 0)
        return 1; /* each is rounded, or summed over ranks of cp, before it is added */
    if (par->reduced && end > micro / par->group * par->group + par->group)
        end = micro / par->group * par->group + par->group;
    return wf_tree_node(micros, micro, end, WF_MOST_JOINED);
}

/* Lists the part of a slot that is to be summed over ranks; it is released when that has
   begun. */
static void list_sum(wf_par_gradients *g, const wf_par_parameter_state *h, int u,
                     wf_tensor *sum)
{
    g->sum[g->n_summing] = &g->slots[h->slot].slot[u];
    g->to[g->n_summing] = g->sequences ? wf_par_per_sequence_layout(g->par, h, sum) : h->micro;
    g->list[g->n_summing++] = sum;
}

/* The sums that are listed begin. */
static void begin_sums(wf_par_gradients *g)
{
    int64_t n = g->n_summing;

    if (n && wf_context_status(g->par->ctx) == WF_OK)
        g->summing = wf_par_move_begin(g->par, WF_MEMORY_GRADIENT, n, g->list, g->to);
    for (int64_t i = 0; i < n; i++)
        wf_tensor_release(g->list[i]);
}

/* The gradient of use u, if it has come: to be summed over ranks, or added as it is. */
static void take_use(wf_par_gradients *g, wf_nn_parameter *p, int u)
{
    const wf_par_parameter_state *h = wf_par_state_of(p);
    wf_tensor *leaf = wf_nn_leaves_of(p, g->pass)->use[u], *grad = leaf ? leaf->grad : NULL;
    struct slots *s = &g->slots[h->slot];
    int64_t count = leaf && leaf->joined ? leaf->joined : 1;

    u = g->par->options.exact_off ? 0 : u; /* all uses are one sum */

    if (grad && grad->ndim == p->tensor->ndim + 1) /* a gradient with a row per sequence */
        grad = wf_batch_sum(grad);
    if (grad && g->par->options.reduce_dtype != grad->dtype && !p->counted)
        grad = wf_cast(grad, g->par->options.reduce_dtype);
    if (!grad)
        return;
    if (!g->par->reduced)
        wf_par_sum_add_node(g->par->ctx, &s->slot[u], grad, g->micro, count, g->micros);
    else if (g->sequences)
        list_sum(g, h, u, wf_tensor_retain(wf_par_per_sequence_put(g->par, grad)));
    else if (g->par->group == 1)
        list_sum(g, h, u, wf_tensor_retain(grad));
    else if (add_to_group(g, s, u, grad, g->micro, count, &grad) && grad)
        list_sum(g, h, u, grad);
}

static void drop_gradients(const wf_nn_leaves *l)
{
    for (int u = 0; u < l->uses; u++)
        if (l->use[u]) {
            wf_tensor_release(l->use[u]->grad);
            l->use[u]->grad = NULL;
        }
}

wf_status wf_par_gradients_take(wf_par_gradients *g, int64_t n,
                                wf_nn_parameter *const *parameter)
{
    wf_context *ctx = g->par->ctx;
    wf_memory_kind kind;

    if (wf_par_gradients_settle(g) != WF_OK || make_room(g, n, parameter) != WF_OK)
        return wf_context_status(ctx);
    kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);
    wf_scope_open(ctx);
    g->n_summing = 0;
    sum_over_tensor_axes(g, n, parameter);
    for (int64_t i = 0; i < n; i++)
        for (int u = 0; u < wf_nn_leaves_of(parameter[i], g->pass)->uses &&
                        wf_context_status(ctx) == WF_OK;
             u++)
            take_use(g, parameter[i], u);
    begin_sums(g);
    for (int64_t i = 0; i < n; i++)
        drop_gradients(wf_nn_leaves_of(parameter[i], g->pass));
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}

/* All gradients of the micro-step have come: a use without one counts as nothing. */
static wf_status end_slots(wf_par_gradients *g, const wf_par_parameter_state *h)
{
    wf_context *ctx = g->par->ctx;
    struct slots *s = &g->slots[h->slot];
    wf_status status = wf_par_sum_add(ctx, &s->ended, NULL, g->micro, g->micros);
    wf_tensor *sum;

    for (int u = 0; wf_context_exact(ctx) && u < s->count && status == WF_OK; u++) {
        if (wf_par_sum_has(&s->slot[u], first_term(g, g->micro)) ||
            wf_par_sum_has(&s->group[u], g->micro))
            continue;
        if (g->par->group == 1)
            add_nothing(g, s, u, g->micro);
        else if (add_to_group(g, s, u, NULL, g->micro, 1, &sum) && sum)
            list_sum(g, h, u, sum);
        status = wf_context_status(ctx);
    }
    return status;
}

wf_status wf_par_gradients_micro_end(wf_par_gradients *g)
{
    wf_status status = wf_par_gradients_take(g, g->count, g->parameter);

    if (status == WF_OK)
        status = wf_par_gradients_settle(g);
    g->n_summing = 0;
    for (int64_t i = 0; i < g->count; i++) {
        if (status == WF_OK)
            status = end_slots(g, wf_par_state_of(g->parameter[i]));
        wf_nn_leaves_forget(g->parameter[i], g->pass);
    }
    begin_sums(
        g); /* groups to which this micro-step has added nothing, and which are complete */
    return wf_par_gradients_settle(g);
}
