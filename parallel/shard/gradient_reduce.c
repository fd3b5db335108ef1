/* parallel/shard/gradient_reduce.c - collecting gradients; see the header. */
#include "parallel/shard/gradient_reduce_internal.h"
#include "kernels/ops.h"
#include "parallel/shard/gradient_sum_internal.h"
#include <stdlib.h>

/* The slots of a parameter: as many as it ever had uses in a micro-step. */
struct slots {
    wf_par_sum *slot;
    int count;
    wf_par_sum ended; /* a sum without terms: the micro-steps whose gradients have all come */
};

struct wf_par_gradients {
    wf_par *par;
    int64_t count;
    wf_nn_parameter *const *parameter;
    const wf_nn_pass *pass; /* the one whose gradients come */
    int64_t micro, micros;  /* the number of its micro-step, of how many */
    struct slots *slots;    /* [count] */
    int64_t n_slots, room;  /* all parameters'; those that the arrays below have room for */
    wf_tensor **list;
    const wf_layout **to;
    wf_tensor ***place;
    wf_move *summing; /* gradients on their way to the sums of [n_summing] slots */
    wf_par_sum **sum;
    int64_t n_summing;
};

wf_par_gradients *wf_par_gradients_open(wf_par *par, int64_t count,
                                        wf_nn_parameter *const *parameter)
{
    wf_par_gradients *g = calloc(1, sizeof *g);

    if (g) {
        *g = (wf_par_gradients){.par = par, .count = count, .parameter = parameter};
        g->slots = calloc((size_t)count + 1, sizeof *g->slots);
    }
    if (!g || !g->slots) {
        wf_par_gradients_close(g);
        wf_fail(par->ctx, WF_ENOMEM, "no memory for the gradients of %lld parameters",
                (long long)count);
        return NULL;
    }
    for (int64_t i = 0; i < count; i++)
        wf_par_holding_of(parameter[i])->slot = i;
    return g;
}

/* The array with room for n elements, or as it is where there is no memory. */
static void *grow_array(void *array, int64_t n, size_t size, bool *there)
{
    void *grown = *there ? realloc(array, (size_t)n * size) : NULL;

    *there = grown != NULL;
    return grown ? grown : array;
}

/* A slot for each of a parameter's uses, of which earlier micro-steps had none; returns how many are
   new. */
static int add_slots(wf_context *ctx, struct slots *s, int uses, bool *there)
{
    int before = s->count;

    if (uses <= before)
        return 0;
    s->slot = grow_array(s->slot, uses, sizeof *s->slot, there);
    while (*there && s->count < uses) {
        *there = wf_par_sum_start(ctx, &s->slot[s->count], &s->ended) == WF_OK;
        s->count += *there;
    }
    return s->count - before;
}

/* Room for the uses that parameters have now. It stays, so that a step like the one before takes no
   memory. Nothing may be on its way to a slot. */
static wf_status make_room(wf_par_gradients *g, int64_t n, wf_nn_parameter *const *parameter)
{
    bool there = true;

    for (int64_t i = 0; i < n && there; i++)
        g->n_slots += add_slots(g->par->ctx, &g->slots[wf_par_holding_of(parameter[i])->slot],
                                wf_nn_leaves_of(parameter[i], g->pass)->uses, &there);
    if (there && g->n_slots > g->room) {
        g->list = grow_array(g->list, g->n_slots, sizeof *g->list, &there);
        g->to = grow_array(g->to, g->n_slots, sizeof *g->to, &there);
        g->place = grow_array(g->place, g->n_slots, sizeof *g->place, &there);
        g->sum = grow_array(g->sum, g->n_slots, sizeof *g->sum, &there);
        g->room = there ? g->n_slots : g->room;
    }
    return there ? WF_OK
                 : wf_fail(g->par->ctx, WF_ENOMEM,
                           "no memory for the gradients of %lld uses of parameters",
                           (long long)g->n_slots);
}

/* Wait for the gradients whose sum over ranks was begun last, and add them to their slots. */
static wf_status settle(wf_par_gradients *g)
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
    for (int64_t i = 0; i < g->n_summing && status == WF_OK; i++)
        status = wf_par_sum_add(ctx, g->sum[i], g->list[i], g->micro, g->micros);
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}

void wf_par_gradients_reset(wf_par_gradients *g)
{
    settle(g);
    for (int64_t i = 0; i < g->count; i++) {
        wf_nn_forget_uses(g->parameter[i]);
        for (int u = 0; u < g->slots[i].count; u++)
            wf_par_sum_clear(&g->slots[i].slot[u]);
        wf_par_sum_clear(&g->slots[i].ended);
    }
}

static void free_slots(struct slots *s)
{
    for (int u = 0; u < s->count; u++)
        wf_par_sum_free(&s->slot[u]);
    wf_par_sum_free(&s->ended);
    free(s->slot);
}

void wf_par_gradients_close(wf_par_gradients *g)
{
    if (!g)
        return;
    if (g->summing)
        wf_par_move_abandon(g->par, g->summing, g->list);
    g->summing = NULL;
    if (g->slots)
        wf_par_gradients_reset(g);
    for (int64_t i = 0; g->slots && i < g->count; i++)
        free_slots(&g->slots[i]);
    free(g->slots);
    free(g->list);
    free(g->to);
    free(g->place);
    free(g->sum);
    free(g);
}

static const wf_layout *summed_layout(const wf_par *par, const wf_tensor *grad)
{
    const wf_layout *to = grad->layout;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (!wf_par_is_dp(par, axis) && wf_layout_is_partial(to, axis))
            to = wf_layout_whole(par->mesh, to, axis);
    return to;
}

/* Sum what is partial over axes that are not data-parallel: vectors of sequence-parallel regions. */
static wf_status sum_over_tensor_axes(wf_par_gradients *g, int64_t count,
                                      wf_nn_parameter *const *parameter)
{
    int64_t n = 0;
    wf_status status;

    for (int64_t i = 0; i < count; i++)
        for (int u = 0; u < wf_nn_leaves_of(parameter[i], g->pass)->uses; u++) {
            wf_tensor *leaf = wf_nn_leaves_of(parameter[i], g->pass)->use[u],
                      **grad = leaf ? &leaf->grad : NULL;
            const wf_layout *summed = grad && *grad ? summed_layout(g->par, *grad) : NULL;

            if (!grad || !*grad || summed == (*grad)->layout)
                continue;
            g->place[n] = grad;
            g->to[n] = summed;
            g->list[n++] = *grad;
        }
    if (!n)
        return wf_context_status(g->par->ctx);
    status = wf_move_run(g->par->ctx, n, g->list, g->to, g->list);
    for (int64_t i = 0; i < n && status == WF_OK; i++) {
        wf_tensor_retain(g->list[i]);
        wf_tensor_release(*g->place[i]);
        *g->place[i] = g->list[i];
    }
    return status;
}

void wf_par_gradients_micro(wf_par_gradients *g, const wf_nn_pass *pass, int64_t micro,
                            int64_t micros)
{
    g->pass = pass;
    g->micro = micro;
    g->micros = micros;
}

/* The gradient of use u, if it has come: to be summed over ranks, or added as it is. */
static void take_use(wf_par_gradients *g, wf_nn_parameter *p, int u)
{
    const wf_par_holding *h = wf_par_holding_of(p);
    wf_tensor *leaf = wf_nn_leaves_of(p, g->pass)->use[u], *grad = leaf ? leaf->grad : NULL;
    wf_par_sum *slot = g->slots[h->slot].slot;

    slot += g->par->options.exact_off ? 0 : u; /* all uses are one sum */

    if (grad && grad->ndim == p->tensor->ndim + 1) /* a vector's gradient, per sequence */
        grad = wf_batch_sum(grad);
    if (grad && g->par->options.reduce_dtype != grad->dtype)
        grad = wf_cast(grad, g->par->options.reduce_dtype);
    if (grad && g->par->reduced) {
        g->sum[g->n_summing] = slot;
        g->to[g->n_summing] = h->micro;
        g->list[g->n_summing++] = grad;
    } else if (grad) {
        wf_par_sum_add(g->par->ctx, slot, grad, g->micro, g->micros);
    }
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

    if (settle(g) != WF_OK || make_room(g, n, parameter) != WF_OK)
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
    if (g->n_summing && wf_context_status(ctx) == WF_OK)
        g->summing =
            wf_par_move_begin(g->par, WF_MEMORY_GRADIENT, g->n_summing, g->list, g->to);
    for (int64_t i = 0; i < n; i++)
        drop_gradients(wf_nn_leaves_of(parameter[i], g->pass));
    wf_scope_close(ctx);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}

/* All gradients of the micro-step have come: a use without one counts as nothing. */
static wf_status end_slots(wf_par_gradients *g, struct slots *s)
{
    wf_context *ctx = g->par->ctx;
    wf_status status = wf_par_sum_add(ctx, &s->ended, NULL, g->micro, g->micros);

    for (int u = 0; wf_context_exact(ctx) && u < s->count && status == WF_OK; u++)
        if (!wf_par_sum_has(&s->slot[u], g->micro))
            status = wf_par_sum_add(ctx, &s->slot[u], NULL, g->micro, g->micros);
    return status;
}

wf_status wf_par_gradients_micro_end(wf_par_gradients *g)
{
    wf_status status = wf_par_gradients_take(g, g->count, g->parameter);

    if (status == WF_OK)
        status = settle(g);
    for (int64_t i = 0; i < g->count; i++) {
        if (status == WF_OK)
            status = end_slots(g, &g->slots[i]);
        wf_nn_leaves_forget(g->parameter[i], g->pass);
    }
    return wf_context_status(g->par->ctx);
}

/* Sum the nodes list[from .. to) over data-parallel ranks, in place. */
static wf_status sum_bucket(wf_par_gradients *g, int64_t from, int64_t to)
{
    wf_context *ctx = g->par->ctx;
    wf_status status;

    wf_scope_open(ctx);
    status = wf_move_run(ctx, to - from, g->list + from, g->to + from, g->list + from);
    for (int64_t i = from; i < to && status == WF_OK; i++) {
        wf_tensor_retain(g->list[i]);
        wf_tensor_release(*g->place[i]);
        *g->place[i] = g->list[i];
    }
    wf_scope_close(ctx);
    return status;
}

static wf_status sum_over_dp(wf_par_gradients *g)
{
    const wf_par *par = g->par;
    int64_t n = 0, first = 0;
    size_t bytes = 0;

    for (int64_t i = 0; i < g->count; i++)
        for (int u = 0; u < g->slots[i].count; u++) {
            wf_par_sum *s = &g->slots[i].slot[u];

            if (!s->open || !s->node[0].sum)
                continue;
            g->place[n] = &s->node[0].sum;
            g->list[n] = s->node[0].sum;
            g->to[n++] = wf_par_holding_of(g->parameter[i])->gradient;
        }
    for (int64_t i = 0; i < n; i++) {
        bytes += (size_t)wf_tensor_local_count(g->list[i]) * wf_dtype_size(g->list[i]->dtype);
        if (bytes < WF_PAR_BUCKET_BYTES && i + 1 < n)
            continue;
        if (sum_bucket(g, first, i + 1) != WF_OK)
            break;
        first = i + 1;
        bytes = 0;
    }
    return wf_context_status(par->ctx);
}

/* The slots' sums added in the order of use; the result is handed to the caller. */
static wf_tensor *take_sum(const struct slots *s)
{
    wf_tensor *sum = NULL;

    for (int u = 0; u < s->count; u++) {
        wf_tensor *term = s->slot[u].open ? s->slot[u].node[0].sum : NULL;

        if (sum && term)
            wf_partial_add(&sum, term);
        else if (term)
            sum = wf_tensor_retain(term);
        wf_par_sum_clear(&s->slot[u]);
    }
    return sum;
}

static wf_status check_complete(const wf_par_gradients *g)
{
    wf_context *ctx = g->par->ctx;
    char text[256];

    for (int64_t i = 0; i < g->count && wf_context_status(ctx) == WF_OK; i++)
        if (*wf_par_sum_missing(&g->slots[i].ended, g->micros, text, sizeof text))
            wf_fail(ctx, WF_EINVAL,
                    "the gradient of parameter %s lacks micro-steps %s of %lld: run the whole "
                    "backward pass of each, that of weights too, before they are summed",
                    g->parameter[i]->path, text, (long long)g->micros);
    return wf_context_status(ctx);
}

wf_status wf_par_gradients_finish(wf_par_gradients *g, wf_tensor **grad)
{
    wf_context *ctx = g->par->ctx;
    wf_memory_kind kind = wf_context_memory_kind(ctx, WF_MEMORY_GRADIENT);

    if (check_complete(g) == WF_OK)
        sum_over_dp(g);
    wf_scope_open(ctx);
    for (int64_t i = 0; i < g->count && wf_context_status(ctx) == WF_OK; i++)
        grad[i] = take_sum(&g->slots[i]);
    wf_scope_close(ctx);
    wf_par_gradients_reset(g);
    wf_context_memory_kind(ctx, kind);
    return wf_context_status(ctx);
}
