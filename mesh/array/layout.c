/* mesh/array/layout.c - layouts: ordered axes per dim, and what is partial. */
#include "mesh/array/array_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_layout wf_layout_copy(const wf_mesh *mesh, const wf_layout *from)
{
    wf_layout copy;

    if (from) {
        copy = *from;
    } else {
        memset(&copy, 0, sizeof copy);
        copy.mesh = mesh;
    }
    copy.next = NULL;
    return copy;
}

static bool same(const wf_layout *a, const wf_layout *b)
{
    if (a->sum != b->sum || a->max != b->max)
        return false;
    for (int d = 0; d < WF_MAX_DIMS; d++)
        if (a->n_axes[d] != b->n_axes[d] ||
            memcmp(a->axis[d], b->axis[d], (size_t)a->n_axes[d]) != 0)
            return false;
    return true;
}

int wf_layout_dim_axes(const wf_layout *layout, int dim, int axis[WF_MAX_AXES])
{
    int n = layout && dim >= 0 && dim < WF_MAX_DIMS ? layout->n_axes[dim] : 0;

    for (int i = 0; i < n; i++)
        axis[i] = layout->axis[dim][i];
    return n;
}

unsigned wf_layout_split_axes(const wf_layout *layout)
{
    unsigned axes = 0;

    for (int d = 0; layout && d < WF_MAX_DIMS; d++)
        for (int i = 0; i < layout->n_axes[d]; i++)
            axes |= 1u << layout->axis[d][i];
    return axes;
}

const wf_layout *wf_layout_intern(wf_mesh *mesh, const wf_layout *layout)
{
    wf_layout *copy;

    if (!layout->sum && !layout->max && !wf_layout_split_axes(layout))
        return NULL;
    for (const wf_layout *known = mesh->layouts; known; known = known->next)
        if (same(known, layout))
            return known;
    copy = malloc(sizeof *copy);
    if (!copy) {
        wf_fail(mesh->ctx, WF_ENOMEM, "no memory for a layout");
        return NULL;
    }
    *copy = *layout;
    copy->next = mesh->layouts;
    mesh->layouts = copy;
    return copy;
}

/* Nothing to do for an axis that is not there or has one rank. */
static bool idle(const wf_mesh *mesh, int axis)
{
    return !wf_mesh_has_axis(mesh, axis) || mesh->size[axis] == 1;
}

/* Refuses an axis that the mesh does not have, over which a tensor would silently be whole. */
static bool misspelt(wf_mesh *mesh, int axis)
{
    char axes[256] = "";

    if (!mesh || axis != -1)
        return false;
    for (int a = 0; a < mesh->n_axes; a++)
        snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "%s%s %d", a ? ", " : "",
                 mesh->name[a], mesh->size[a]);
    wf_fail(mesh->ctx, WF_EINVAL,
            "a tensor cannot be laid out over axis -1, which means a name that the mesh does "
            "not have: its axes are %s",
            axes);
    return true;
}

const wf_layout *wf_layout_split(wf_mesh *mesh, const wf_layout *from, int dim, int axis)
{
    wf_layout layout = wf_layout_copy(mesh, from);

    if (misspelt(mesh, axis) || idle(mesh, axis))
        return from;
    if (dim < 0 || dim >= WF_MAX_DIMS || (wf_layout_split_axes(from) >> axis & 1) ||
        wf_layout_is_partial(from, axis)) {
        wf_fail(mesh->ctx, WF_ELAYOUT,
                "axis %s cannot split dim %d: the dim must exist, and the axis must not split "
                "another one or be partial already",
                mesh->name[axis], dim);
        return from;
    }
    layout.axis[dim][layout.n_axes[dim]++] = (int8_t)axis;
    return wf_layout_intern(mesh, &layout);
}

const wf_layout *wf_layout_whole(wf_mesh *mesh, const wf_layout *from, int axis)
{
    wf_layout layout = wf_layout_copy(mesh, from);

    if (idle(mesh, axis) || !from)
        return from;
    layout.sum &= (uint8_t) ~(1u << axis);
    layout.max &= (uint8_t) ~(1u << axis);
    for (int d = 0; d < WF_MAX_DIMS; d++) {
        int kept = 0;

        for (int i = 0; i < layout.n_axes[d]; i++)
            if (layout.axis[d][i] != axis)
                layout.axis[d][kept++] = layout.axis[d][i];
        layout.n_axes[d] = (int8_t)kept;
    }
    return wf_layout_intern(mesh, &layout);
}

const wf_layout *wf_layout_partial(wf_mesh *mesh, const wf_layout *from, int axis,
                                   wf_reduction reduction)
{
    wf_layout layout;

    if (misspelt(mesh, axis) || idle(mesh, axis))
        return from;
    layout = wf_layout_copy(mesh, wf_layout_whole(mesh, from, axis));
    if (reduction == WF_REDUCE_MAX)
        layout.max |= (uint8_t)(1u << axis);
    else
        layout.sum |= (uint8_t)(1u << axis);
    if (layout.sum && layout.max) {
        wf_fail(
            mesh->ctx, WF_ELAYOUT,
            "a layout cannot be partial as a sum over one axis and as a maximum over another "
            "(%s): which comes first would change the value",
            mesh->name[axis]);
        return from;
    }
    return wf_layout_intern(mesh, &layout);
}

const wf_layout *wf_layout_dual(wf_mesh *mesh, const wf_layout *from)
{
    wf_layout layout;

    if (!from || (!from->sum && !from->max))
        return from;
    layout = wf_layout_copy(mesh, from);
    layout.sum = layout.max = 0;
    return wf_layout_intern(mesh, &layout);
}

const wf_layout *wf_layout_resplit(wf_mesh *mesh, const wf_layout *from, int i, int to)
{
    wf_layout layout;

    if (!from || !from->n_axes[i])
        return from;
    layout = wf_layout_copy(mesh, from);
    for (int a = 0; to >= 0 && a < from->n_axes[i]; a++)
        layout.axis[to][layout.n_axes[to]++] = from->axis[i][a];
    layout.n_axes[i] = 0;
    memset(layout.axis[i], 0, sizeof layout.axis[i]);
    return wf_layout_intern(mesh, &layout);
}

int wf_layout_split_dim(const wf_layout *layout, int axis)
{
    for (int d = 0; layout && d < WF_MAX_DIMS; d++)
        for (int i = 0; i < layout->n_axes[d]; i++)
            if (layout->axis[d][i] == axis)
                return d;
    return -1;
}

bool wf_layout_is_partial(const wf_layout *layout, int axis)
{
    unsigned any = layout ? (unsigned)(layout->sum | layout->max) : 0;

    return axis < 0 ? any != 0 : axis < WF_MAX_AXES && (any >> axis & 1);
}

int wf_layout_cutters(const wf_mesh *mesh, const wf_layout *layout, int i, int rank,
                      wf_cutter axis[WF_MAX_AXES])
{
    int n = layout ? layout->n_axes[i] : 0;

    for (int a = 0; a < n; a++) {
        int number = layout->axis[i][a];

        axis[a] = (wf_cutter){.parts = mesh->size[number],
                              .index = wf_mesh_coordinate_of(mesh, rank, number),
                              .fine = mesh->fine >> number & 1};
    }
    return n;
}

void wf_layout_part(const wf_mesh *mesh, const wf_layout *layout, int i, const wf_dim *dim,
                    int rank, int64_t *start, int64_t *local)
{
    wf_cutter axis[WF_MAX_AXES];
    int n = wf_layout_cutters(mesh, layout, i, rank, axis);

    *start = 0;
    *local = dim->size;
    if (n) {
        *start = wf_cut_together(dim, n, axis);
        axis[n - 1].index++;
        *local = wf_cut_together(dim, n, axis) - *start;
    }
}

int64_t wf_layout_largest_part(const wf_mesh *mesh, const wf_layout *layout, int i,
                               const wf_dim *dim)
{
    wf_cutter axis[WF_MAX_AXES];
    int n = wf_layout_cutters(mesh, layout, i, 0, axis);

    return wf_cut_largest(dim, n, axis);
}

int64_t wf_layout_even_parts(const wf_layout *layout, int d, const wf_dim *dim)
{
    int64_t n = 1;

    for (int a = 0; a < layout->n_axes[d]; a++)
        n *= layout->mesh->size[layout->axis[d][a]];
    return dim->size % (dim->grain * n) == 0 ? n : 0;
}

wf_status wf_layout_fits(wf_context *ctx, const wf_layout *layout, int ndim)
{
    char text[192];

    if (!layout)
        return WF_OK;
    if (layout->mesh != wf_mesh_of(ctx))
        return wf_fail(ctx, WF_ELAYOUT, "layout %s belongs to another mesh than the tensor",
                       wf_layout_print(layout, text, sizeof text));
    for (int d = ndim; d < WF_MAX_DIMS; d++)
        if (layout->n_axes[d])
            return wf_fail(ctx, WF_ELAYOUT,
                           "layout %s splits dim %d, but the tensor has %d dims",
                           wf_layout_print(layout, text, sizeof text), d, ndim);
    return WF_OK;
}

/* Append to text, which is cut where it is full. */
static size_t append(char *text, size_t size, size_t n, const char *words)
{
    return n < size ? n + (size_t)snprintf(text + n, size - n, "%s", words) : n;
}

static size_t append_partial(const wf_layout *layout, uint8_t axes, const char *word,
                             char *text, size_t size, size_t n)
{
    for (int a = 0; a < layout->mesh->n_axes; a++)
        if (axes >> a & 1) {
            n = append(text, size, n, n ? " " : "");
            n = append(text, size, n, word);
            n = append(text, size, n, layout->mesh->name[a]);
            n = append(text, size, n, ")");
        }
    return n;
}

static size_t append_dims(const wf_layout *layout, char *text, size_t size)
{
    size_t n = 0;
    int last = -1;

    for (int d = 0; d < WF_MAX_DIMS; d++)
        if (layout->n_axes[d])
            last = d;
    for (int d = 0; d <= last; d++) {
        n = append(text, size, n, d ? ", " : "[");
        for (int i = 0; i < layout->n_axes[d]; i++) {
            n = append(text, size, n, i ? "/" : "");
            n = append(text, size, n, layout->mesh->name[layout->axis[d][i]]);
        }
        n = append(text, size, n, layout->n_axes[d] ? "" : "*");
    }
    return append(text, size, n, last < 0 ? "" : "]");
}

char *wf_layout_print(const wf_layout *layout, char *text, size_t size)
{
    size_t n;

    if (layout) {
        n = append_dims(layout, text, size);
        n = append_partial(layout, layout->sum, "partial(", text, size, n);
        append_partial(layout, layout->max, "max(", text, size, n);
    } else {
        snprintf(text, size, "whole");
    }
    return text;
}
