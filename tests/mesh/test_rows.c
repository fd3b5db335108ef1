/*
 * tests/mesh/test_rows.c - rows that go to the owners of their indices (wf_border_rows): what
 * arrives, what is combined and both gradients are those of borders that move all rows, begun
 * and ended too, and no row moves that nobody takes.
 *
 * ctest: builds address thread
 */
#include "core/tape.h"
#include "tests/mesh/mesh_harness.h"

enum { BATCH = 5, TOKENS = 6, WIDTH = 3, K = 4, OWNED = 7 };

/* Rows of several owners, whose sum has an order; all alike; none of the last owner of 4. */
enum { MIXED, SAME, NONE_OF_LAST, CHOICES };

static float choice(int kind, int64_t row, int64_t i)
{
    static const float others[K] = {0, 1, 4, 6};
    int64_t first = kind == MIXED ? row * 5 % OWNED : kind == NONE_OF_LAST ? row % 3 : 0;

    return i == 0 ? (float)first : kind == MIXED ? others[i] : (float)(first + 1);
}

typedef struct moved {
    int kind;
    wf_row_owners owners;
    /* base: whole over the owners' axes; of 3 axes the first splits the batch further out */
    const wf_layout *base, *owned, *partial;
    wf_dim dim[3];
} moved;

static moved moved_of(wf_mesh *mesh, int kind, bool tokens)
{
    wf_context *ctx = mesh->ctx;
    const wf_dim index[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS), wf_dim_width(K)};
    int axis = mesh->n_axes > 2, inner = mesh->n_axes > 1 ? axis + 1 : -1;
    moved m = {.kind = kind, .dim = {index[0], index[1], wf_dim_width(WIDTH)}};
    wf_tensor *t;

    m.base = axis ? wf_layout_split(mesh, NULL, 0, 0) : NULL;
    m.owners = (wf_row_owners){.axis = axis, .inner = inner, .dim = wf_dim_experts(OWNED)};
    m.owners.layout = wf_layout_split(mesh, NULL, 0, axis);
    m.owned = wf_layout_split(mesh, m.base, 0, axis);
    m.partial = wf_layout_partial(mesh, m.base, axis, WF_REDUCE_SUM);
    if (inner >= 0) {
        m.owners.layout = wf_layout_split(mesh, m.owners.layout, 0, inner);
        m.partial = wf_layout_partial(mesh, m.partial, inner, WF_REDUCE_SUM);
        m.owned = tokens ? wf_layout_split(mesh, m.owned, 1, inner) : m.owned;
    }
    m.owners.index = t = wf_tensor_new(ctx, WF_F32, 3, index, m.base, WF_MEMORY_ACTIVATION);
    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        ((float *)t->data)[e] = choice(kind, whole_index(t, e) / K, e % K);
    return m;
}

/* Returns whether a rank owns an index of a row. */
static bool takes(wf_mesh *mesh, const moved *m, int rank, int64_t row)
{
    int64_t start, local;
    bool is = false;

    wf_layout_part(mesh, m->owners.layout, 0, &m->owners.dim, rank, &start, &local);
    for (int64_t i = 0; i < K; i++) {
        int64_t e = (int64_t)choice(m->kind, row, i);

        is |= e >= start && e < start + local;
    }
    return is;
}

/* Returns a tensor of `id`, whole or partial, of which rows that are not this rank's are +0. */
static wf_tensor *masked(wf_mesh *mesh, const moved *m, int64_t id, const wf_layout *layout)
{
    wf_tensor *t = make_tensor(mesh->ctx, WF_F32, id, 3, m->dim, layout);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++)
        if (!takes(mesh, m, mesh->rank, whole_index(t, e) / WIDTH))
            ((float *)t->data)[e] = 0;
    return t;
}

static bool same(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->layout == b->layout && a->dtype == b->dtype &&
           wf_tensor_bytes(a) == wf_tensor_bytes(b) &&
           memcmp(a->data, b->data, wf_tensor_bytes(a)) == 0;
}

static int64_t received(wf_mesh *mesh, const moved *m)
{
    return wf_comm_counters_of(wf_mesh_comm(mesh, m->owners.axis))->of[WF_ALL_TO_ALL].bytes;
}

/* Bytes of the rows that this rank takes of other members' sequences. */
static int64_t bytes_taken(wf_mesh *mesh, const moved *m)
{
    const wf_tensor *index = m->owners.index;
    int64_t start, local, rows = 0;

    wf_layout_part(mesh, m->owned, 0, &m->dim[0], mesh->rank, &start, &local);
    for (int64_t s = index->start[0]; s < index->start[0] + index->local[0]; s++)
        for (int64_t t = 0; t < TOKENS && (s < start || s >= start + local); t++)
            rows += takes(mesh, m, mesh->rank, s * TOKENS + t);
    return rows * WIDTH * (int64_t)sizeof(float);
}

static wf_tensor *border(const moved *m, wf_tensor *x, const wf_layout *to, bool halves)
{
    return halves ? wf_border_rows_end(wf_border_rows_begin(&m->owners, x, x, to))
                  : wf_border_rows(&m->owners, x, x, to);
}

/* halves: moves are begun and ended. */
static wf_status one(wf_rank *rank, wf_mesh *mesh, int kind, bool tokens, bool halves)
{
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x, *y, *part, *sum;
    int64_t before;
    moved m;

    wf_scope_open(ctx);
    m = moved_of(mesh, kind, tokens);
    x = wf_leaf(make_tensor(ctx, WF_F32, 1, 3, m.dim, m.owned));
    before = received(mesh, &m);
    y = border(&m, x, m.base, halves);
    NEED(same(y, masked(mesh, &m, 1, m.base)));
    NEED(received(mesh, &m) - before == bytes_taken(mesh, &m));
    part = masked(mesh, &m, 2, m.partial);
    sum = wf_redistribute(part, m.owned);
    NEED(wf_backward(y, part, false) == WF_OK && same(x->grad, sum));

    part = wf_leaf(part);
    y = border(&m, part, m.owned, halves);
    NEED(same(y, sum));
    x = make_tensor(ctx, WF_F32, 3, 3, m.dim, m.owned);
    NEED(wf_backward(y, x, false) == WF_OK && same(part->grad, masked(mesh, &m, 3, m.base)));

    part = masked(mesh, &m, 2, m.partial);
    part->rounds_to = WF_BF16; /* when it is complete */
    y = border(&m, part, m.owned, halves);
    NEED(same(y, wf_redistribute(part, m.owned)) && y->dtype == WF_BF16);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    NEED(in_use(ctx) == 0);
    return wf_context_status(ctx) == WF_OK ? WF_OK : give_up(rank, ctx);
}

/* Two moves are under way, and a sum over the same axis comes in between; what is under way is
   not counted as exposed. */
static wf_status two_at_once(wf_rank *rank, wf_mesh *mesh)
{
    wf_context *ctx = mesh->ctx;
    const wf_comm_counters *counters;
    wf_tensor *x, *part, *y, *sum, *whole;
    int64_t exposed;
    moved m;

    wf_scope_open(ctx);
    m = moved_of(mesh, MIXED, false);
    counters = wf_comm_counters_of(wf_mesh_comm(mesh, m.owners.axis));
    exposed = counters->of[WF_ALL_TO_ALL].exposed;
    x = make_tensor(ctx, WF_F32, 1, 3, m.dim, m.owned);
    part = masked(mesh, &m, 2, m.partial);
    y = wf_border_rows_begin(&m.owners, x, x, m.base);
    sum = wf_border_rows_begin(&m.owners, part, part, m.owned);
    whole = wf_redistribute(part, m.owned);
    NEED(same(wf_border_rows_end(y), masked(mesh, &m, 1, m.base)));
    NEED(same(wf_border_rows_end(sum), whole));
    NEED(wf_border_rows_end(whole) == whole); /* none is under way */
    NEED(counters->of[WF_ALL_TO_ALL].exposed == exposed);
    wf_scope_close(ctx);
    return wf_context_status(ctx) == WF_OK ? WF_OK : give_up(rank, ctx);
}

static wf_status every_choice(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const char *unused;

    (void)arg;
    for (int kind = 0; kind < CHOICES; kind++)
        for (int tokens = 0; tokens <= (mesh->n_axes > 1); tokens++)
            for (int halves = 0; halves < 2; halves++)
                GOOD(one(rank, mesh, kind, tokens, halves));
    GOOD(two_at_once(rank, mesh));
    unused = wf_context_blocks(mesh->ctx)->at;
    for (int halves = 0; halves < 2; halves++)
        GOOD(one(rank, mesh, MIXED, false, halves));
    GOOD(two_at_once(rank, mesh));
    NEED(wf_context_blocks(mesh->ctx)->at == unused); /* all of it was given back */
    return WF_OK;
}

static void one_axis(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = every_choice});
    on_mesh((mesh_test){.n_axes = 1, .size = {4}, .body = every_choice});
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .exact_off = true, .body = every_choice});
}

static void two_axes(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = every_choice});
    on_mesh((mesh_test){.n_axes = 2, .size = {4, 2}, .body = every_choice});
}

/* The batch is split by another axis, too: rows move between the owners of one part. */
static void parts_of_a_batch(void)
{
    on_mesh((mesh_test){.n_axes = 3, .size = {2, 2, 2}, .body = every_choice});
}

/* One index of 4 is an owner's of 1 with that chance; of 2 that differ neither is an owner's of
   2 with 2/4 x 1/3. */
static void likely_shares(void)
{
    CU_ASSERT_DOUBLE_EQUAL(wf_rows_share(1, 4, 1), 1.0 / 4, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(wf_rows_share(2, 4, 2), 5.0 / 6, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(wf_rows_share(3, 4, 2), 1, 1e-15);
    CU_ASSERT_DOUBLE_EQUAL(wf_rows_share(4, 4, 1), 1, 1e-15);
}

/* Fails on rank 1 with moves under way, which the mesh frees when it closes. */
static wf_status leave(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    wf_context *ctx = mesh->ctx;
    moved m;
    wf_tensor *x, *part, *y, *sum;

    (void)arg;
    wf_scope_open(ctx);
    m = moved_of(mesh, MIXED, false);
    x = make_tensor(ctx, WF_F32, 1, 3, m.dim, m.owned);
    part = masked(mesh, &m, 2, m.partial);
    y = wf_border_rows_begin(&m.owners, x, x, m.base);
    sum = wf_border_rows_begin(&m.owners, part, part, m.owned);
    if (rank->index == 1)
        return wf_fail(ctx, WF_EINVAL, "rank 1 has enough");
    y = wf_border_rows_end(y);
    sum = y ? wf_border_rows_end(sum) : NULL;
    wf_scope_close(ctx);
    return sum ? WF_OK : give_up(rank, ctx);
}

static void left_under_way(void)
{
    mesh_test test = {.n_axes = 1, .size = {2}, .body = leave};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_NOT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 2}, mesh_rank, &test, &error),
                        WF_OK);
    CU_ASSERT(says(&error, WF_EINVAL, "rank 1", "has enough"));
}

/* Refuses by name a tensor without tokens. */
static wf_status refuse(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    moved m = moved_of(mesh, MIXED, false);
    const wf_dim flat[] = {m.dim[0], m.dim[2]};
    wf_tensor *x = make_tensor(mesh->ctx, WF_F32, 1, 2, flat, m.owned);

    (void)arg;
    return refused(rank, mesh->ctx, wf_border_rows(&m.owners, x, x, NULL), WF_ELAYOUT,
                   "go to owners of indices that are [batch, tokens, k]");
}

/* Refuses indices of some of the tokens: rows are looked up by their index among all. */
static wf_status refuse_parts(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    moved m = moved_of(mesh, MIXED, false);
    wf_tensor *x = make_tensor(mesh->ctx, WF_F32, 1, 3, m.dim, m.owned);

    (void)arg;
    m.owners.index =
        wf_tensor_new(mesh->ctx, WF_F32, 3, m.owners.index->dim,
                      wf_layout_split(mesh, NULL, 1, m.owners.inner), WF_MEMORY_ACTIVATION);
    return refused(rank, mesh->ctx, wf_border_rows(&m.owners, x, x, m.base), WF_ELAYOUT,
                   "go to owners of indices that are [batch, tokens, k]");
}

static void refusals(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = refuse});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = refuse_parts});
}

int main(void)
{
    static const wf_test tests[] = {
        {"owners along an axis", one_axis},
        {"owners along two", two_axes},
        {"parts of a batch", parts_of_a_batch},
        {"shares of rows that are likely", likely_shares},
        {"moves that an error leaves", left_under_way},
        {"what cannot be moved", refusals},
        {NULL, NULL},
    };

    return wf_test_main("rows", tests);
}
