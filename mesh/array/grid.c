/* mesh/array/grid.c - coordinates, strides and cuts: see the header. */
#include "mesh/array/grid.h"
#include "core/numerics/tree.h"

int64_t wf_grid_ranks(int n, const int *size)
{
    int64_t ranks = 1;

    for (int i = 0; i < n; i++)
        ranks *= size[i];
    return ranks;
}

int wf_grid_stride(int n, const int *size, int axis)
{
    return (int)wf_grid_ranks(n - axis - 1, size + axis + 1);
}

int wf_grid_coordinate(int n, const int *size, int rank, int axis)
{
    return rank / wf_grid_stride(n, size, axis) % size[axis];
}

int wf_grid_first(int n, const int *size, int rank, int axis)
{
    int stride = wf_grid_stride(n, size, axis);

    return rank - rank / stride % size[axis] * stride;
}

void wf_grid_coordinates(int n, const int *size, int64_t rank, int *coordinate)
{
    for (int i = n - 1; i >= 0; i--) {
        coordinate[i] = (int)(rank % size[i]);
        rank /= size[i];
    }
}

int64_t wf_grid_rank(int n, const int *size, const int *coordinate)
{
    int64_t rank = 0;

    for (int i = 0; i < n; i++)
        rank = rank * size[i] + coordinate[i];
    return rank;
}

/* Returns the number of axes that cut between grains: those before the first fine one. */
static int coarse(const wf_dim *dim, int n, const wf_cutter *axis)
{
    int k = 0;

    while (k < n && (dim->grain == 1 || !axis[k].fine))
        k++;
    return k;
}

/* Returns the number of all parts of these axes; *index: the index of the part that these
   cutters name. */
static int64_t parts_of(int n, const wf_cutter *axis, int64_t *index)
{
    int64_t parts = 1;

    *index = 0;
    for (int i = 0; i < n; i++) {
        parts *= axis[i].parts;
        *index = *index * axis[i].parts + axis[i].index;
    }
    return parts;
}

/* The dim, or the part of it, that the axes from the first fine one on cut: part number `index`
   begins at start + wf_cut(..). */
typedef struct pieces {
    int64_t start, size, grain, parts, index;
} pieces;

static pieces pieces_of(const wf_dim *dim, int n, const wf_cutter *axis)
{
    int k = coarse(dim, n, axis);
    int64_t index, parts = parts_of(k, axis, &index);
    pieces p = {0, dim->size, dim->grain, parts, index};

    if (k == n)
        return p;
    p.start = wf_cut(dim->size, dim->grain, parts, index);
    p.size = wf_cut(dim->size, dim->grain, parts, index + 1) - p.start;
    p.grain = 1;
    p.parts = parts_of(n - k, axis + k, &p.index);
    return p;
}

int64_t wf_cut_together(const wf_dim *dim, int n, const wf_cutter *axis)
{
    pieces p = pieces_of(dim, n, axis);

    return p.start + wf_cut(p.size, p.grain, p.parts, p.index);
}

void wf_cut_along(const wf_dim *dim, int n, const wf_cutter *axis, int64_t *cuts)
{
    pieces p = pieces_of(dim, n, axis);
    int64_t first = p.index - axis[n - 1].index;

    for (int64_t i = 0; i <= axis[n - 1].parts; i++)
        cuts[i] = p.start + wf_cut(p.size, p.grain, p.parts, first + i);
}

/* Returns the largest part. Of p parts of n grains it has ceil(n / p) (core/numerics/tree.h),
   which grows with n: the largest part of fine axes is one of the largest before them. */
int64_t wf_cut_largest(const wf_dim *dim, int n, const wf_cutter *axis)
{
    int k = coarse(dim, n, axis);
    int64_t index, parts = parts_of(k, axis, &index);
    int64_t most = (dim->size / dim->grain + parts - 1) / parts * dim->grain;

    parts = parts_of(n - k, axis + k, &index);
    return (most + parts - 1) / parts;
}
