/*
 * mesh/array/move_step.c - the steps of one axis each in which a tensor moves from layout to
 * layout: which comes next, what it makes of a layout, and which tensors may take it.
 *
 *     partial -> split    reduce-scatter        split -> whole     all-gather
 *     partial -> whole    all-reduce            split -> split     all-to-all
 *     whole -> split      a local copy          whole -> partial   the first rank keeps it
 *
 * What is to be split in the end and needs no other rank is cut first, so that less travels.
 * Then come sums, the innermost axis before the outer ones: the tree over ranks is nested like
 * the mesh.
 */
#include "mesh/array/move_internal.h"
#include "core/dtype.h"
#include <string.h>

/* Returns the index of an axis in an ordered list, or -1. */
static int index_of(const int8_t *list, int n, int axis)
{
    for (int i = 0; i < n; i++)
        if (list[i] == axis)
            return i;
    return -1;
}

/* Returns the dim that `to` splits by axis, if `from` splits it by just what comes before; or
   -1. */
static int ready_dim(const wf_layout *from, const wf_layout *to, int axis)
{
    for (int d = 0; d < WF_MAX_DIMS; d++) {
        int at = index_of(to->axis[d], to->n_axes[d], axis);

        if (at >= 0)
            return from->n_axes[d] == at && memcmp(from->axis[d], to->axis[d], (size_t)at) == 0
                       ? d
                       : -1;
    }
    return -1;
}

static bool slice_step(const wf_layout *from, const wf_layout *to, wf_move_step *step)
{
    unsigned busy = wf_layout_split_axes(from) | from->sum | from->max;

    for (int axis = 0; axis < to->mesh->n_axes; axis++) {
        int dim = busy >> axis & 1 ? -1 : ready_dim(from, to, axis);

        if (dim >= 0) {
            *step = (wf_move_step){.kind = WF_MOVE_SLICE, .axis = axis, .dim = dim};
            return true;
        }
    }
    return false;
}

static bool reduce_step(const wf_layout *from, const wf_layout *to, wf_move_step *step)
{
    unsigned sum = from->sum & (unsigned)~to->sum, max = from->max & (unsigned)~to->max;

    for (int axis = from->mesh->n_axes - 1; axis >= 0; axis--)
        if ((sum | max) >> axis & 1) {
            *step = (wf_move_step){.axis = axis, .dim = ready_dim(from, to, axis)};
            step->kind = step->dim >= 0 ? WF_REDUCE_SCATTER : WF_ALL_REDUCE;
            step->reduction = max ? WF_REDUCE_MAX : WF_REDUCE_SUM;
            return true;
        }
    return false;
}

static bool remove_step(const wf_layout *from, const wf_layout *to, wf_move_step *step)
{
    for (int d = 0; d < WF_MAX_DIMS; d++) {
        int n = from->n_axes[d], common = 0, axis;

        while (common < n && common < to->n_axes[d] &&
               from->axis[d][common] == to->axis[d][common])
            common++;
        if (n == common)
            continue;
        axis = from->axis[d][n - 1];
        *step = (wf_move_step){.axis = axis, .from_dim = d, .dim = ready_dim(from, to, axis)};
        step->kind = step->dim >= 0 ? WF_ALL_TO_ALL : WF_ALL_GATHER;
        return true;
    }
    return false;
}

static bool partial_step(const wf_layout *from, const wf_layout *to, wf_move_step *step)
{
    unsigned sum = to->sum & (unsigned)~from->sum, max = to->max & (unsigned)~from->max;

    for (int axis = 0; axis < to->mesh->n_axes; axis++)
        if ((sum | max) >> axis & 1) {
            *step = (wf_move_step){.kind = WF_MOVE_PARTIAL,
                                   .axis = axis,
                                   .reduction = max ? WF_REDUCE_MAX : WF_REDUCE_SUM};
            return true;
        }
    return false;
}

bool wf_move_next(wf_mesh *mesh, const wf_layout *from, const wf_layout *to, wf_move_step *step)
{
    wf_layout a = wf_layout_copy(mesh, from), b = wf_layout_copy(mesh, to);

    return from != to && (slice_step(&a, &b, step) || reduce_step(&a, &b, step) ||
                          remove_step(&a, &b, step) || partial_step(&a, &b, step));
}

const wf_layout *wf_move_layout(const wf_move_step *step, const wf_tensor *t)
{
    wf_mesh *mesh = wf_mesh_of(t->ctx);
    const wf_layout *from = t->layout;

    if (step->kind == WF_MOVE_PARTIAL)
        return wf_layout_partial(mesh, from, step->axis, step->reduction);
    from = wf_layout_whole(mesh, from, step->axis);
    return step->dim >= 0 && step->kind != WF_ALL_GATHER
               ? wf_layout_split(mesh, from, step->dim, step->axis)
               : from;
}

/* Grains of dim d that the rank with most of them holds: every member of a group knows the
   same, whatever the other axes have left it. */
static int64_t most_grains(const wf_tensor *t, int d)
{
    return wf_layout_largest_part(wf_mesh_of(t->ctx), t->layout, d, &t->dim[d]) /
           t->dim[d].grain;
}

int wf_move_scatter_dim(const wf_tensor *t, int axis)
{
    const int members = wf_mesh_size(wf_mesh_of(t->ctx), axis);
    int longest = -1;

    for (int d = 0; d < t->ndim; d++) {
        if (t->layout->n_axes[d])
            continue;
        if (most_grains(t, d) % members == 0)
            return d;
        longest = longest < 0 || most_grains(t, d) > most_grains(t, longest) ? d : longest;
    }
    return longest < 0 ? 0 : longest;
}

wf_dtype wf_move_dtype(const wf_move_step *step, const wf_tensor *t, const wf_layout *layout)
{
    const bool rounds = step->kind == WF_REDUCE_SCATTER && step->reduction == WF_REDUCE_SUM &&
                        t->dtype == WF_F32 && t->rounds_to == WF_BF16 &&
                        !wf_layout_is_partial(layout, -1);

    return rounds ? t->rounds_to : t->dtype;
}

/* Returns whether a step may find or leave t partial: sums of bf16 are taken as floats and
   rounded once for each axis. */
static bool may_be_partial(const wf_tensor *t, const wf_move_step *step)
{
    bool reduces = step->kind == WF_ALL_REDUCE || step->kind == WF_REDUCE_SCATTER;

    if (!reduces && step->kind != WF_MOVE_PARTIAL)
        return true;
    return t->dtype == WF_F32 ||
           (wf_dtype_is_narrow(t->dtype) && reduces && step->reduction == WF_REDUCE_SUM);
}

/* Returns whether a step moves rows: those of nf4 move as they are, and nothing else of it
   does; of dynamic8, an optimizer's state, nothing does. */
static bool moves_rows(const wf_tensor *t, const wf_move_step *step)
{
    if (wf_dtype_is_dynamic8(t->dtype))
        return false;
    return t->dtype != WF_NF4 || (step->kind == WF_ALL_GATHER && step->from_dim == 0) ||
           (step->kind == WF_MOVE_SLICE && step->dim == 0);
}

wf_status wf_move_check(const wf_move_step *step, const wf_tensor *t)
{
    if (!may_be_partial(t, step))
        return wf_fail(
            t->ctx, WF_EDTYPE,
            "redistribute: a partial tensor is f32, or a sum of bf16, this one is %s",
            wf_dtype_name(t->dtype));
    if (!moves_rows(t, step))
        return wf_fail(t->ctx, WF_ELAYOUT,
                       "redistribute: of nf4 whole rows are gathered or kept, and no columns, "
                       "and nothing of dynamic8: cast it first (wf_cast)");
    return WF_OK;
}
