/*
 * tests/mesh/test_redistribute.c - every layout to every other, bit for bit.
 *
 * A tensor here is a function of the global index and of the coordinates along the axes over
 * which it is partial (each of those ranks holds another share), so what any rank must hold
 * after any move is computed from the two layouts alone: shares are folded over the axes that
 * stop being partial, the innermost first, each by the midpoint tree.
 *
 * ctest: builds address thread
 */
#include "core/numerics/bf16.h"
#include "tests/mesh/mesh_harness.h"

static wf_status every_pair_of(wf_rank *rank, wf_mesh *mesh, const shape *s, wf_dtype dtype)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, s->ndim, dtype == WF_F32, all);
    wf_context *ctx = mesh->ctx;

    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            wf_tensor *x, *y;

            wf_scope_open(ctx);
            x = make_tensor(ctx, dtype, i, s->ndim, s->dim, all[i]);
            y = wf_redistribute(x, all[j]);
            if (!y)
                return give_up(rank, ctx);
            NEED(y != x);
            GOOD(check_tensor(rank, y, i, all[i], all[j]));
            GOOD(check_tensor(rank, x, i, all[i], all[i])); /* nothing wrote to the source */
            wf_scope_close(ctx);
            NEED(in_use(ctx) == 0);
        }
    return WF_OK;
}

static wf_status every_pair(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    (void)arg;
    for (int s = 0; s < SHAPES; s++)
        GOOD(every_pair_of(rank, mesh, &shapes[s], WF_F32));
    GOOD(every_pair_of(rank, mesh, &shapes[0], WF_I32));
    GOOD(every_pair_of(rank, mesh, &shapes[2], WF_BF16));
    return every_pair_of(rank, mesh, &shapes[3], WF_F64);
}

static void pairs_on_one_axis(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = every_pair});
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = every_pair});
    if (!UNDER_THREAD_SANITIZER) /* for which two and three are the same */
        on_mesh((mesh_test){.n_axes = 1, .size = {5}, .body = every_pair});
}

static void pairs_on_two_axes(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = every_pair});
    if (!UNDER_THREAD_SANITIZER)
        on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = every_pair});
}

/* Returns true where a move between the two leaves sums that are complete, or partial as they
   were. */
static bool only_sums(const wf_mesh *mesh, const wf_layout *from, const wf_layout *to)
{
    for (int axis = 0; axis < mesh->n_axes; axis++)
        for (int r = WF_REDUCE_SUM; r <= WF_REDUCE_MAX; r++)
            if (partial_in(to, axis, (wf_reduction)r) &&
                !partial_in(from, axis, (wf_reduction)r))
                return false;
    return wf_layout_is_partial(from, -1);
}

/* Every element as check_tensor() wants it, but rounded once where nothing is left to be
   summed. */
static wf_status check_rounded(wf_rank *rank, const wf_tensor *y, const wf_layout *from,
                               const wf_layout *to)
{
    bool sum = wf_layout_is_partial(to, -1);

    NEED(y && y->layout == to && y->dtype == (sum ? WF_F32 : WF_BF16));
    for (int64_t e = 0; e < wf_tensor_local_count(y); e++) {
        float want = expected(wf_mesh_of(y->ctx), 0, whole_index(y, e), from, to);

        if (sum)
            NEED(same_bits(((const float *)y->data)[e], want));
        else
            NEED(((const uint16_t *)y->data)[e] == wf_bf16_of(want));
    }
    return WF_OK;
}

static wf_status rounded_pairs(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const shape cut_apart = {2, {{5, 1, WF_CHUNKS_1}, {3, 1, WF_CHUNKS_1}}};
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int s = 0; s <= SHAPES; s++) {
        const shape *of = s < SHAPES ? &shapes[s] : &cut_apart;
        const wf_layout *all[MAX_LAYOUTS];
        int n = all_layouts(mesh, of->ndim, true, all);

        for (int i = 0; i < n * n; i++) {
            const wf_layout *from = all[i / n], *to = all[i % n];
            wf_tensor *x;

            if (!only_sums(mesh, from, to))
                continue;
            wf_scope_open(ctx);
            x = make_tensor(ctx, WF_F32, 0, of->ndim, of->dim, from);
            x->rounds_to = WF_BF16;
            GOOD(check_rounded(rank, wf_redistribute(x, to), from, to));
            wf_scope_close(ctx);
        }
    }
    return WF_OK;
}

/* Ranks hold different sizes of a dim that one axis cuts unevenly, and must still agree by
   which dim a sum over the other axis is scattered on its way. */
static void rounded_sums(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = rounded_pairs});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = rounded_pairs});
    if (!UNDER_THREAD_SANITIZER)
        on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = rounded_pairs});
}

typedef struct cargo {
    int count;
    wf_tensor *x[8], *y[8];
    const wf_layout *from[8], *to[8];
} cargo;

static void load(cargo *c, wf_mesh *mesh, int round, int count)
{
    static const wf_dtype dtypes[] = {WF_F32, WF_F32, WF_F32, WF_I32, WF_BF16};

    *c = (cargo){.count = count};
    for (int k = 0; k < count; k++) {
        const shape *s = &shapes[pick(round, 3 * k, SHAPES)];
        wf_dtype dtype = dtypes[pick(round, 3 * k + 1, 5)];
        const wf_layout *all[MAX_LAYOUTS];
        int n = all_layouts(mesh, s->ndim, dtype == WF_F32, all);

        c->from[k] = all[pick(round, 3 * k + 2, n)];
        c->to[k] = all[pick(round, 3 * k + 40, n)];
        c->x[k] = make_tensor(mesh->ctx, dtype, k, s->ndim, s->dim, c->from[k]);
    }
}

static wf_status arrived(wf_rank *rank, const cargo *c)
{
    for (int k = 0; k < c->count; k++)
        GOOD(check_tensor(rank, c->y[k], k, c->from[k], c->to[k]));
    return WF_OK;
}

static wf_status many_at_once(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int round = 0; round < 60; round++) {
        cargo c;

        wf_scope_open(ctx);
        load(&c, mesh, round, 1 + round % WF_MAX_OUTPUTS);
        GOOD(wf_redistribute_many(c.count, c.x, c.to, c.y));
        GOOD(arrived(rank, &c));
        GOOD(wf_redistribute_many(c.count, c.x, c.to, c.x)); /* in place of the handles */
        memcpy(c.y, c.x, sizeof c.y);
        GOOD(arrived(rank, &c));
        wf_scope_close(ctx);
    }
    return WF_OK;
}

/* Two moves on their way at once, ended in either order and in a scope further in. */
static wf_status two_in_flight(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int round = 0; round < 60; round++) {
        cargo a, b;
        wf_move *first, *second;

        wf_scope_open(ctx);
        load(&a, mesh, round, pick(round, 60, 9));
        load(&b, mesh, round + 1000, 8);
        first = wf_move_begin(ctx, a.count, a.x, a.to);
        second = wf_move_begin(ctx, b.count, b.x, b.to);
        wf_scope_open(ctx);
        if (round % 2)
            GOOD(wf_move_end(first, a.y));
        GOOD(wf_move_end(second, b.y));
        if (round % 2 == 0)
            GOOD(wf_move_end(first, a.y));
        GOOD(arrived(rank, &a));
        GOOD(arrived(rank, &b));
        wf_scope_close(ctx);
        wf_scope_close(ctx);
        NEED(in_use(ctx) == 0);
    }
    return WF_OK;
}

static void many(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = many_at_once});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = many_at_once});
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 2}, .body = many_at_once});
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = two_in_flight});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = two_in_flight});
}

/* The cost of a move of an 8 x 8 tensor on a mesh of 2 x 2: calls and bytes received, by
   axis. */
typedef struct cost {
    const char *what;
    const wf_layout *from, *to;
    struct {
        int axis;
        wf_collective_kind kind;
        int64_t bytes;
    } paid[3];
    int n_paid;
} cost;

static wf_status pay(wf_rank *rank, wf_mesh *mesh, const cost *c)
{
    const wf_dim dims[] = {wf_dim_width(8), wf_dim_width(8)};
    wf_tensor *y;

    wf_scope_open(mesh->ctx);
    for (int axis = 0; axis < 2; axis++)
        wf_comm_counters_reset(wf_mesh_comm(mesh, axis));
    y = wf_redistribute(make_tensor(mesh->ctx, WF_F32, 0, 2, dims, c->from), c->to);
    GOOD(check_tensor(rank, y, 0, c->from, c->to));
    for (int axis = 0; axis < 2; axis++)
        for (int kind = 0; kind < WF_COLLECTIVE_KINDS; kind++) {
            const wf_comm_counters *counters = wf_comm_counters_of(wf_mesh_comm(mesh, axis));
            int64_t calls = 0, bytes = 0;

            for (int i = 0; i < c->n_paid; i++)
                if (c->paid[i].axis == axis && (int)c->paid[i].kind == kind) {
                    calls++;
                    bytes += c->paid[i].bytes;
                }
            if (counters->of[kind].calls != calls || counters->of[kind].bytes != bytes)
                return wf_error_set(&rank->error, WF_EINTERNAL,
                                    "%s: %" PRId64 " %s over %s of %" PRId64
                                    " bytes, not %" PRId64 " of %" PRId64,
                                    c->what, counters->of[kind].calls,
                                    wf_collective_name((wf_collective_kind)kind),
                                    wf_mesh_axis_name(mesh, axis), counters->of[kind].bytes,
                                    calls, bytes);
        }
    wf_scope_close(mesh->ctx);
    return WF_OK;
}

static wf_status costs(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *b0 = wf_layout_split(mesh, NULL, 0, 1);
    const wf_layout *b1 = wf_layout_split(mesh, NULL, 1, 1);
    const wf_layout *a0b1 = wf_layout_split(mesh, a0, 1, 1);
    const wf_layout *a0b0 = wf_layout_split(mesh, a0, 0, 1);
    const wf_layout *sum_b = wf_layout_partial(mesh, NULL, 1, WF_REDUCE_SUM);
    const wf_layout *sum_ab = wf_layout_partial(mesh, sum_b, 0, WF_REDUCE_SUM);
    const wf_layout *a0_sum_b = wf_layout_partial(mesh, a0, 1, WF_REDUCE_SUM);
    const cost table[] = {
        {"whole to split", NULL, a0b1, {{0}}, 0},
        {"whole to partial", NULL, sum_ab, {{0}}, 0},
        {"split to whole", b1, NULL, {{1, WF_ALL_GATHER, 128}}, 1},
        {"partial to whole", sum_b, NULL, {{1, WF_ALL_REDUCE, 256}}, 1},
        {"partial to split", sum_b, b0, {{1, WF_REDUCE_SCATTER, 128}}, 1},
        {"split to split", b0, b1, {{1, WF_ALL_TO_ALL, 64}}, 1},
        {"the other axis is cut first", sum_b, a0b0, {{1, WF_REDUCE_SCATTER, 64}}, 1},
        {"cut, then gathered", b1, a0, {{1, WF_ALL_GATHER, 64}}, 1},
        {"what stays is not moved", a0_sum_b, a0b1, {{1, WF_REDUCE_SCATTER, 64}}, 1},
        {"both axes",
         sum_ab,
         a0b1,
         {{1, WF_REDUCE_SCATTER, 128}, {0, WF_REDUCE_SCATTER, 64}},
         2},
        {"nothing", a0_sum_b, a0_sum_b, {{0}}, 0},
    };

    (void)arg;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        GOOD(pay(rank, mesh, &table[i]));
    return WF_OK;
}

/* A tensor that is only passed through on the way is freed at once: x and y alone are left. */
static wf_status passing_through(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *from = wf_layout_split(mesh, wf_layout_split(mesh, NULL, 0, 0), 0, 1);
    const wf_dim dims[] = {wf_dim_width(64), wf_dim_width(16)};

    (void)arg;
    NEED(wf_redistribute(make_tensor(mesh->ctx, WF_F32, 0, 2, dims, from), NULL));
    NEED(in_use(mesh->ctx) == 64 * 16 * sizeof(float) * (1 + 4) / 4);
    return WF_OK;
}

static void prices(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = costs});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = passing_through});
}

static wf_status errors(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *sum = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const wf_layout *third = wf_layout_split(mesh, NULL, 2, 0);
    const wf_layout *first = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *to[WF_MAX_OUTPUTS + 1] = {NULL};
    wf_tensor *x[WF_MAX_OUTPUTS + 1], *y[WF_MAX_OUTPUTS + 1];
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;
    wf_tensor *partial = make_tensor(ctx, WF_I32, 0, s->ndim, s->dim, sum);
    wf_tensor *whole = make_tensor(ctx, WF_I32, 0, s->ndim, s->dim, NULL);

    (void)arg;
    GOOD(
        refused(rank, ctx, wf_redistribute(partial, NULL), WF_EDTYPE, "partial tensor is f32"));
    GOOD(refused(rank, ctx, wf_redistribute(partial, first), WF_EDTYPE, "this one is i32"));
    GOOD(refused(rank, ctx, wf_redistribute(whole, sum), WF_EDTYPE, "this one is i32"));
    GOOD(refused(rank, ctx, wf_redistribute(whole, third), WF_ELAYOUT,
                 "[*, *, a] splits dim 2, but the tensor has 2 dims"));
    for (int i = 0; i <= WF_MAX_OUTPUTS; i++)
        x[i] = y[i] = whole;
    NEED(wf_redistribute_many(WF_MAX_OUTPUTS + 1, x, to, y) == WF_EINVAL);
    GOOD(refused(rank, ctx, y[0], WF_EINVAL, "at most 7 tensors at once, not 8"));
    x[1] = NULL; /* NULL in, NULL out, and no error that hides the one that made it so */
    y[0] = y[1] = whole;
    wf_redistribute_many(2, x, to, y);
    NEED(!y[0] && !y[1] && wf_context_status(ctx) == WF_OK);
    NEED(wf_redistribute(NULL, first) == NULL && wf_context_status(ctx) == WF_OK);
    wf_fail(ctx, WF_EINVAL, "an earlier one");
    GOOD(refused(rank, ctx, wf_redistribute(whole, first), WF_EINVAL, "an earlier one"));
    return WF_OK;
}

/* Rank 1 has no memory for the result: it says so, and nobody waits for it for ever. */
static wf_status no_memory(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *first = wf_layout_split(mesh, NULL, 0, 0);
    const wf_dim dim = wf_dim_width(3000);
    wf_tensor *x = make_tensor(mesh->ctx, WF_F32, 0, 1, &dim, first);

    (void)arg;
    NEED(x);
    if (!wf_redistribute(x, NULL))
        return give_up(rank, mesh->ctx);
    return WF_OK;
}

static void failures(void)
{
    mesh_test test = {.n_axes = 1, .size = {3}, .body = no_memory, .limit_on_rank_1 = 8000};
    wf_launch_options options = {.ranks = 3};
    wf_error error = {WF_OK, ""};

    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = errors});
    CU_ASSERT_EQUAL(wf_launch(&options, mesh_rank, &test, &error), WF_ENOMEM);
    CU_ASSERT(strstr(error.text, "rank 1") != NULL);
}

int main(void)
{
    static const wf_test tests[] = {{"every pair of layouts on one axis", pairs_on_one_axis},
                                    {"every pair of layouts on two axes", pairs_on_two_axes},
                                    {"sums that are rounded when complete", rounded_sums},
                                    {"many tensors, moves in flight", many},
                                    {"what moves, and what stays in memory", prices},
                                    {"failures", failures},
                                    {NULL, NULL}};

    return wf_test_main("redistribute", tests);
}
