/*
 * parallel/shard/muon.c - matrices dealt out over the ranks of the axes that split them.
 *
 * Matrices of one shape and layout are stacked: [matrices, rows, columns], split like each of
 * them. Moved to be split by matrices, the stack is an all-to-all away from every rank having
 * whole ones; it works on those, and the way back is another all-to-all. A stack is as high
 * as there are ranks, so that each has one matrix at a time. Ranks along other data-parallel
 * axes do the same. Experts of a mixture are such a stack already.
 */
#include "core/offload.h"
#include "parallel/shard/muon_internal.h"
#include "kernels/ops.h"
#include <string.h>

typedef struct stack {
    wf_par *par;
    wf_nn_optimizer *optimizer;
    wf_nn_parameter *const *parameter;
    wf_tensor *const *grad;
    const wf_par_policy *policy; /* all of them have it */
    int64_t n, *index;           /* the numbers of the parameters */
} stack;

/* The axes that split matrices of a policy: those of tensor parallelism, then the policy's
   own. Returns how many. */
static int splitting_axes(const wf_par *par, const wf_par_policy *policy, int axes[WF_MAX_AXES])
{
    int n = 0;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (wf_par_tensor_axes(par) >> axis & 1)
            axes[n++] = axis;
    for (int i = par->n_dp - 1; i >= 0; i--)
        if (policy->axes >> par->dp_axis[i] & 1)
            axes[n++] = par->dp_axis[i];
    return n;
}

/* The layout of a stack of matrices of `layout`, split by the same axes in the same order. */
static const wf_layout *stacked(const stack *s, const wf_layout *layout)
{
    const wf_layout *to = NULL;
    int axes[WF_MAX_AXES], n = splitting_axes(s->par, s->policy, axes);

    for (int i = 0; i < n; i++) {
        int dim = wf_layout_split_dim(layout, axes[i]);

        if (dim >= 0)
            to = wf_layout_split(s->par->mesh, to, dim + 1, axes[i]);
    }
    return to;
}

/* Split by matrices; in the order in which axes leave the other dims, the innermost first. */
static const wf_layout *dealt(const stack *s)
{
    const wf_layout *to = NULL;
    int axes[WF_MAX_AXES];

    for (int i = splitting_axes(s->par, s->policy, axes) - 1; i >= 0; i--)
        to = wf_layout_split(s->par->mesh, to, 0, axes[i]);
    return to;
}

/* Matrix k of a stack, as this rank has it. */
static wf_tensor *matrix_of(wf_tensor *t, int64_t k, const wf_dim *dims,
                            const wf_layout *layout)
{
    wf_tensor *row = wf_tensor_rows(t, k, 1);

    return row ? wf_tensor_view(row, 2, dims, layout) : NULL;
}

static wf_tensor *move(const stack *s, wf_tensor *t, const wf_layout *to)
{
    wf_tensor *moved = NULL;

    wf_par_move_end(s->par, WF_MEMORY_BUFFER,
                    wf_par_move_begin(s->par, WF_MEMORY_BUFFER, 1, &t, &to), &moved);
    return moved;
}

/* Computes the direction of each matrix from its momentum, in the layout of the optimizer's
   state. */
static wf_tensor *directions(const stack *s)
{
    const wf_nn_parameter *first = s->parameter[s->index[0]];
    const wf_layout *layout = wf_par_state_of(first)->optimizer;
    const wf_dim *dims = first->tensor->dim;
    wf_tensor *all =
        wf_tensor_new(s->par->ctx, WF_F32, 3, (wf_dim[]){wf_dim_batch(s->n), dims[0], dims[1]},
                      stacked(s, layout), WF_MEMORY_BUFFER);

    for (int64_t k = 0; k < s->n && all; k++) {
        wf_tensor *direction = matrix_of(all, k, dims, layout);

        wf_scope_open(s->par->ctx);
        wf_nn_optimizer_direction(s->optimizer, s->index[k],
                                  move(s, s->grad[s->index[k]], layout), direction);
        wf_scope_close(s->par->ctx);
    }
    return wf_context_status(s->par->ctx) == WF_OK ? all : NULL;
}

static wf_status step(const stack *s)
{
    const wf_nn_parameter *first = s->parameter[s->index[0]];
    const wf_layout *sharded = wf_par_state_of(first)->shard_layout;
    const wf_dim *dims = first->tensor->dim;
    wf_context *ctx = s->par->ctx;
    wf_tensor *mine, *back = NULL;

    wf_scope_open(ctx);
    mine = directions(s);
    mine = mine ? move(s, mine, dealt(s)) : NULL;
    if (mine && wf_nn_optimizer_whole(s->optimizer, mine) == WF_OK)
        back = move(s, mine, stacked(s, sharded));
    for (int64_t k = 0; back && k < s->n; k++)
        wf_nn_optimizer_apply(s->optimizer, s->index[k], s->parameter[s->index[k]]->tensor,
                              matrix_of(back, k, dims, sharded));
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

/* Returns a layout of experts that have whole matrices: those that axes split are dealt out
   over them, and over the axes that split none. */
static const wf_layout *whole_experts(const stack *s, const wf_layout *layout)
{
    wf_mesh *mesh = s->par->mesh;

    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (wf_layout_split_dim(layout, axis) > 0)
            layout = wf_layout_split(mesh, wf_layout_whole(mesh, layout, axis), 0, axis);
    return wf_par_cut_further(s->par, layout, 0, s->policy->axes);
}

/* Experts are a stack as they are, [experts, rows, columns], dealt out over the axes that they
   are not split by already. */
static wf_status step_experts(const stack *s)
{
    const int64_t i = s->index[0];
    wf_nn_parameter *p = s->parameter[i];
    const wf_par_parameter_state *h = wf_par_state_of(p);
    wf_context *ctx = s->par->ctx;
    wf_tensor *mine;

    wf_scope_open(ctx);
    mine = wf_tensor_new(ctx, WF_F32, 3, p->tensor->dim, h->optimizer, WF_MEMORY_BUFFER);
    if (mine)
        wf_nn_optimizer_direction(s->optimizer, i, move(s, s->grad[i], h->optimizer), mine);
    if (wf_context_status(ctx) == WF_OK)
        mine = move(s, mine, whole_experts(s, h->compute_layout));
    if (wf_context_status(ctx) == WF_OK && wf_nn_optimizer_whole(s->optimizer, mine) == WF_OK)
        wf_nn_optimizer_apply(s->optimizer, i, p->tensor, move(s, mine, h->shard_layout));
    wf_scope_close(ctx);
    return wf_context_status(ctx);
}

static bool alike(const wf_nn_parameter *p, const wf_nn_parameter *q)
{
    const wf_par_parameter_state *a = wf_par_state_of(p), *b = wf_par_state_of(q);

    if (p->tensor->ndim != 2 || q->tensor->ndim != 2)
        return p == q;
    for (int d = 0; d < 2; d++)
        if (!wf_dim_equal(p->tensor->dim[d], q->tensor->dim[d]))
            return false;
    return a->shard_layout == b->shard_layout && a->optimizer == b->optimizer &&
           a->policy->axes == b->policy->axes;
}

wf_status wf_par_muon_update(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                             wf_nn_parameter *const *parameter, wf_tensor *const *grad)
{
    int64_t most = wf_par_ranks_along(par, wf_par_tensor_axes(par) | wf_par_dp_axes(par));
    stack s = {.par = par, .optimizer = optimizer, .parameter = parameter, .grad = grad};
    wf_blocks *blocks = wf_context_blocks(par->ctx);
    size_t done_bytes = (size_t)count * sizeof(bool), bytes = (size_t)most * sizeof *s.index;
    bool *done = wf_blocks_take(blocks, done_bytes);
    int64_t high;

    s.index = wf_blocks_take(blocks, bytes);
    if (done && s.index)
        memset(done, 0, done_bytes);
    else
        wf_fail(par->ctx, WF_ENOMEM, "no memory for a stack of %lld matrices", (long long)most);
    for (int64_t i = 0; i < count && wf_context_status(par->ctx) == WF_OK; i++) {
        if (done[i] || !grad[i] || !wf_nn_optimizer_is_matrix(optimizer, i))
            continue;
        s.n = 0;
        s.policy = wf_par_state_of(parameter[i])->policy;
        high = wf_par_ranks_along(par, wf_par_tensor_axes(par) | s.policy->axes);
        for (int64_t k = i; k < count && s.n < high; k++)
            if (!done[k] && grad[k] && wf_nn_optimizer_is_matrix(optimizer, k) &&
                alike(parameter[i], parameter[k])) {
                done[k] = true;
                s.index[s.n++] = k;
            }
        for (int64_t k = 0; k < s.n; k++)
            wf_tensor_fetch(parameter[s.index[k]]->tensor);
        if (parameter[i]->tensor->ndim == 2)
            step(&s);
        else
            step_experts(&s);
        for (int64_t k = 0; k < s.n; k++)
            wf_tensor_put_back(parameter[s.index[k]]->tensor);
    }
    wf_blocks_give(blocks, done, done_bytes);
    wf_blocks_give(blocks, s.index, bytes);
    return wf_context_status(par->ctx);
}
