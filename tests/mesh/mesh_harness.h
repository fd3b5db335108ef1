/*
 * tests/mesh/mesh_harness.h - what the tests of meshes share: ranks with a context and a mesh,
 * the list of all layouts, and where a local element lies in the whole.
 */
#ifndef WF_TESTS_MESH_MESH_HARNESS_H
#define WF_TESTS_MESH_MESH_HARNESS_H

#include "kernels/devices.h"
#include "mesh/private.h"
#include "tests/mesh/ranks.h"
#include <inttypes.h>

enum { MAX_LAYOUTS = 64 };

typedef struct mesh_test {
    int n_axes, size[WF_MAX_AXES];
    bool exact_off;
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
    if (ctx && status == WF_OK && wf_context_status(ctx) != WF_OK)
        status = wf_error_set(&rank->error, wf_context_status(ctx), "%s",
                              wf_context_error(ctx)->text);
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

/* The context's error becomes the rank's. */
static inline wf_status give_up(wf_rank *rank, const wf_context *ctx)
{
    return wf_error_set(&rank->error, wf_context_status(ctx), "%s",
                        wf_context_error(ctx)->text);
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

#endif
