/*
 * tests/mesh/test_rows.c - rows that go to the owners of their indices (wf_border_rows): what
 * arrives, what comes home and both gradients are those of borders that move all rows, and no
 * row moves that nobody takes.
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
    const wf_layout *home, *sent, *partial;
    wf_dim dim[3];
} moved;

static moved moved_of(wf_mesh *mesh, int kind, bool tokens)
{
    wf_context *ctx = mesh->ctx;
    const wf_dim index[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS), wf_dim_width(K)};
    int inner = mesh->n_axes > 1 ? 1 : -1;
    moved m = {.kind = kind, .dim = {index[0], index[1], wf_dim_width(WIDTH)}};
    float *at;

    m.owners = (wf_row_owners){.axis = 0, .inner = inner, .dim = wf_dim_experts(OWNED)};
    m.owners.layout = wf_layout_split(mesh, NULL, 0, 0);
    m.home = wf_layout_split(mesh, NULL, 0, 0);
    m.partial = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    if (inner >= 0) {
        m.owners.layout = wf_layout_split(mesh, m.owners.layout, 0, inner);
        m.partial = wf_layout_partial(mesh, m.partial, inner, WF_REDUCE_SUM);
        m.home = tokens ? wf_layout_split(mesh, m.home, 1, inner) : m.home;
    }
    m.owners.index = wf_tensor_new(ctx, WF_F32, 3, index, NULL, WF_MEMORY_ACTIVATION);
    at = m.owners.index ? m.owners.index->data : NULL;
    for (int64_t e = 0; at && e < BATCH * TOKENS * K; e++)
        at[e] = choice(kind, e / K, e % K);
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
        if (!takes(mesh, m, mesh->rank, e / WIDTH))
            ((float *)t->data)[e] = 0;
    return t;
}

static bool same(const wf_tensor *a, const wf_tensor *b)
{
    return a && b && a->layout == b->layout && wf_tensor_bytes(a) == wf_tensor_bytes(b) &&
           memcmp(a->data, b->data, wf_tensor_bytes(a)) == 0;
}

static int64_t received(wf_mesh *mesh)
{
    return wf_comm_counters_of(wf_mesh_comm(mesh, 0))->of[WF_ALL_TO_ALL].bytes;
}

/* Bytes of the rows that this rank takes of other members' sequences. */
static int64_t bytes_taken(wf_mesh *mesh, const moved *m)
{
    int64_t start, local, rows = 0;

    wf_layout_part(mesh, wf_layout_split(mesh, NULL, 0, 0), 0, &m->dim[0], mesh->rank, &start,
                   &local);
    for (int64_t r = 0; r < BATCH * TOKENS; r++)
        rows += (r / TOKENS < start || r / TOKENS >= start + local) &&
                takes(mesh, m, mesh->rank, r);
    return rows * WIDTH * (int64_t)sizeof(float);
}

static wf_status one(wf_rank *rank, wf_mesh *mesh, int kind, bool tokens)
{
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x, *y, *part, *sum;
    int64_t before;
    moved m;

    wf_scope_open(ctx);
    m = moved_of(mesh, kind, tokens);
    x = wf_leaf(make_tensor(ctx, WF_F32, 1, 3, m.dim, m.home));
    before = received(mesh);
    y = wf_border_rows(&m.owners, x, x, NULL);
    NEED(same(y, masked(mesh, &m, 1, NULL)));
    NEED(received(mesh) - before == bytes_taken(mesh, &m));
    part = masked(mesh, &m, 2, m.partial);
    sum = wf_redistribute(part, m.home);
    NEED(wf_backward(y, part, false) == WF_OK && same(x->grad, sum));

    part = wf_leaf(part);
    y = wf_border_rows(&m.owners, part, part, m.home);
    NEED(same(y, sum));
    x = make_tensor(ctx, WF_F32, 3, 3, m.dim, m.home);
    NEED(wf_backward(y, x, false) == WF_OK && same(part->grad, masked(mesh, &m, 3, NULL)));
    wf_scope_close(ctx);
    wf_tape_close(tape);
    NEED(in_use(ctx) == 0);
    return wf_context_status(ctx) == WF_OK ? WF_OK : give_up(rank, ctx);
}

static wf_status every_choice(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    (void)arg;
    for (int kind = 0; kind < CHOICES; kind++)
        for (int tokens = 0; tokens <= (mesh->n_axes > 1); tokens++)
            GOOD(one(rank, mesh, kind, tokens));
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

/* Refuses by name a tensor without tokens. */
static wf_status refuse(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    moved m = moved_of(mesh, MIXED, false);
    const wf_dim flat[] = {m.dim[0], m.dim[2]};
    wf_tensor *x = make_tensor(mesh->ctx, WF_F32, 1, 2, flat, m.home);

    (void)arg;
    return refused(rank, mesh->ctx, wf_border_rows(&m.owners, x, x, NULL), WF_ELAYOUT,
                   "go to owners of indices that are [batch, tokens, k]");
}

static void refusals(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = refuse});
}

int main(void)
{
    static const wf_test tests[] = {
        {"owners along an axis", one_axis},
        {"owners along two", two_axes},
        {"what cannot be moved", refusals},
        {NULL, NULL},
    };

    return wf_test_main("rows", tests);
}
