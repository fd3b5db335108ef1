/* parallel/checkpoint/parts.c - parts of tensors on a saved mesh; see the header. */
#include "parallel/checkpoint/parts_internal.h"
#include "core/numerics/tree.h"
#include <stdio.h>
#include <string.h>

wf_saved_mesh wf_saved_mesh_of(const wf_mesh *mesh)
{
    wf_saved_mesh saved = {.n_axes = wf_mesh_axes(mesh)};

    for (int a = 0; a < saved.n_axes; a++) {
        snprintf(saved.name[a], sizeof saved.name[a], "%s", wf_mesh_axis_name(mesh, a));
        saved.size[a] = wf_mesh_size(mesh, a);
        saved.fine[a] = wf_mesh_cuts_finely(mesh, a);
    }
    return saved;
}

int wf_saved_mesh_pp(const wf_saved_mesh *mesh)
{
    for (int a = 0; a < mesh->n_axes; a++)
        if (strcmp(mesh->name[a], "pp") == 0)
            return a;
    return -1;
}

wf_saved_layout wf_saved_layout_of(const wf_layout *layout, int pp)
{
    wf_saved_layout saved = {.n_axes = {0}, .pp = pp};

    for (int d = 0; d < WF_MAX_DIMS; d++)
        saved.n_axes[d] = wf_layout_dim_axes(layout, d, saved.axis[d]);
    return saved;
}

int64_t wf_saved_mesh_ranks(const wf_saved_mesh *mesh)
{
    return wf_grid_ranks(mesh->n_axes, mesh->size);
}

void wf_saved_mesh_coordinates(const wf_saved_mesh *mesh, int64_t rank, int *coordinate)
{
    wf_grid_coordinates(mesh->n_axes, mesh->size, rank, coordinate);
}

int64_t wf_saved_mesh_rank(const wf_saved_mesh *mesh, const int *coordinate)
{
    return wf_grid_rank(mesh->n_axes, mesh->size, coordinate);
}

/* Returns wf_cut_together as before format 2 of the index: each axis cuts what the one before
   it left. */
static int64_t cut_in_turn(const wf_dim *dim, int n, const wf_cutter *axis)
{
    int64_t start = 0, local = dim->size;

    for (int i = 0; i < n; i++) {
        int64_t grain = axis[i].fine ? 1 : dim->grain;
        int64_t from = wf_cut(local, grain, axis[i].parts, axis[i].index);

        if (axis[i].index < axis[i].parts)
            local = wf_cut(local, grain, axis[i].parts, axis[i].index + 1) - from;
        start += from;
    }
    return start;
}

/* Returns where a part of dim d begins that the first n axes cut: at index `last` of the last
   of them, and at these coordinates of those before it. */
static int64_t cut_at(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int d, int n,
                      const wf_dim *dim, const int *coordinate, int64_t last)
{
    wf_cutter cutter[WF_MAX_AXES];

    for (int i = 0; i < n; i++) {
        int axis = layout->axis[d][i];

        cutter[i] = (wf_cutter){.parts = mesh->size[axis],
                                .index = i == n - 1 ? last : coordinate[axis],
                                .fine = mesh->fine[axis]};
    }
    return mesh->nested ? cut_in_turn(dim, n, cutter) : wf_cut_together(dim, n, cutter);
}

/* [start, start + local) of a dim that is cut by all of its axes. */
static void cut_dim(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int d,
                    const wf_dim *dim, const int *coordinate, int64_t *start, int64_t *local)
{
    int n = layout->n_axes[d], index = n ? coordinate[layout->axis[d][n - 1]] : 0;

    *start = 0;
    *local = dim->size;
    if (n) {
        *start = cut_at(mesh, layout, d, n, dim, coordinate, index);
        *local = cut_at(mesh, layout, d, n, dim, coordinate, index + 1) - *start;
    }
}

wf_part wf_saved_part(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                      const wf_dim *dims, const int *coordinate)
{
    wf_part part = {.ndim = ndim};

    for (int d = 0; d < ndim; d++)
        cut_dim(mesh, layout, d, &dims[d], coordinate, &part.start[d], &part.local[d]);
    return part;
}

bool wf_saved_same_parts(const wf_saved_mesh *a, const wf_saved_mesh *b,
                         const wf_saved_layout *layout, int ndim, const wf_dim *dims)
{
    bool same = true;

    for (int64_t r = 0; same && r < wf_saved_mesh_ranks(a); r++) {
        int at[WF_MAX_AXES];
        wf_part x, y;

        wf_saved_mesh_coordinates(a, r, at);
        x = wf_saved_part(a, layout, ndim, dims, at);
        y = wf_saved_part(b, layout, ndim, dims, at);
        same = memcmp(&x, &y, sizeof x) == 0;
    }
    return same;
}

int64_t wf_saved_writer(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                        int64_t number, int *coordinate)
{
    bool settled[WF_MAX_AXES] = {false};
    int pp = layout->pp < 0 ? -1 : wf_saved_mesh_pp(mesh);

    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < layout->n_axes[d]; i++)
            settled[layout->axis[d][i]] = true;
    if (pp >= 0 && !settled[pp]) {
        coordinate[pp] = layout->pp;
        settled[pp] = true;
    }
    for (int a = mesh->n_axes - 1; a >= 0; a--)
        if (!settled[a]) {
            coordinate[a] = (int)(number % mesh->size[a]);
            number /= mesh->size[a];
        }
    return wf_saved_mesh_rank(mesh, coordinate);
}

/* A walk over the axes that split a tensor, dim by dim. */
typedef struct walk {
    const wf_saved_mesh *mesh;
    const wf_saved_layout *layout;
    int ndim;
    const wf_dim *dims;
    const wf_part *mine;
    wf_status (*visit)(void *arg, const int *coordinate, const wf_part *part);
    void *arg;
    int coordinate[WF_MAX_AXES];
} walk;

/* Returns where part c along axis number i of dim d begins. */
static int64_t begin_of(const walk *w, int d, int i, int64_t c)
{
    return cut_at(w->mesh, w->layout, d, i + 1, &w->dims[d], w->coordinate, c);
}

/* Returns the first part along that axis which ends after the beginning of mine. */
static int first_after(const walk *w, int d, int i)
{
    int low = 0, high = w->mesh->size[w->layout->axis[d][i]];

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (begin_of(w, d, i, middle + 1) > w->mine->start[d])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Axis number i of dim d, and those after it. */
static wf_status walk_on(walk *w, int d, int i)
{
    wf_status status = WF_OK;
    int axis;

    if (d == w->ndim) {
        wf_part part = wf_saved_part(w->mesh, w->layout, w->ndim, w->dims, w->coordinate);

        return w->visit(w->arg, w->coordinate, &part);
    }
    if (i == w->layout->n_axes[d])
        return walk_on(w, d + 1, 0);
    axis = w->layout->axis[d][i];
    for (int c = first_after(w, d, i); c < w->mesh->size[axis] && status == WF_OK; c++) {
        int64_t begin = begin_of(w, d, i, c);

        if (begin >= w->mine->start[d] + w->mine->local[d])
            break;
        w->coordinate[axis] = c;
        if (begin_of(w, d, i, c + 1) > begin) /* not empty */
            status = walk_on(w, d, i + 1);
    }
    w->coordinate[axis] = 0;
    return status;
}

wf_status wf_saved_parts_visit(const wf_saved_mesh *mesh, const wf_saved_layout *layout,
                               int ndim, const wf_dim *dims, const wf_part *mine,
                               wf_status (*visit)(void *arg, const int *coordinate,
                                                  const wf_part *part),
                               void *arg)
{
    walk w = {.mesh = mesh,
              .layout = layout,
              .ndim = ndim,
              .dims = dims,
              .mine = mine,
              .visit = visit,
              .arg = arg};

    return wf_part_count(mine) ? walk_on(&w, 0, 0) : WF_OK;
}
