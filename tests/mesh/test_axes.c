/*
 * tests/mesh/test_axes.c - the axes of a mesh, and meshes that cannot be.
 *
 * ctest: builds address thread
 */
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

/* From rank 0, on one of these axes. */
static bool differs(const wf_mesh *mesh, int rank, unsigned axes)
{
    for (int axis = 0; axis < wf_mesh_axes(mesh); axis++)
        if ((axes >> axis & 1) && wf_mesh_coordinate_of(mesh, rank, axis) != 0)
            return true;
    return false;
}

/* The ranks that differ on some axes alone are met in order, once each. */
static wf_status next_ranks(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    (void)arg;
    for (unsigned axes = 0; axes < 8; axes++) {
        int expected = 0;

        for (int r = 0; r >= 0; r = wf_mesh_next(mesh, r, axes)) {
            while (expected < wf_mesh_ranks(mesh) && differs(mesh, expected, ~axes))
                expected++;
            NEED(r == expected);
            expected++;
        }
        while (expected < wf_mesh_ranks(mesh))
            NEED(differs(mesh, expected++, ~axes));
    }
    return WF_OK;
}

static wf_status axes(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    (void)arg;
    NEED(wf_mesh_of(mesh->ctx) == mesh && wf_mesh_ranks(mesh) == 12 && wf_mesh_axes(mesh) == 3);
    NEED(wf_mesh_ranks(NULL) == 1 && wf_mesh_axes(NULL) == 0 && wf_mesh_axis(NULL, "a") == -1);
    NEED(wf_mesh_axis(mesh, "b") == 1 && wf_mesh_axis(mesh, "none") == -1);
    NEED(strcmp(wf_mesh_axis_name(mesh, 2), "c") == 0);
    NEED(wf_mesh_size(mesh, 1) == 2 && wf_mesh_size(mesh, -1) == 1);
    NEED(wf_mesh_coordinate(mesh, -1) == 0 && wf_mesh_world(mesh) == rank->world);
    NEED(rank->index == (wf_mesh_coordinate(mesh, 0) * 2 + wf_mesh_coordinate(mesh, 1)) * 3 +
                            wf_mesh_coordinate(mesh, 2));
    for (int axis = 0; axis < 3; axis++) {
        wf_comm *comm = wf_mesh_comm(mesh, axis);

        NEED(wf_comm_size(comm) == wf_mesh_size(mesh, axis));
        NEED(wf_comm_rank(comm) == wf_mesh_coordinate(mesh, axis));
        for (int m = 0; m < wf_comm_size(comm); m++) /* only this axis changes in its group */
            for (int other = 0; other < 3; other++)
                NEED(wf_mesh_coordinate_of(mesh, wf_comm_world_rank(comm, m), other) ==
                     (other == axis ? m : wf_mesh_coordinate(mesh, other)));
    }
    return WF_OK;
}

/* A number that is none of an axis is an error wherever it is asked about, and never
   followed. */
static wf_status axes_beyond(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const int none[] = {3, 7, 8, 40, INT32_MAX, -2, INT32_MIN};
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);
    const char *words = "the mesh has 3 axes, numbered from 0 on, and";
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        int axis = none[i];
        wf_tensor *x, *y = NULL;

        NEED(wf_layout_split(mesh, a0, 1, axis) == a0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_layout_partial(mesh, a0, axis, WF_REDUCE_SUM) == a0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_layout_whole(mesh, a0, axis) == a0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_mesh_size(mesh, axis) == 1);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_mesh_coordinate(mesh, axis) == 0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_mesh_coordinate_of(mesh, 11, axis) == 0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_mesh_comm(mesh, axis) == NULL);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(strcmp(wf_mesh_axis_name(mesh, axis), "no axis") == 0);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        wf_mesh_cut_finely(mesh, axis);
        GOOD(refused(rank, ctx, NULL, WF_EINVAL, words));
        NEED(wf_layout_split_dim(a0, axis) == -1);
        NEED(axis < 0 || !wf_layout_is_partial(a0, axis));
        wf_scope_open(ctx);
        x = make_tensor(ctx, WF_F32, 0, shapes[0].ndim, shapes[0].dim, a0);
        NEED(wf_border(axis, 1, &x, &a0, &y) == WF_EINVAL);
        GOOD(refused(rank, ctx, y, WF_EINVAL, words));
        wf_scope_close(ctx);
    }
    NEED(wf_mesh_comm(mesh, -1) == NULL);
    return wf_context_status(ctx);
}

/* A layout over a name that the mesh does not have would be whole: it is an error that lists
   them. */
static wf_status misspelt_axes(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    int axis = wf_mesh_axis(mesh, "tpp");
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);

    (void)arg;
    NEED(axis == -1 && wf_layout_split(NULL, NULL, 1, axis) == NULL);
    NEED(wf_context_status(mesh->ctx) == WF_OK);
    NEED(wf_layout_split(mesh, a0, 1, axis) == a0);
    GOOD(refused(rank, mesh->ctx, NULL, WF_EINVAL, "its axes are a 2, b 3"));
    NEED(wf_layout_partial(mesh, a0, axis, WF_REDUCE_SUM) == a0);
    GOOD(refused(rank, mesh->ctx, NULL, WF_EINVAL, "its axes are a 2, b 3"));
    NEED(wf_layout_whole(mesh, a0, axis) == a0); /* as it is */
    return wf_context_status(mesh->ctx);
}

/* Returns true where all ranks have the same of both dims, one of which counts in units of
   `size`. */
static bool parts_agree(const wf_mesh *mesh, const wf_layout *layout, int64_t size,
                        const wf_dim *elements, const wf_dim *heads)
{
    bool agree = true;

    for (int r = 0; r < wf_mesh_ranks(mesh); r++) {
        int64_t start, local, head, n;

        wf_layout_part(mesh, layout, 1, elements, r, &start, &local);
        wf_layout_part(mesh, layout, 1, heads, r, &head, &n);
        agree &= local == size * n && (local == 0 || start == size * head);
    }
    return agree;
}

/* All ranks see what the whole has there, or all learn the same. */
static wf_status same_answer(wf_rank *rank, wf_mesh *mesh, wf_tensor *y, bool agree)
{
    char said[WF_ERROR_TEXT] = "";
    const char *all;

    if (agree)
        return check_tensor(rank, y, 4, y ? y->layout : NULL, y ? y->layout : NULL);
    NEED(strchr(wf_context_error(mesh->ctx)->text, ':')); /* behind "rank 1" */
    strcpy(said, strchr(wf_context_error(mesh->ctx)->text, ':'));
    GOOD(refused(rank, mesh->ctx, y, WF_ELAYOUT, "redistribute it to be whole on b first"));
    all = wf_mesh_gather(mesh, said, sizeof said);
    NEED(all);
    for (int r = 0; r < wf_mesh_ranks(mesh); r++)
        NEED(strcmp(all + (size_t)r * sizeof said, said) == 0);
    return WF_OK;
}

/* Heads that an axis cuts anywhere are seen as heads where all cuts are between them. */
static wf_status views_of_fine_cuts(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *layout[MAX_LAYOUTS];
    int n = all_layouts(mesh, 2, false, layout), agreed[2] = {0, 0};
    wf_context *ctx = mesh->ctx;

    (void)arg;
    wf_mesh_cut_finely(mesh, 1);
    for (int i = 0; i < n; i++)
        for (int64_t heads = 0; heads < 10; heads++) {
            const wf_dim merged[] = {wf_dim_batch(3), wf_dim_heads(heads, 4)};
            const wf_dim split[] = {merged[0], wf_dim_chunked(heads), wf_dim_width(4)};
            bool agree = parts_agree(mesh, layout[i], 4, &merged[1], &split[1]);

            wf_scope_open(ctx);
            GOOD(same_answer(
                rank, mesh,
                wf_split_heads(make_tensor(ctx, WF_F32, 4, 2, merged, layout[i]), 4), agree));
            GOOD(same_answer(rank, mesh,
                             wf_merge_heads(make_tensor(ctx, WF_F32, 4, 3, split, layout[i])),
                             agree));
            agreed[agree]++;
            wf_scope_close(ctx);
        }
    NEED(agreed[0] > 10 && agreed[1] > 10);
    return wf_context_status(ctx);
}

static void axes_of_a_mesh(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = views_of_fine_cuts});
    on_mesh((mesh_test){.n_axes = 2, .size = {3, 2}, .body = views_of_fine_cuts});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = misspelt_axes});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 3}, .body = axes});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 3}, .body = next_ranks});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 3}, .body = axes_beyond});
}

static wf_status wrong_axes(wf_rank *rank, void *arg)
{
    static const struct {
        int n;
        wf_axis axis[3];
        const char *words;
    } table[] = {
        {0, {{NULL, 0}}, "a mesh has 1 to 8 axes, not 0"},
        {9, {{NULL, 0}}, "a mesh has 1 to 8 axes, not 9"},
        {2, {{"tp", 2}, {"dp", 3}}, "multiply to 6 ranks, but 2 were started"},
        {3, {{"tp", INT32_MAX}, {"dp", INT32_MAX}, {"pp", INT32_MAX}}, "but 2 were started"},
        {2, {{"tp", 2}, {"dp", 0}}, "dp has size 0"},
        {2, {{"tp", 2}, {"tp", 1}}, "two mesh axes are called tp"},
        {1, {{"", 2}}, "1 to 15 letters"},
        {1, {{"an axis with a long name", 2}}, "1 to 15 letters"},
    };
    wf_device *device = wf_cpu_device(1, &rank->error);
    wf_context *ctx = wf_context_open(device, NULL, &rank->error);

    (void)arg;
    NEED(ctx);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wf_error error = {WF_OK, ""};

        NEED(!wf_mesh_open(ctx, rank->world, table[i].n, table[i].axis, &error));
        NEED(error.code == WF_EINVAL && !wf_mesh_of(ctx));
        if (!strstr(error.text, table[i].words))
            return wf_error_set(&rank->error, WF_EINTERNAL, "\"%s\" does not say \"%s\"",
                                error.text, table[i].words);
    }
    wf_context_close(ctx);
    return WF_OK;
}

/* A context has one mesh at a time, and no tensor outlives its own. */
static wf_status one_after_the_other(wf_rank *rank, void *arg)
{
    const wf_axis one = {"tp", 2}, other[] = {{"a", 1}, {"b", 2}};
    const shape *s = &shapes[0];
    wf_device *device = wf_cpu_device(1, &rank->error);
    wf_context *ctx = wf_context_open(device, NULL, &rank->error);
    wf_error error = {WF_OK, ""};
    wf_mesh *mesh, *second;
    wf_tensor *x, *y;

    (void)arg;
    NEED(ctx);
    mesh = wf_mesh_open(ctx, rank->world, 1, &one, &rank->error);
    NEED(mesh);
    NEED(!wf_mesh_open(ctx, rank->world, 2, other, &error));
    NEED(says(&error, WF_EINVAL, "has a mesh of 1 axes already", "close that one first"));
    wf_scope_open(ctx);
    x = make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, wf_layout_split(mesh, NULL, 0, 0));
    y = wf_redistribute(x, NULL);
    GOOD(check_tensor(rank, y, 0, x->layout, NULL));
    wf_mesh_close(mesh);
    GOOD(refused(rank, ctx, wf_silu(x), WF_EINVAL, "over a mesh that is closed"));
    NEED(wf_silu(y));
    wf_scope_close(ctx);
    second = wf_mesh_open(ctx, rank->world, 2, other, &rank->error);
    NEED(second && wf_mesh_of(ctx) == second);
    wf_mesh_close(second);
    wf_context_close(ctx);
    return WF_OK;
}

static void meshes_that_cannot_be(void)
{
    wf_launch_options options = {.ranks = 2};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&options, wrong_axes, NULL, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_launch(&options, one_after_the_other, NULL, &error), WF_OK);
    CU_ASSERT_STRING_EQUAL(error.text, "");
}

int main(void)
{
    static const wf_test tests[] = {{"axes of a mesh", axes_of_a_mesh},
                                    {"meshes that cannot be", meshes_that_cannot_be},
                                    {NULL, NULL}};

    return wf_test_main("axes", tests);
}
