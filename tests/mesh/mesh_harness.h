/*
 * tests/mesh/mesh_harness.h - what the tests of meshes share: ranks with a context and a mesh,
 * the list of all layouts, and tensors of which every element is known.
 *
 * Such a tensor is a function of the global index and of the coordinates along the axes over
 * which it is partial (each of those ranks holds another share), so what any rank must hold
 * after any move is computed from the two layouts alone: shares are folded over the axes that
 * stop being partial, the innermost first, each by the midpoint tree.
 */
#ifndef WF_TESTS_MESH_MESH_HARNESS_H
#define WF_TESTS_MESH_MESH_HARNESS_H

#include "core/numerics/bits.h"
#include "kernels/devices.h"
#include "mesh/array/array_internal.h"
#include "tests/mesh/ranks.h"
#include <inttypes.h>

enum { MAX_LAYOUTS = 512 };

typedef struct mesh_test {
    int n_axes, size[WF_MAX_AXES];
    bool exact_off;
    int exact_tp;
    size_t limit_on_rank_1; /* bytes of memory, 0 for no limit */
    wf_status (*body)(wf_rank *rank, wf_mesh *mesh, void *arg);
    void *arg;
} mesh_test;

static const char *const mesh_axis_names[WF_MAX_AXES] = {"a", "b", "c", "d",
                                                         "e", "f", "g", "h"};

static inline wf_status mesh_rank(wf_rank *rank, void *arg)
{
    const mesh_test *test = arg;
    wf_context_options options = {.rank = rank->index,
                                  .exact_off = test->exact_off,
                                  .exact_tp = test->exact_tp,
                                  .memory_limit = rank->index == 1 ? test->limit_on_rank_1 : 0};
    wf_device *device = wf_cpu_device(1, &rank->error);
    wf_context *ctx = device ? wf_context_open(device, &options, &rank->error) : NULL;
    wf_axis axes[WF_MAX_AXES];
    wf_mesh *mesh = NULL;
    wf_status status;

    for (int i = 0; i < test->n_axes; i++)
        axes[i] = (wf_axis){mesh_axis_names[i], test->size[i]};
    if (ctx)
        mesh = wf_mesh_open(ctx, rank->world, test->n_axes, axes, &rank->error);
    status = mesh ? test->body(rank, mesh, test->arg) : rank->error.code;
    if (ctx)
        status = came_to(rank, ctx, status);
    wf_mesh_close(mesh);
    wf_context_close(ctx);
    return status;
}

/* Run a body on every rank of a mesh; it must succeed. */
static inline void on_mesh(mesh_test test)
{
    wf_launch_options options = {.ranks = 1};
    wf_error error = {WF_OK, ""};

    for (int i = 0; i < test.n_axes; i++)
        options.ranks *= test.size[i];
    CU_ASSERT_EQUAL(wf_launch(&options, mesh_rank, &test, &error), WF_OK);
    if (error.code != WF_OK)
        printf("    %s\n", error.text);
}

static inline int add_layout(const wf_layout **list, int n, const wf_layout *layout)
{
    for (int i = 0; i < n; i++)
        if (list[i] == layout)
            return n;
    list[n] = layout;
    return n + 1;
}

/*
 * Every layout of a tensor of ndim dims: from the whole one on, each axis that is still free is
 * added in every way, as the innermost one of a dim or partial. Equal layouts are one pointer.
 */
static inline int all_layouts(wf_mesh *mesh, int ndim, bool partial, const wf_layout **list)
{
    int n = 1;

    list[0] = NULL;
    for (int i = 0; i < n; i++)
        for (int axis = 0; axis < wf_mesh_axes(mesh); axis++) {
            bool is_max = list[i] && list[i]->max, is_sum = list[i] && list[i]->sum;

            if (wf_layout_split_dim(list[i], axis) >= 0 || wf_layout_is_partial(list[i], axis))
                continue;
            for (int d = 0; d < ndim; d++)
                n = add_layout(list, n, wf_layout_split(mesh, list[i], d, axis));
            if (partial && !is_max)
                n = add_layout(list, n, wf_layout_partial(mesh, list[i], axis, WF_REDUCE_SUM));
            if (partial && !is_sum)
                n = add_layout(list, n, wf_layout_partial(mesh, list[i], axis, WF_REDUCE_MAX));
        }
    return n;
}

/* Index in the whole, last dim fastest, of local element e. */
static inline int64_t whole_index(const wf_tensor *t, int64_t e)
{
    int64_t index = 0, stride = 1;

    for (int d = t->ndim - 1; d >= 0; d--) {
        index += (t->start[d] + e % t->local[d]) * stride;
        stride *= t->dim[d].size;
        e /= t->local[d];
    }
    return index;
}

typedef struct shares {
    const wf_mesh *mesh;
    const wf_layout *from, *to;
    int64_t id, index;
    int coordinate[WF_MAX_AXES]; /* 0 where not partial */
} shares;

static inline bool partial_in(const wf_layout *layout, int axis, wf_reduction r)
{
    return layout && ((r == WF_REDUCE_MAX ? layout->max : layout->sum) >> axis & 1);
}

static inline bool folds(const shares *s, int axis, wf_reduction r)
{
    return partial_in(s->from, axis, r) && !partial_in(s->to, axis, r);
}

static inline float fold(shares *s, int axis);

static inline float fold_coordinates(shares *s, int axis, int first, int n)
{
    float a, b;

    if (n == 1) {
        s->coordinate[axis] = first;
        return fold(s, axis + 1);
    }
    a = fold_coordinates(s, axis, first, n / 2);
    b = fold_coordinates(s, axis, first + n / 2, n - n / 2);
    if (folds(s, axis, WF_REDUCE_MAX))
        return a > b ? a : b;
    return a + b;
}

/* Returns the share at the coordinates chosen so far, folded over the axes from this one on. */
static inline float fold(shares *s, int axis)
{
    int member = 0;

    if (axis < s->mesh->n_axes) {
        if (folds(s, axis, WF_REDUCE_SUM) || folds(s, axis, WF_REDUCE_MAX))
            return fold_coordinates(s, axis, 0, s->mesh->size[axis]);
        s->coordinate[axis] =
            wf_layout_is_partial(s->from, axis) ? wf_mesh_coordinate(s->mesh, axis) : 0;
        return fold(s, axis + 1);
    }
    for (int i = 0; i < s->mesh->n_axes; i++)
        member = member * 8 + s->coordinate[i];
    return number(member, s->id, s->index);
}

/* Returns the number that this rank must hold at a global index, in layout `to`, of tensor `id`
   made in `from`. */
static inline float expected(const wf_mesh *mesh, int64_t id, int64_t index,
                             const wf_layout *from, const wf_layout *to)
{
    shares s = {.mesh = mesh, .from = from, .to = to, .id = id, .index = index};

    for (int axis = 0; axis < mesh->n_axes; axis++)
        if (partial_in(to, axis, WF_REDUCE_SUM) && !partial_in(from, axis, WF_REDUCE_SUM) &&
            wf_mesh_coordinate(mesh, axis) > 0)
            return -0.0f; /* the first rank has it all */
    return fold(&s, 0);
}

/* An element of any type that says which one it is; -1 is stored where no test should see it.
 */
static inline void put(wf_dtype dtype, void *data, int64_t e, float value)
{
    if (dtype == WF_F32)
        ((float *)data)[e] = value;
    else if (dtype == WF_F64)
        ((double *)data)[e] = (double)value;
    else if (dtype == WF_BF16)
        ((uint16_t *)data)[e] = (uint16_t)(int64_t)value;
    else
        ((int32_t *)data)[e] = (int32_t)value;
}

static inline wf_tensor *make_tensor(wf_context *ctx, wf_dtype dtype, int64_t id, int ndim,
                                     const wf_dim *dims, const wf_layout *layout)
{
    wf_tensor *t = wf_tensor_new(ctx, dtype, ndim, dims, layout, WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        put(dtype, t->data, e,
            expected(wf_mesh_of(ctx), id, whole_index(t, e), layout, layout));
    return t;
}

static inline wf_status check_tensor(wf_rank *rank, const wf_tensor *y, int64_t id,
                                     const wf_layout *from, const wf_layout *to)
{
    const wf_mesh *mesh;
    size_t size;

    NEED(y && y->layout == to);
    mesh = wf_mesh_of(y->ctx);
    size = wf_dtype_size(y->dtype);
    for (int64_t e = 0; e < wf_tensor_local_count(y); e++) {
        double should = 0;
        char a[128], b[192];

        put(y->dtype, &should, 0, expected(mesh, id, whole_index(y, e), from, to));
        if (memcmp((const char *)y->data + (size_t)e * size, &should, size) != 0)
            return wf_error_set(&rank->error, WF_EINTERNAL,
                                "from %s to %s: element %" PRId64 " of the whole is wrong",
                                wf_layout_print(from, a, sizeof a),
                                wf_tensor_describe(y, b, sizeof b), whole_index(y, e));
    }
    return WF_OK;
}

typedef struct shape {
    int ndim;
    wf_dim dim[3];
} shape;

static const shape shapes[] = {
    {2, {{5, 1, WF_CHUNKS_1}, {7, 1, WF_CHUNKS_8}}},
    {2, {{1, 1, WF_CHUNKS_EACH}, {12, 4, WF_CHUNKS_8}}}, /* empty shards, and heads of 4 */
    {3, {{3, 1, WF_CHUNKS_EACH}, {8, 4, WF_CHUNKS_8}, {5, 1, WF_CHUNKS_1}}},
    {3, {{7, 1, WF_CHUNKS_EACH}, {1, 1, WF_CHUNKS_1}, {10, 1, WF_CHUNKS_8}}},
};

enum { SHAPES = sizeof shapes / sizeof *shapes };

/* The k-th of a series of tensors, moves and orders that look random and are alike everywhere.
 */
static inline int pick(int round, int k, int n)
{
    return (int)(wf_mix64((uint64_t)round * 64 + (uint64_t)k) % (uint64_t)n);
}

static inline size_t in_use(wf_context *ctx)
{
    wf_memory_report report;

    wf_pool_report(wf_context_pool(ctx), &report);
    return report.in_use;
}

/* The call failed here with this code and words; the next one may start afresh. */
static inline wf_status refused(wf_rank *rank, wf_context *ctx, const wf_tensor *y,
                                wf_status code, const char *words)
{
    NEED(!y);
    NEED(wf_context_status(ctx) == code);
    if (!strstr(wf_context_error(ctx)->text, words))
        return wf_error_set(&rank->error, WF_EINTERNAL, "\"%s\" does not say \"%s\"",
                            wf_context_error(ctx)->text, words);
    wf_context_clear(ctx);
    return WF_OK;
}

#endif
