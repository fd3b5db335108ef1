/* mesh/array/move_step.c - what a step makes of a layout, and which tensors may take it. */
#include "mesh/array/move_internal.h"

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

/* Sums of bf16 are taken as floats and rounded once for each axis. */
static bool may_be_partial(const wf_tensor *t, const wf_move_step *step)
{
    bool reduces = step->kind == WF_ALL_REDUCE || step->kind == WF_REDUCE_SCATTER;

    if (!reduces && step->kind != WF_MOVE_PARTIAL)
        return true;
    return t->dtype == WF_F32 ||
           (t->dtype == WF_BF16 && reduces && step->reduction == WF_REDUCE_SUM);
}

/* Rows of nf4 move as they are, and nothing else of it does; of dynamic8, an optimizer's state,
   nothing does. */
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
