/* parallel/checkpoint/parts.c - parts of tensors on a saved mesh; see the header. */
#include "parallel/checkpoint/parts.h"
#include "core/tree.h"
#include "mesh/private.h"
#include <string.h>

wf_saved_mesh wf_saved_mesh_of(const wf_mesh *mesh)
{
    wf_saved_mesh saved = {.n_axes = wf_mesh_axes(mesh)};

    for (int a = 0; a < saved.n_axes; a++) {
        memcpy(saved.name[a], mesh->name[a], sizeof saved.name[a]);
        saved.size[a] = mesh->size[a];
        saved.fine[a] = mesh->fine >> a & 1;
    }
    return saved;
}

wf_saved_layout wf_saved_layout_of(const wf_layout *layout)
{
    wf_saved_layout saved = {.n_axes = {0}};

    for (int d = 0; layout && d < WF_MAX_DIMS; d++) {
        saved.n_axes[d] = layout->n_axes[d];
        for (int i = 0; i < layout->n_axes[d]; i++)
            saved.axis[d][i] = layout->axis[d][i];
    }
    return saved;
}

int64_t wf_part_count(const wf_part *part)
{
    int64_t n = 1;

    for (int d = 0; d < part->ndim; d++)
        n *= part->local[d];
    return n;
}

wf_part wf_part_of_tensor(const wf_tensor *t)
{
    wf_part part = {.ndim = t->ndim};

    memcpy(part.start, t->start, sizeof part.start);
    memcpy(part.local, t->local, sizeof part.local);
    return part;
}

int64_t wf_part_slab_rows(const wf_part *part)
{
    enum { ELEMENTS = 1 << 16 };
    int64_t row = part->ndim && part->local[0] ? wf_part_count(part) / part->local[0] : 0;

    return row && row < ELEMENTS ? ELEMENTS / row : 1;
}

wf_part wf_part_slab(const wf_part *part, int64_t row, int64_t rows)
{
    wf_part slab = *part;

    if (part->ndim) {
        slab.start[0] += row;
        slab.local[0] = rows < part->local[0] - row ? rows : part->local[0] - row;
    }
    return slab;
}

int64_t wf_saved_mesh_ranks(const wf_saved_mesh *mesh)
{
    int64_t ranks = 1;

    for (int a = 0; a < mesh->n_axes; a++)
        ranks *= mesh->size[a];
    return ranks;
}

void wf_saved_mesh_coordinates(const wf_saved_mesh *mesh, int64_t rank, int *coordinate)
{
    for (int a = mesh->n_axes - 1; a >= 0; a--) {
        coordinate[a] = (int)(rank % mesh->size[a]);
        rank /= mesh->size[a];
    }
}

int64_t wf_saved_mesh_rank(const wf_saved_mesh *mesh, const int *coordinate)
{
    int64_t rank = 0;

    for (int a = 0; a < mesh->n_axes; a++)
        rank = rank * mesh->size[a] + coordinate[a];
    return rank;
}

/* Where an axis cuts n indices of a dim: its part i begins at cut i. */
static int64_t cut_of(const wf_saved_mesh *mesh, int axis, const wf_dim *dim, int64_t n, int i)
{
    return wf_cut(n, mesh->fine[axis] ? 1 : dim->grain, mesh->size[axis], i);
}

/* [start, start + local) of a dim, cut by its first `axes` axes one after another. */
static void cut_dim(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int d, int axes,
                    const wf_dim *dim, const int *coordinate, int64_t *start, int64_t *local)
{
    *start = 0;
    *local = dim->size;
    for (int i = 0; i < axes; i++) {
        int axis = layout->axis[d][i], place = coordinate[axis];
        int64_t from = cut_of(mesh, axis, dim, *local, place);

        *local = cut_of(mesh, axis, dim, *local, place + 1) - from;
        *start += from;
    }
}

wf_part wf_saved_part(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                      const wf_dim *dims, const int *coordinate)
{
    wf_part part = {.ndim = ndim};

    for (int d = 0; d < ndim; d++)
        cut_dim(mesh, layout, d, layout->n_axes[d], &dims[d], coordinate, &part.start[d],
                &part.local[d]);
    return part;
}

int64_t wf_saved_writer(const wf_saved_mesh *mesh, const wf_saved_layout *layout, int ndim,
                        int64_t number, int *coordinate)
{
    bool splits[WF_MAX_AXES] = {false};

    for (int d = 0; d < ndim; d++)
        for (int i = 0; i < layout->n_axes[d]; i++)
            splits[layout->axis[d][i]] = true;
    for (int a = mesh->n_axes - 1; a >= 0; a--)
        if (!splits[a]) {
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

/* The first part along an axis that ends behind `from`, of n indices. */
static int first_behind(const walk *w, int d, int axis, int64_t n, int64_t from)
{
    int low = 0, high = w->mesh->size[axis];

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (cut_of(w->mesh, axis, &w->dims[d], n, middle + 1) > from)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Axis number i of dim d, and those after it. */
static wf_status walk_on(walk *w, int d, int i)
{
    int64_t start, local, from, to;
    wf_status status = WF_OK;
    int axis;

    if (d == w->ndim) {
        wf_part part = wf_saved_part(w->mesh, w->layout, w->ndim, w->dims, w->coordinate);

        return w->visit(w->arg, w->coordinate, &part);
    }
    if (i == w->layout->n_axes[d])
        return walk_on(w, d + 1, 0);
    axis = w->layout->axis[d][i];
    cut_dim(w->mesh, w->layout, d, i, &w->dims[d], w->coordinate, &start, &local);
    from = w->mine->start[d] - start;
    to = from + w->mine->local[d];
    for (int c = first_behind(w, d, axis, local, from);
         c < w->mesh->size[axis] && status == WF_OK; c++) {
        int64_t begin = cut_of(w->mesh, axis, &w->dims[d], local, c);

        if (begin >= to)
            break;
        w->coordinate[axis] = c;
        if (cut_of(w->mesh, axis, &w->dims[d], local, c + 1) > begin) /* not empty */
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

/* Where an element of the whole lies in a part. */
static int64_t place_in(const wf_part *part, const int64_t *at)
{
    int64_t place = 0;

    for (int d = 0; d < part->ndim; d++)
        place = place * part->local[d] + at[d] - part->start[d];
    return place;
}

wf_status wf_part_runs(const wf_part *a, const wf_part *b,
                       wf_status (*run)(void *arg, int64_t at_a, int64_t at_b, int64_t n),
                       void *arg)
{
    int64_t from[WF_MAX_DIMS], to[WF_MAX_DIMS], at[WF_MAX_DIMS], n = 1;
    int outer = a->ndim; /* dims [outer, ndim) make up one run */

    for (int d = 0; d < a->ndim; d++) {
        int64_t end_a = a->start[d] + a->local[d], end_b = b->start[d] + b->local[d];

        at[d] = from[d] = a->start[d] > b->start[d] ? a->start[d] : b->start[d];
        to[d] = end_a < end_b ? end_a : end_b;
        if (from[d] >= to[d])
            return WF_OK;
    }
    while (outer > 0) {
        int64_t common = to[outer - 1] - from[outer - 1];
        bool all = common == a->local[outer - 1] && common == b->local[outer - 1];

        n *= common;
        outer--;
        if (!all)
            break;
    }
    for (;;) {
        wf_status status = run(arg, place_in(a, at), place_in(b, at), n);
        int d = outer - 1;

        if (status != WF_OK)
            return status;
        while (d >= 0 && ++at[d] == to[d]) {
            at[d] = from[d];
            d--;
        }
        if (d < 0)
            return WF_OK;
    }
}

typedef struct target {
    const char *data;
    int64_t element, at;
    const wf_file *file;
    wf_error *error;
} target;

static wf_status write_run(void *arg, int64_t at_part, int64_t at_whole, int64_t n)
{
    const target *t = arg;

    return wf_file_write(t->file, t->data + at_part * t->element, (size_t)(n * t->element),
                         t->at + at_whole * t->element, t->error);
}

wf_status wf_part_write(const wf_part *part, const wf_part *whole, const void *data,
                        int64_t element, const wf_file *file, int64_t at, wf_error *error)
{
    target t = {data, element, at, file, error};

    return wf_part_runs(part, whole, write_run, &t);
}
