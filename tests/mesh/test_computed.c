/*
 * tests/mesh/test_computed.c - parameters that user code computes before it uses them: stored
 * split and gathered, scaled, masked, normed by rows, merged with a low-rank product. A few
 * steps of SGD on any mesh leave the bits that one rank leaves.
 *
 *     y = rmsnorm(x, gain') W'^T + bias'     loss = sum (y - target)^2 / 2
 *
 * x is [batch/a, tokens/b] up to the norm, the columns of W' are split over b, and the
 * operation of the accents ends with a wf_redistribute, whose gradient sums over the ranks that
 * share the weight.
 *
 * ctest: builds plain address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/mesh/mesh_harness.h"

enum {
    BATCH = 8,
    TOKENS = 16,
    WIDTH = 12,
    OUT = 24,
    RANK = 3,
    STEPS = 3,
    MOST = 5,
    ROOM = 512
};

typedef struct program program;

/* A parameter: how it lies between steps, what it is at first. */
typedef struct parameter {
    wf_tensor *t, *momentum, *leaf;
} parameter;

struct program {
    wf_rank *rank;
    wf_mesh *mesh;
    const wf_layout *columns, *batch; /* [n/b] and [batch/a] */
    const wf_layout *rest;            /* [n/b/a] */
    int count;
    parameter parameter[MOST]; /* gain, bias, then what the weight is made of */
    wf_tensor *x, *target, *mask, *frozen, *ones;
};

typedef struct kind {
    const char *name;
    void (*open)(program *p); /* adds its parameters */
    wf_tensor *(*weight)(program *p);
} kind;

/* A constant of known elements, from 1/2 to 3/2 around `centre`. */
static wf_tensor *constant(program *p, int id, float centre, int ndim, const wf_dim *dims,
                           const wf_layout *layout)
{
    wf_tensor *t =
        wf_tensor_new(p->mesh->ctx, WF_F32, ndim, dims, layout, WF_MEMORY_ACTIVATION);

    for (int64_t e = 0; t && e < wf_tensor_local_count(t); e++) {
        int64_t mixed = (whole_index(t, e) * 7919 + id * 104729) % 1009;

        ((float *)t->data)[e] = centre + (float)(mixed - 504) / 1009;
    }
    return t;
}

static void add_parameter(program *p, float centre, int ndim, const wf_dim *dims,
                          const wf_layout *layout)
{
    parameter *q = &p->parameter[p->count];

    q->t = constant(p, p->count++, centre, ndim, dims, layout);
    q->momentum = wf_tensor_like(q->t, WF_MEMORY_OPTIMIZER);
    wf_init_fill(q->momentum, 0);
}

static wf_tensor *leaf(program *p, int i)
{
    return p->parameter[i].leaf = wf_leaf(p->parameter[i].t);
}

static void open_matrix(program *p)
{
    add_parameter(p, 0, 2, (wf_dim[]){wf_dim_chunked(OUT), wf_dim_width(WIDTH)}, p->rest);
}

static wf_tensor *gathered(program *p)
{
    return wf_redistribute(leaf(p, 2), p->columns);
}

static wf_tensor *scaled(program *p)
{
    return wf_redistribute(wf_scale(leaf(p, 2), 0.3F), p->columns);
}

static wf_tensor *masked(program *p)
{
    return wf_redistribute(wf_mul(p->mask, leaf(p, 2)), p->columns);
}

/* Computed on every rank, from a leaf that is gathered before. */
static wf_tensor *scaled_after(program *p)
{
    wf_tensor *w = wf_redistribute(leaf(p, 2), p->columns);

    return wf_redistribute(wf_scale(w, 0.3F), p->columns);
}

static void open_weight_norm(program *p)
{
    const wf_dim n = wf_dim_chunked(OUT);

    open_matrix(p);
    add_parameter(p, 1, 1, &n, p->rest);
}

static wf_tensor *weight_norm(program *p)
{
    wf_tensor *v = leaf(p, 2), *length = leaf(p, 3);
    wf_tensor *w = wf_mul(wf_rmsnorm(v, p->ones, 1e-3F), wf_token_expand(length, v));

    return wf_redistribute(w, p->columns);
}

static void open_low_rank(program *p)
{
    const wf_dim rank = wf_dim_width(RANK);

    add_parameter(p, 0, 2, (wf_dim[]){wf_dim_chunked(OUT), rank}, p->rest);
    add_parameter(p, 0.1F, 2, (wf_dim[]){wf_dim_width(WIDTH), rank}, NULL);
}

/* The product is made whole on every rank, as all of its factors are there. */
static wf_tensor *low_rank(program *p)
{
    wf_tensor *b = wf_redistribute(leaf(p, 2), NULL), *a = leaf(p, 3);
    wf_tensor *w = wf_add(p->frozen, wf_scale(wf_linear(b, a), 2));

    return wf_redistribute(wf_redistribute(w, NULL), p->columns);
}

static const kind kinds[] = {
    {"gathered", open_matrix, gathered},
    {"scaled", open_matrix, scaled},
    {"masked", open_matrix, masked},
    {"gathered, then scaled", open_matrix, scaled_after},
    {"weight norm", open_weight_norm, weight_norm},
    {"merged low rank", open_low_rank, low_rank},
};

enum { KINDS = sizeof kinds / sizeof kinds[0] };

static void open_program(program *p, wf_rank *rank, wf_mesh *mesh, const kind *k)
{
    int b = wf_mesh_axis(mesh, "b");
    const wf_dim n = wf_dim_chunked(OUT), width = wf_dim_width(WIDTH);
    const wf_dim x[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS), width};
    const wf_dim y[] = {x[0], x[1], n};

    *p = (program){.rank = rank, .mesh = mesh};
    p->columns = wf_layout_split(mesh, NULL, 0, b);
    p->rest = wf_layout_split(mesh, p->columns, 0, 0);
    p->batch = wf_layout_split(mesh, NULL, 0, 0);
    add_parameter(p, 1, 1, &width, wf_layout_split(mesh, NULL, 0, 0));
    add_parameter(p, 0, 1, &n, p->rest);
    k->open(p);
    p->x = constant(p, 11, 0, 3, x, wf_layout_split(mesh, p->batch, 1, b));
    p->target = constant(p, 12, 0, 3, y, wf_layout_split(mesh, p->batch, 2, b));
    p->mask = constant(p, 13, 0.1F, 2, (wf_dim[]){n, width}, p->rest);
    p->frozen = constant(p, 14, 0, 2, (wf_dim[]){n, width}, NULL);
    p->ones = constant(p, 15, 1, 1, &width, NULL);
}

static wf_tensor *forward(program *p, const kind *k)
{
    wf_tensor *root = leaf(p, 0), *gain = wf_redistribute(wf_mul(root, root), NULL);
    wf_tensor *bias = wf_redistribute(wf_scale(leaf(p, 1), 0.7F), p->columns);
    wf_tensor *h = wf_redistribute(wf_rmsnorm(p->x, gain, 1e-3F), p->batch);

    return wf_bias_add(wf_linear(h, k->weight(p)), bias);
}

static wf_status step(program *p, const kind *k, bool defer)
{
    const wf_update update = {.lr = 1e-3F, .beta1 = 0.9F, .grad_scale = 1};
    wf_context *ctx = p->mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx), *recording;
    wf_tensor *y = forward(p, k), *dy;

    recording = wf_tape_switch(ctx, NULL);
    dy = wf_add(y, wf_scale(p->target, -1));
    wf_tape_switch(ctx, recording);
    if (!dy || wf_backward(y, dy, defer) != WF_OK ||
        (defer && wf_backward_weights(tape) != WF_OK))
        return give_up(p->rank, ctx);
    wf_tape_close(tape);
    for (int i = 0; i < p->count; i++) {
        const parameter *q = &p->parameter[i];
        const wf_tensor *grad = q->leaf->grad;

        if (!grad || grad->layout != q->t->layout || grad->ndim != q->t->ndim)
            return wf_error_set(&p->rank->error, WF_EINTERNAL,
                                "%s: the gradient of parameter %d is not like it", k->name, i);
        GOOD(wf_sgd(q->t, q->leaf->grad, q->momentum, &update));
    }
    return WF_OK;
}

/* The results of one rank: rank 0 of the first mesh writes them, and all others read them
   later. */
static float reference[KINDS][MOST][ROOM];

static wf_status train(wf_rank *rank, wf_mesh *mesh, int which)
{
    const kind *k = &kinds[which];
    program p;

    open_program(&p, rank, mesh, k);
    for (int i = 0; i < STEPS; i++) {
        wf_scope_open(mesh->ctx);
        GOOD(step(&p, k, i % 2));
        wf_scope_close(mesh->ctx);
    }
    for (int i = 0; i < p.count; i++) {
        wf_tensor *whole = wf_whole(p.parameter[i].t);
        const float *x;
        int64_t n;

        NEED(whole);
        x = whole->data;
        n = wf_tensor_count(whole);
        NEED(n <= ROOM);
        if (mesh->ranks == 1) {
            wf_tensor *first = constant(&p, i, 0, whole->ndim, whole->dim, NULL);

            NEED(memcmp(x, first->data, (size_t)n * sizeof *x) != 0);
            memcpy(reference[which][i], x, (size_t)n * sizeof *x);
        } else if (memcmp(x, reference[which][i], (size_t)n * sizeof *x) != 0) {
            return wf_error_set(&rank->error, WF_EINTERNAL,
                                "%s: parameter %d has other bits than on one rank", k->name, i);
        }
    }
    return WF_OK;
}

static wf_status train_all(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    (void)arg;
    for (int which = 0; which < KINDS; which++) {
        wf_scope_open(mesh->ctx);
        GOOD(train(rank, mesh, which));
        wf_scope_close(mesh->ctx);
    }
    return WF_OK;
}

static void training(void)
{
    static const int sizes[][2] = {{1, 1}, {2, 1}, {1, 2}, {4, 1}, {2, 2}, {2, 4}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        on_mesh(
            (mesh_test){.n_axes = 2, .size = {sizes[i][0], sizes[i][1]}, .body = train_all});
}

int main(void)
{
    static const wf_test tests[] = {{"training with computed parameters", training},
                                    {NULL, NULL}};

    return wf_test_main("computed", tests);
}
