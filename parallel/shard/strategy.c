/*
 * parallel/shard/strategy.c - the layouts of parameters that follow from their strategies, and
 * the axes over which these sum.
 */
#include "parallel/shard/units_internal.h"
#include <stdio.h>
#include <string.h>

/* Elements of the largest part that any rank holds. */
static int64_t largest_part(const wf_mesh *mesh, const wf_tensor *t, const wf_layout *layout)
{
    int64_t count = 1;

    for (int d = 0; d < t->ndim; d++)
        count *= wf_layout_largest_part(mesh, layout, d, &t->dim[d]);
    return count;
}

/* A chunk of the gradient's norm is a row of dim 0 times one of dim 1's 8 cuts (measure.h), so
   dim 1 may only be cut there; of experts it is a row of a matrix, and dim 1 has rows. Ranks
   that do not differ on its axes have the same cuts. */
static bool keeps_norm_chunks(const wf_mesh *mesh, const wf_tensor *t, const wf_layout *layout)
{
    const wf_dim *dim = &t->dim[1];
    unsigned axes = 0;

    if (t->ndim > 2 && t->dim[0].chunks == WF_CHUNKS_EXPERTS)
        return true;

    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if (wf_layout_split_dim(layout, axis) == 1)
            axes |= 1u << axis;
    for (int rank = 0; rank >= 0; rank = wf_mesh_next(mesh, rank, axes)) {
        int64_t start, local;
        int cut = 0;

        wf_layout_part(mesh, layout, 1, dim, rank, &start, &local);
        while (cut < WF_MAX_CHUNKS && wf_cut(dim->size, dim->grain, WF_MAX_CHUNKS, cut) < start)
            cut++;
        if (wf_cut(dim->size, dim->grain, WF_MAX_CHUNKS, cut) != start)
            return false;
    }
    return true;
}

/* Cuts further along dim d, by those of the axes that do not cut the parameter yet: experts are
   split over ep to compute with. The innermost axis of the mesh cuts first, so that a sum over
   several is a reduce-scatter on each, and a gather begins with what experts gather too. */
const wf_layout *wf_par_cut_further(const wf_par *par, const wf_layout *use, int d,
                                    unsigned axes)
{
    const wf_layout *cut = use;

    for (int i = par->n_dp - 1; i >= 0; i--)
        if (axes >> par->dp_axis[i] & 1 && wf_layout_split_dim(use, par->dp_axis[i]) < 0)
            cut = wf_layout_split(par->mesh, cut, d, par->dp_axis[i]);
    return cut;
}

/*
 * Cut by the policy's axes: dim 0, whose parts need no packing on their way, unless it is so
 * small that its largest part is over 1/16 larger than dim 1's.
 */
static const wf_layout *split_layout(wf_par *par, const wf_tensor *t, const wf_layout *use,
                                     unsigned axes)
{
    const wf_layout *rows, *columns;

    if (t->ndim == 0)
        return use;
    rows = wf_par_cut_further(par, use, 0, axes);
    if (rows == use || t->ndim == 1)
        return rows;
    columns = wf_par_cut_further(par, use, 1, axes);
    if (16 * largest_part(par->mesh, t, rows) > 17 * largest_part(par->mesh, t, columns) &&
        keeps_norm_chunks(par->mesh, t, columns))
        return columns;
    return rows;
}

bool wf_par_is_gathered(const wf_par *par, const wf_nn_parameter *p)
{
    const wf_par_parameter_state *h = wf_par_state_of(p);

    return h->shard_layout != h->compute_layout || wf_par_gathered_dtype(par, h) != h->stored;
}

bool wf_par_is_dp(const wf_par *par, int axis)
{
    for (int i = 0; i < par->n_dp; i++)
        if (par->dp_axis[i] == axis)
            return true;
    return false;
}

unsigned wf_par_dp_axes(const wf_par *par)
{
    unsigned axes = 0;

    for (int i = 0; i < par->n_dp; i++)
        axes |= 1u << par->dp_axis[i];
    return axes;
}

unsigned wf_par_tensor_axes(const wf_par *par)
{
    unsigned pp = par->pp_axis >= 0 ? 1u << par->pp_axis : 0;

    return ((1u << wf_mesh_axes(par->mesh)) - 1) & ~wf_par_dp_axes(par) & ~pp;
}

/* Split gradients of neighbours are summed by themselves, and across groups once a step. */
unsigned wf_par_policy_reduces(const wf_par *par, const wf_par_policy *policy)
{
    unsigned inner = 0;

    for (int i = par->n_dp - 1; i >= 0 && inner != policy->axes; i--)
        inner |= 1u << par->dp_axis[i];
    return policy->strategy->split_gradients && inner == policy->axes && inner
               ? inner
               : wf_par_dp_axes(par);
}

/* The sum over the sequences of ranks that share experts is taken by these, in each micro-step:
   so are all sums over ep. */
static wf_status choose_ep(wf_par *par, bool group, unsigned *axes)
{
    if (par->ep_axis < 0)
        return WF_OK;
    if (group)
        return wf_fail(par->ctx, WF_EINVAL,
                       "gradients of experts that data-parallel ranks split are summed over "
                       "these in each micro-step, and accumulate is WF_PAR_GROUP: use another "
                       "one");
    *axes |= 1u << par->ep_axis;
    return WF_OK;
}

wf_status wf_par_set_reduced(wf_par *par, unsigned axes, bool each)
{
    bool group = par->options.accumulate == WF_PAR_GROUP;

    if (!each || wf_par_dp(par) == 1)
        axes = 0;
    if (choose_ep(par, group && par->options.accumulate_group > 1, &axes) != WF_OK)
        return wf_context_status(par->ctx);
    if (par->models && par->reduced != axes)
        return wf_fail(
            par->ctx, WF_EINVAL,
            "the models of a run sum their gradients over the same axes in every "
            "micro-step: give them strategies that do, or set wf_par_options.accumulate");
    par->reduced = axes;
    par->group = group && axes && !par->options.exact_off ? par->options.accumulate_group : 1;
    return WF_OK;
}

int64_t wf_par_ranks_along(const wf_par *par, unsigned axes)
{
    int64_t ranks = 1;

    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (axes >> axis & 1)
            ranks *= wf_mesh_size(par->mesh, axis);
    return ranks;
}

const wf_layout *wf_par_whole_over(const wf_par *par, const wf_layout *layout, unsigned axes)
{
    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        if (axes >> axis & 1)
            layout = wf_layout_whole(par->mesh, layout, axis);
    return layout;
}

/* Returns the stored type. Frozen parameters need only the bits of their compute copy; matrices
   between features may be stored in 4. */
static wf_dtype stored_dtype(const wf_par *par, const wf_nn_parameter *p)
{
    bool nf4 = par->options.base_dtype == WF_NF4 && p->matrix;

    return !p->frozen || p->counted ? WF_F32 : nf4 ? WF_NF4 : par->options.param_dtype;
}

/* Rows of nf4 are not cut. */
void wf_par_lay_out(wf_par *par, const wf_nn_parameter *p, wf_par_parameter_state *h)
{
    const wf_par_strategy *s = h->policy->strategy;
    const wf_layout *split;
    bool master = par->options.param_dtype != WF_F32 && !p->frozen && !p->counted;

    h->wide = p->counted;
    h->stored = stored_dtype(par, p);
    if (h->stored == WF_NF4)
        split = wf_par_cut_further(par, h->compute_layout, 0, h->policy->axes);
    else
        split = split_layout(par, p->tensor, h->compute_layout, h->policy->axes);
    if (s->splits && !s->splits(p))
        split = h->compute_layout;
    h->shard_layout =
        s->split_parameters || (master && s->split_optimizer) ? split : h->compute_layout;
    h->gradient = s->split_gradients ? split : h->compute_layout;
    h->optimizer = s->split_optimizer ? split : h->compute_layout;
    h->micro = h->gradient;
    for (int i = 0; i < par->n_dp; i++)
        if (!(par->reduced >> par->dp_axis[i] & 1) &&
            wf_mesh_size(par->mesh, par->dp_axis[i]) > 1)
            h->micro = wf_layout_partial(par->mesh, h->micro, par->dp_axis[i], WF_REDUCE_SUM);
}

void wf_par_moved_begin(wf_par *par)
{
    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        wf_comm_count_too(wf_mesh_comm(par->mesh, axis), &par->moved[axis]);
}

void wf_par_moved_end(wf_par *par)
{
    for (int axis = 0; axis < wf_mesh_axes(par->mesh); axis++)
        wf_comm_count_too(wf_mesh_comm(par->mesh, axis), NULL);
}

wf_move *wf_par_move_begin(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                           const wf_layout *const *to)
{
    wf_memory_kind outside = wf_context_memory_kind(par->ctx, kind);
    wf_move *move;

    wf_par_moved_begin(par);
    move = wf_move_begin(par->ctx, count, x, to);
    wf_par_moved_end(par);
    wf_context_memory_kind(par->ctx, outside);
    return move;
}

wf_status wf_par_move_end(wf_par *par, wf_memory_kind kind, wf_move *move, wf_tensor **y)
{
    wf_memory_kind outside = wf_context_memory_kind(par->ctx, kind);
    wf_status status;

    wf_par_moved_begin(par);
    status = wf_move_end(move, y);
    wf_par_moved_end(par);
    wf_context_memory_kind(par->ctx, outside);
    return status;
}

wf_status wf_par_move_run(wf_par *par, wf_memory_kind kind, int64_t count, wf_tensor *const *x,
                          const wf_layout *const *to, wf_tensor **y)
{
    wf_memory_kind outside = wf_context_memory_kind(par->ctx, kind);
    wf_status status;

    wf_par_moved_begin(par);
    status = wf_move_run(par->ctx, count, x, to, y);
    wf_par_moved_end(par);
    wf_context_memory_kind(par->ctx, outside);
    return status;
}

void wf_par_abandon(wf_par *par)
{
    wf_error cause = *wf_context_error(par->ctx);

    if (cause.code == WF_OK)
        wf_error_set(&cause, WF_EINVAL, "rank %d: a run was closed in the middle of a step",
                     wf_context_rank(par->ctx));
    wf_comm_abort(wf_mesh_world(par->mesh), &cause);
}

void wf_par_move_abandon(wf_par *par, wf_move *move, wf_tensor **y)
{
    wf_par_abandon(par);
    wf_scope_open(par->ctx);
    wf_move_end(move, y);
    wf_scope_close(par->ctx);
}
