/*
 * mesh/array/distribution.c - what a mesh is to a context: the table by which dispatch asks
 * about layouts (core/distribution.h), and the opening of a mesh, which hands it to the
 * context. It includes all that answers, and nothing of this folder calls back into it.
 */
#include "mesh/array/move_internal.h"

static void part_here(const wf_layout *layout, int i, const wf_dim *dim, int64_t *start,
                      int64_t *local)
{
    wf_layout_part(layout->mesh, layout, i, dim, layout->mesh->rank, start, local);
}

static void print(const wf_layout *layout, char *text, size_t size)
{
    wf_layout_print(layout, text, size);
}

static bool partial(const wf_layout *layout)
{
    return layout->sum || layout->max;
}

static const wf_layout *complete(void *mesh, const wf_layout *layout)
{
    return wf_layout_dual(mesh, layout);
}

static int64_t parts(const wf_layout *layout, int i)
{
    int64_t n = 1;

    for (int a = 0; a < layout->n_axes[i]; a++)
        n *= layout->mesh->size[layout->axis[i][a]];
    return n;
}

static const wf_layout *resplit(void *mesh, const wf_layout *layout, int from, int to)
{
    return wf_layout_resplit(mesh, layout, from, to);
}

/* Returns the axes that a layout splits, or is partial over. */
static unsigned axes_of(const wf_layout *layout)
{
    unsigned axes = layout ? layout->sum | layout->max : 0;

    for (int d = 0; layout && d < WF_MAX_DIMS; d++)
        for (int a = 0; a < layout->n_axes[d]; a++)
            axes |= 1u << layout->axis[d][a];
    return axes;
}

/* Along an axis of ranks that share a model, on which all operands are whole, they all compute
   the whole. */
static double alike(const void *of, const wf_call *call)
{
    const wf_mesh *mesh = of;
    unsigned used = 0;
    double ranks = 1;

    for (int i = 0; i < call->n_in && mesh->sharing; i++)
        used |= axes_of(call->in[i]->layout);
    for (int o = 0; o < call->n_out && mesh->sharing; o++)
        used |= call->out[o] ? axes_of(call->out[o]->layout) : 0;
    for (int a = 0; a < mesh->n_axes; a++)
        ranks *= (mesh->sharing & ~used) >> a & 1 ? mesh->size[a] : 1;
    return ranks;
}

static const wf_distribution distribution = {.rule = wf_layout_rule,
                                             .view = wf_layout_view,
                                             .part = part_here,
                                             .parts = parts,
                                             .resplit = resplit,
                                             .print = print,
                                             .partial = partial,
                                             .complete = complete,
                                             .alike = alike,
                                             .move = wf_move_one,
                                             .gather_later = wf_gather_later};

wf_mesh *wf_mesh_open(wf_context *ctx, wf_comm *world, int n_axes, const wf_axis *axes,
                      wf_error *error)
{
    wf_mesh *mesh = wf_mesh_new(ctx, world, n_axes, axes, error);

    if (mesh)
        wf_distribution_set(ctx, &distribution, mesh);
    return mesh;
}
