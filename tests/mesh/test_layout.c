/*
 * tests/mesh/test_layout.c - layouts: where they cut, how they are compared, printed and read,
 * and what cannot be one.
 */
#include "core/numerics/bits.h"
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

/* A layout and its text, or a text of what is wrong with it. */
static wf_status reads(wf_rank *rank, const wf_layout *layout, const char *text)
{
    char is[128];

    if (strcmp(wf_layout_print(layout, is, sizeof is), text) != 0)
        return wf_error_set(&rank->error, WF_EINTERNAL, "'%s' instead of '%s'", is, text);
    return WF_OK;
}

static wf_status print(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *ab = wf_layout_split(mesh, a, 0, 1);
    const wf_layout *sum_a = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    char small[8];

    (void)arg;
    GOOD(reads(rank, NULL, "whole"));
    GOOD(reads(rank, a, "[a]"));
    GOOD(reads(rank, ab, "[a/b]"));
    GOOD(reads(rank, wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 1), 0, 0), "[b/a]"));
    GOOD(reads(rank, wf_layout_split(mesh, a, 2, 1), "[a, *, b]"));
    GOOD(reads(rank, wf_layout_split(mesh, NULL, 5, 0), "[*, *, *, *, *, a]"));
    GOOD(reads(rank, sum_a, "partial(a)"));
    GOOD(
        reads(rank, wf_layout_partial(mesh, sum_a, 1, WF_REDUCE_SUM), "partial(a) partial(b)"));
    GOOD(reads(rank, wf_layout_partial(mesh, a, 1, WF_REDUCE_SUM), "[a] partial(b)"));
    GOOD(reads(rank, wf_layout_partial(mesh, a, 1, WF_REDUCE_MAX), "[a] max(b)"));
    GOOD(reads(rank, wf_layout_partial(mesh, NULL, 1, WF_REDUCE_MAX), "max(b)"));
    for (size_t size = 1; size <= sizeof small; size++) {
        memset(small, 'x', sizeof small);
        wf_layout_print(ab, small, size);
        NEED(strncmp(small, "[a/b]", size - 1) == 0 && memchr(small, 0, size));
        NEED(size == sizeof small || small[size] == 'x');
    }
    return WF_OK;
}

/* A printed layout is read again; a text that is no layout is reported with the position. */
static wf_status parse(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const struct {
        const char *text, *words;
        wf_status status;
    } wrong[] = {
        {"", "", WF_OK},
        {"[x]", "there is no axis of the mesh at character 2", WF_EINVAL},
        {"[a, x]", "at character 5; ", WF_EINVAL},
        {"[a/]", "there is no axis of the mesh at character 4", WF_EINVAL},
        {"[a", "a ']' is missing at character 3", WF_EINVAL},
        {"[a b]", "a ']' is missing", WF_EINVAL},
        {"[a] partial(b", "a ')' is missing", WF_EINVAL},
        {"[a] partial(a)", "is partial that splits a dim already", WF_EINVAL},
        {"[a] whole", "there is something else at character 5", WF_EINVAL},
        {"[*, *, *, *, *, *, a]", "a dim too many", WF_EINVAL},
        {"[a, a]", "axis a cannot split dim 1", WF_ELAYOUT},
        {"partial(a) max(b)", "partial as a sum over one axis", WF_ELAYOUT},
    };
    const wf_layout *all[MAX_LAYOUTS], *layout;
    int n = all_layouts(mesh, 3, true, all);
    char text[128];

    (void)arg;
    for (int i = 0; i < n; i++) {
        GOOD(wf_layout_parse(mesh, wf_layout_print(all[i], text, sizeof text), &layout));
        if (layout != all[i])
            return wf_error_set(&rank->error, WF_EINTERNAL, "'%s' is read as another", text);
    }
    GOOD(wf_layout_parse(mesh, " [ b / a ,*, c ]  partial( c ) ", &layout));
    NEED(layout == wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 1), 0, 0));
    GOOD(wf_layout_parse(mesh, "[] max(b)", &layout));
    NEED(layout == wf_layout_partial(mesh, NULL, 1, WF_REDUCE_MAX));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        NEED(wf_layout_parse(mesh, wrong[i].text, &layout) == wrong[i].status && !layout);
        if (!strstr(wf_context_error(mesh->ctx)->text, wrong[i].words))
            return wf_error_set(&rank->error, WF_EINTERNAL, "'%s' does not say '%s'",
                                wf_context_error(mesh->ctx)->text, wrong[i].words);
        wf_context_clear(mesh->ctx);
    }
    return WF_OK;
}

/* Layouts that mean the same are one pointer, whichever way they were made. */
static wf_status interned(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *b = wf_layout_split(mesh, NULL, 1, 1);
    const wf_layout *both = wf_layout_split(mesh, a, 1, 1);
    const wf_layout *all[MAX_LAYOUTS];
    char text[2][128];
    int n = all_layouts(mesh, 3, true, all);

    (void)arg;
    NEED(a && b && both && a != b);
    NEED(wf_layout_split(mesh, b, 0, 0) == both);
    NEED(wf_layout_whole(mesh, both, 1) == a && wf_layout_whole(mesh, both, 0) == b);
    NEED(wf_layout_whole(mesh, a, 0) == NULL && wf_layout_whole(mesh, a, 1) == a);
    NEED(wf_layout_split(mesh, a, 1, 2) == a); /* an axis of one rank */
    NEED(wf_layout_partial(mesh, a, 2, WF_REDUCE_SUM) == a);
    NEED(wf_layout_whole(mesh, a, -1) == a);
    NEED(wf_layout_whole(mesh, wf_layout_partial(mesh, both, 1, WF_REDUCE_SUM), 1) == a);
    NEED(wf_layout_partial(mesh, both, 1, WF_REDUCE_SUM) ==
         wf_layout_partial(mesh, a, 1, WF_REDUCE_SUM));
    NEED(n == 37); /* two axes, three dims; 1 + 2 * 5 + 12 splits + 12 mixed + 2 partials */
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            NEED(strcmp(wf_layout_print(all[i], text[0], sizeof text[0]),
                        wf_layout_print(all[j], text[1], sizeof text[1])) != 0);
    return WF_OK;
}

static wf_status dual(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 2, true, all);

    (void)arg;
    for (int i = 0; i < n; i++) {
        const wf_layout *d = wf_layout_dual(mesh, all[i]);

        NEED(!wf_layout_is_partial(d, -1) && wf_layout_dual(mesh, d) == d);
        NEED(wf_layout_is_partial(all[i], -1) || d == all[i]);
        for (int axis = 0; axis < mesh->n_axes; axis++)
            NEED(wf_layout_split_dim(d, axis) == wf_layout_split_dim(all[i], axis));
    }
    return WF_OK;
}

static wf_status wrong(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *sum = wf_layout_partial(mesh, NULL, 1, WF_REDUCE_SUM);

    (void)arg;
    NEED(wf_layout_split(mesh, a, 1, 0) == a);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT, "axis a cannot split dim 1"));
    NEED(wf_layout_split(mesh, a, 0, 0) == a);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT, "axis a cannot split dim 0"));
    NEED(wf_layout_split(mesh, sum, 0, 1) == sum);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT, "be partial already"));
    NEED(wf_layout_split(mesh, a, -1, 1) == a);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT, "the dim must exist"));
    NEED(wf_layout_split(mesh, a, WF_MAX_DIMS, 1) == a);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT, "the dim must exist"));
    NEED(wf_layout_partial(mesh, sum, 0, WF_REDUCE_MAX) == sum);
    GOOD(refused(rank, mesh->ctx, NULL, WF_ELAYOUT,
                 "a sum over one axis and as a maximum over another"));
    return WF_OK;
}

static void making_layouts(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = print});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 1}, .body = interned});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 1}, .body = parse});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = dual});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = wrong});
}

/* The parts of the ranks, in the order of the axes that split the dim, lie end to end. */
static wf_status covers(wf_rank *rank, wf_mesh *mesh, const wf_layout *layout,
                        const wf_dim *dim)
{
    int parts = 1, n_axes = layout ? layout->n_axes[0] : 0;
    int64_t at = 0;

    for (int i = 0; i < n_axes; i++)
        parts *= mesh->size[layout->axis[0][i]];
    for (int part = 0; part < parts; part++) {
        int64_t end = at;

        for (int r = 0; r < mesh->ranks; r++) {
            int index = 0;
            int64_t start, local;

            for (int i = 0; i < n_axes; i++)
                index = index * mesh->size[layout->axis[0][i]] +
                        wf_mesh_coordinate_of(mesh, r, layout->axis[0][i]);
            wf_layout_part(mesh, layout, 0, dim, r, &start, &local);
            if (index != part)
                continue;
            NEED(start == at && local >= 0);
            NEED(local % dim->grain == 0);
            end = start + local;
        }
        at = end;
    }
    NEED(at == dim->size);
    return WF_OK;
}

static int64_t largest(const wf_mesh *mesh, const wf_layout *layout, const wf_dim *dim)
{
    int64_t most = 0, start, local;

    for (int r = 0; r < wf_mesh_ranks(mesh); r++) {
        wf_layout_part(mesh, layout, 0, dim, r, &start, &local);
        most = local > most ? local : most;
    }
    return most;
}

static wf_status cuts(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 1, true, all);

    (void)arg;
    for (int i = 0; i < n; i++)
        for (int64_t k = 0; k < 40; k++) {
            int64_t grain = 1 + (int64_t)(wf_mix64((uint64_t)k) % 5);
            wf_dim dim = {k * grain, grain, WF_CHUNKS_8};

            GOOD(covers(rank, mesh, all[i], &dim));
        }
    return WF_OK;
}

/* With cuts between grains, and with one axis that cuts anywhere. */
static wf_status largest_parts(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 1, true, all);

    (void)arg;
    for (int fine = 0; fine < 2; fine++) {
        for (int i = 0; i < n; i++)
            for (int64_t k = 0; k < 40; k++) {
                int64_t grain = 1 + k % 5;
                wf_dim dim = {k * grain, grain, WF_CHUNKS_8};

                NEED(wf_layout_largest_part(mesh, all[i], 0, &dim) ==
                     largest(mesh, all[i], &dim));
            }
        wf_mesh_cut_finely(mesh, 1);
    }
    return WF_OK;
}

/* By hand: a and b cut 8 in 6 pieces, whichever is first; which rank has which differs. */
static wf_status order_matters(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const int64_t cut[] = {0, 1, 2, 4, 5, 6, 8};
    const wf_layout *ab = wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 0), 0, 1);
    const wf_layout *ba = wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 1), 0, 0);
    const wf_dim dim = wf_dim_chunked(8);

    (void)arg;
    NEED(ab != ba);
    for (int r = 0; r < 6; r++) {
        int a = wf_mesh_coordinate_of(mesh, r, 0), b = wf_mesh_coordinate_of(mesh, r, 1);
        int64_t start, local;

        NEED(a == r / 3 && b == r % 3);
        wf_layout_part(mesh, ab, 0, &dim, r, &start, &local);
        NEED(start == cut[a * 3 + b] && start + local == cut[a * 3 + b + 1]);
        wf_layout_part(mesh, ba, 0, &dim, r, &start, &local);
        NEED(start == cut[b * 2 + a] && start + local == cut[b * 2 + a + 1]);
    }
    return WF_OK;
}

/* Axes that split a dim together have the cuts of one axis with as many parts as all of them,
   in the order of the list; those of its beginning are among them. */
static wf_status cut_as_one(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 1, false, all);

    (void)arg;
    for (int i = 0; i < n; i++)
        for (int64_t size = 0; size < 40; size++)
            for (int r = 0; r < wf_mesh_ranks(mesh); r++) {
                const wf_dim dim = wf_dim_heads(size, 3);
                int64_t parts = 1, part = 0, start, local;

                for (int a = 0; all[i] && a < all[i]->n_axes[0]; a++) {
                    int axis = all[i]->axis[0][a];

                    parts *= wf_mesh_size(mesh, axis);
                    part =
                        part * wf_mesh_size(mesh, axis) + wf_mesh_coordinate_of(mesh, r, axis);
                }
                wf_layout_part(mesh, all[i], 0, &dim, r, &start, &local);
                NEED(start == wf_cut(3 * size, 3, parts, part));
                NEED(start + local == wf_cut(3 * size, 3, parts, part + 1));
            }
    return WF_OK;
}

/* Behind a fine axis nothing keeps to grains, and every element is somewhere. */
static wf_status cut_after_fine(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *ab = wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 0), 0, 1);
    const wf_layout *ba = wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 1), 0, 0);
    const wf_dim dim = wf_dim_heads(5, 4);

    (void)arg;
    wf_mesh_cut_finely(mesh, 1);
    for (int r = 0; r < 8; r++) {
        int a = r / 4, b = r % 4;
        int64_t start, local, half = wf_cut(20, 4, 2, a);

        wf_layout_part(mesh, ab, 0, &dim, r, &start, &local);
        NEED(start == half + wf_cut(a ? 12 : 8, 1, 4, b));
        NEED(start + local == half + wf_cut(a ? 12 : 8, 1, 4, b + 1));
        wf_layout_part(mesh, ba, 0, &dim, r, &start, &local);
        NEED(start == wf_cut(20, 1, 8, b * 2 + a));
        NEED(start + local == wf_cut(20, 1, 8, b * 2 + a + 1));
    }
    return WF_OK;
}

/* Returns true where each rank's query heads use its own groups, and no other rank's do. */
static bool use_their_own(const wf_mesh *mesh, const wf_tensor *q, const wf_tensor *k)
{
    int64_t heads = q->dim[2].size, groups = k->dim[2].size;
    bool own = groups > 0 && heads % groups == 0;

    for (int r = 0; r < wf_mesh_ranks(mesh) && own; r++) {
        int64_t h, h_n, g, g_n;

        wf_layout_part(mesh, q->layout, 2, &q->dim[2], r, &h, &h_n);
        wf_layout_part(mesh, k->layout, 2, &k->dim[2], r, &g, &g_n);
        for (int64_t i = 0; i < heads; i++) {
            int64_t group = i / (heads / groups);

            own = own && (i >= h && i < h + h_n) == (group >= g && group < g + g_n);
        }
    }
    return own;
}

/* Heads and groups in all layouts: parts that are empty, axes of one and not of the other, and
   in other orders. */
static wf_status groups_of_heads(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[] = {NULL, wf_layout_split(mesh, NULL, 2, 0),
                              wf_layout_split(mesh, NULL, 2, 1),
                              wf_layout_split(mesh, wf_layout_split(mesh, NULL, 2, 0), 2, 1),
                              wf_layout_split(mesh, wf_layout_split(mesh, NULL, 2, 1), 2, 0)};
    enum { LAYOUTS = sizeof all / sizeof *all, HEADS = 6 };
    wf_tensor q = {.ctx = mesh->ctx}, k = q;

    (void)arg;
    for (int i = 0; i < LAYOUTS * LAYOUTS; i++)
        for (int j = 0; j < 2 * HEADS * (HEADS + 1); j++) {
            int64_t heads = 1 + j / 2 % HEADS, groups = j / (2 * HEADS);

            q.layout = all[i / LAYOUTS];
            k.layout = all[i % LAYOUTS];
            k.dim[2] = wf_dim_heads(groups, 1);
            q.dim[2] = wf_dim_heads(heads, 1);
            if (j % 2 && groups > 0 && heads % groups == 0)
                q.dim[2] = wf_dim_heads(groups, heads / groups); /* groups stay together */
            NEED(wf_layout_groups_agree(&q, &k) == use_their_own(mesh, &q, &k));
        }
    return WF_OK;
}

static void heads(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = groups_of_heads});
    on_mesh((mesh_test){.n_axes = 2, .size = {3, 3}, .body = groups_of_heads});
}

static void cutting(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 4}, .body = cut_as_one});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 3, 2}, .body = cut_as_one});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 4}, .body = cut_after_fine});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = order_matters});
    on_mesh((mesh_test){.n_axes = 1, .size = {5}, .body = cuts});
    on_mesh((mesh_test){.n_axes = 2, .size = {3, 2}, .body = cuts});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 3}, .body = cuts});
    on_mesh((mesh_test){.n_axes = 2, .size = {3, 2}, .body = largest_parts});
}

int main(void)
{
    static const wf_test tests[] = {{"layouts are made, printed, read and one", making_layouts},
                                    {"parts lie end to end", cutting},
                                    {"query heads and their groups", heads},
                                    {NULL, NULL}};

    return wf_test_main("layout", tests);
}
