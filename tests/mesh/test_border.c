/*
 * tests/mesh/test_border.c - gradients that cross a redistribution, and what is kept for them.
 *
 * ctest: builds address thread
 */
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

/*
 * A gradient in any layout C that arrives at a border from A to B leaves it in the dual of A
 * with the value that it had in C: the move of C to the dual, whatever B is.
 */
static wf_status gradient(wf_rank *rank, wf_mesh *mesh, const wf_layout *a, const wf_layout *b,
                          const wf_layout *c)
{
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf, *y, *seed;

    wf_scope_open(ctx);
    leaf = wf_leaf(make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, a));
    y = wf_redistribute(leaf, b);
    seed = make_tensor(ctx, WF_F32, 1, s->ndim, s->dim, c);
    if (wf_backward(y, seed, false) != WF_OK)
        return give_up(rank, ctx);
    NEED(leaf->grad && leaf->grad->dim[1].chunks == WF_CHUNKS_8);
    GOOD(check_tensor(rank, leaf->grad, 1, c, wf_layout_dual(mesh, a)));
    wf_scope_close(ctx);
    wf_tape_close(tape);
    NEED(in_use(ctx) == 0);
    return WF_OK;
}

static bool has_max(const wf_layout *layout)
{
    return layout && layout->max; /* a maximum has no gradient */
}

static wf_status gradients(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 2, true, all);

    (void)arg;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            for (int k = 0; k < (mesh->n_axes > 1 ? 1 : n); k++) {
                const wf_layout *c = all[mesh->n_axes > 1 ? pick(i, j, n) : k];

                if (!has_max(all[i]) && !has_max(all[j]) && !has_max(c))
                    GOOD(gradient(rank, mesh, all[i], all[j], c));
            }
    return WF_OK;
}

/* Several tensors go through one border; only those that are used get a gradient. */
static wf_status one_of_two(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *sum = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const wf_layout *to[2] = {NULL, split};
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *x[2], *y[2];

    (void)arg;
    x[0] = wf_leaf(make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, split));
    x[1] = wf_leaf(make_tensor(ctx, WF_F32, 1, s->ndim, s->dim, sum));
    GOOD(wf_redistribute_many(2, x, to, y));
    GOOD(wf_backward(y[1], make_tensor(ctx, WF_F32, 2, s->ndim, s->dim, split), false));
    NEED(!x[0]->grad);
    GOOD(check_tensor(rank, x[1]->grad, 2, split, NULL));
    wf_tape_close(tape);
    return WF_OK;
}

/* Results of a border of several tensors want a gradient where their operands do: on a tape,
   and before another one records it. */
static wf_status one_is_constant(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *to[2] = {NULL, split};
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int later = 0; later < 2; later++) {
        wf_tape *tape = later ? NULL : wf_tape_open(ctx);
        wf_tensor *x[2], *y[2];

        wf_context_recorded_later(ctx, later);
        x[0] = make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, split);
        x[1] = wf_leaf(make_tensor(ctx, WF_F32, 1, s->ndim, s->dim, NULL));
        GOOD(wf_redistribute_many(2, x, to, y));
        NEED(!y[0]->requires_grad && y[1]->requires_grad);
        wf_context_recorded_later(ctx, false);
        wf_tape_close(tape);
    }
    return came_to(rank, ctx, WF_OK);
}

/* A border on one axis leaves a gradient as it comes on the others. */
static wf_status on_one_axis(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *sum_a = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const wf_layout *sum_ab = wf_layout_partial(mesh, sum_a, 1, WF_REDUCE_SUM);
    const wf_layout *a0_sum_b = wf_layout_partial(mesh, a0, 1, WF_REDUCE_SUM);
    const wf_layout *b1 = wf_layout_split(mesh, NULL, 1, 1);
    const struct {
        const wf_layout *from, *to, *grad, *arrives;
    } table[] = {
        {NULL, NULL, sum_ab, sum_a},                                       /* before a column */
        {wf_layout_partial(mesh, a0, 1, WF_REDUCE_SUM), a0, sum_a, sum_a}, /* after a row */
        {b1, NULL, sum_ab, wf_layout_split(mesh, sum_a, 1, 1)}, /* a gathered parameter */
        {NULL, b1, wf_layout_split(mesh, a0, 1, 1), a0},
        {a0, a0, a0_sum_b, a0},
    };
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x, *y;

        x = wf_leaf(make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, table[i].from));
        GOOD(wf_border(1, 1, &x, &table[i].to, &y));
        GOOD(check_tensor(rank, y, 0, table[i].from, table[i].to));
        GOOD(
            wf_backward(y, make_tensor(ctx, WF_F32, 1, s->ndim, s->dim, table[i].grad), false));
        GOOD(check_tensor(rank, x->grad, 1, table[i].grad, table[i].arrives));
        wf_tape_close(tape);
    }
    return WF_OK;
}

/* A border on two axes moves gradients on both, from where x is on the way to y too. */
static wf_status on_two_axes(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *b1 = wf_layout_split(mesh, NULL, 1, 1);
    const wf_layout *a0b1 = wf_layout_split(mesh, a0, 1, 1);
    const wf_layout *sum_a = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const wf_layout *sum_ab = wf_layout_partial(mesh, sum_a, 1, WF_REDUCE_SUM);
    const struct {
        const wf_layout *from, *via, *to, *grad, *arrives;
    } table[] = {
        {a0b1, a0, NULL, sum_ab, a0b1}, /* gathered on one axis, then on both */
        {NULL, NULL, NULL, sum_ab, NULL},
        {sum_ab, sum_ab, a0b1, a0b1, NULL},
        {a0, NULL, b1, wf_layout_partial(mesh, b1, 0, WF_REDUCE_SUM), a0},
    };
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x, *via, *y;

        x = wf_leaf(make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, table[i].from));
        via = wf_detach(x);
        GOOD(wf_move_run(ctx, 1, &via, &table[i].via, &via));
        GOOD(wf_border_over(3, 1, &x, &via, &table[i].to, &y));
        GOOD(check_tensor(rank, y, 0, table[i].from, table[i].to));
        GOOD(
            wf_backward(y, make_tensor(ctx, WF_F32, 1, s->ndim, s->dim, table[i].grad), false));
        GOOD(check_tensor(rank, x->grad, 1, table[i].grad, table[i].arrives));
        wf_tape_close(tape);
    }
    return WF_OK;
}

/* A move over another axis too is no border on one, whichever way it goes: its gradient would
   come back in a layout that is not the tensor's. */
static wf_status off_its_axis(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *a0 = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *b0 = wf_layout_split(mesh, NULL, 0, 1);
    const wf_layout *b1 = wf_layout_split(mesh, NULL, 1, 1);
    const wf_layout *a0b0 = wf_layout_split(mesh, a0, 0, 1);
    const wf_layout *b0a0 = wf_layout_split(mesh, b0, 0, 0);
    const wf_layout *sum_a = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const struct {
        const wf_layout *from, *to;
        bool good;
    } table[] = {{a0, NULL, false},   {NULL, a0, false},   {sum_a, NULL, false},
                 {sum_a, a0, false},  {a0b0, b0, false},   {a0b0, NULL, false},
                 {a0b0, b0a0, false}, {b0a0, a0, false},   {NULL, b0a0, false},
                 {a0b0, a0, true},    {a0, a0b0, true},    {b0, b1, true},
                 {b0a0, b0a0, true},  {sum_a, sum_a, true}};
    const shape *s = &shapes[0];
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wf_tensor *x = make_tensor(ctx, WF_F32, 0, s->ndim, s->dim, table[i].from), *y = x;

        NEED((wf_border(1, 1, &x, &table[i].to, &y) == WF_OK) == table[i].good);
        if (table[i].good)
            GOOD(check_tensor(rank, y, 0, table[i].from, table[i].to));
        else
            GOOD(refused(rank, ctx, y, WF_ELAYOUT, "a border on axis b alone: tensor 0 is"));
    }
    return WF_OK;
}

/* The gradient of a weight reads its input again from where it came, which alone was kept. */
static wf_status origin(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_dim x_dims[] = {wf_dim_batch(6), wf_dim_width(64)};
    const wf_dim w_dims[] = {wf_dim_width(2), wf_dim_width(64)};
    const wf_dim y_dims[] = {wf_dim_batch(6), wf_dim_width(2)};
    wf_context *ctx = mesh->ctx;
    wf_tensor *grad[2];
    size_t held[2];

    (void)arg;
    for (int keep = 0; keep < 2; keep++) {
        size_t before = in_use(ctx);
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *x, *whole, *w, *y, *dy;

        wf_scope_open(ctx);
        x = make_tensor(ctx, WF_F32, 0, 2, x_dims, split);
        w = wf_leaf(make_tensor(ctx, WF_F32, 1, 2, w_dims, NULL));
        dy = make_tensor(ctx, WF_F32, 2, 2, y_dims, NULL);
        wf_scope_open(ctx);
        whole = wf_redistribute(x, NULL);
        if (keep)
            wf_keep_origin(whole, x);
        y = wf_scope_return(ctx, wf_linear(whole, w));
        held[keep] = in_use(ctx) - before;
        GOOD(wf_backward(y, dy, false));
        grad[keep] = w->grad;
        NEED(grad[keep]);
        wf_tensor_retain(grad[keep]);
        wf_scope_close(ctx);
        wf_tape_close(tape);
    }
    NEED(held[0] - held[1] == 6 * 64 * sizeof(float));
    NEED(memcmp(grad[0]->data, grad[1]->data, 2 * 64 * sizeof(float)) == 0);
    wf_tensor_release(grad[0]);
    wf_tensor_release(grad[1]);
    NEED(in_use(ctx) == 0);
    return WF_OK;
}

/* The product of a split sum, and what a redistribution makes of it. */
typedef struct product {
    wf_tensor *partial, *whole, *scattered, *gathered;
} product;

static product multiply(wf_mesh *mesh, wf_tensor *x, wf_tensor *w)
{
    const wf_layout *tokens = wf_layout_split(mesh, NULL, 0, 0);
    product p = {.partial = wf_linear(x, w)};

    p.whole = wf_redistribute(p.partial, NULL);
    p.scattered = wf_redistribute(p.partial, tokens);
    p.gathered = wf_redistribute(p.scattered, NULL);
    return p;
}

/* A partial sum is not stored as bf16 though results are: it is rounded when it is complete, so
   that all ranks of all layouts round the same number. */
static wf_status rounded_once(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    enum { ROWS = 6, N = 10, K = 16 };
    const wf_dim in[] = {wf_dim_batch(ROWS), wf_dim_chunked(K)};
    const wf_dim weight[] = {wf_dim_width(N), wf_dim_chunked(K)};
    const wf_layout *split = wf_layout_split(mesh, NULL, 1, 0);
    wf_context *ctx = mesh->ctx;
    wf_tensor *x = make_tensor(ctx, WF_F32, 0, 2, in, split);
    wf_tensor *w = make_tensor(ctx, WF_F32, 1, 2, weight, split);
    product wide = multiply(mesh, x, w), half;

    (void)arg;
    wf_context_storage(ctx, WF_BF16);
    half = multiply(mesh, x, w);
    if (wf_context_status(ctx) != WF_OK)
        return give_up(rank, ctx);
    NEED(half.partial->dtype == WF_F32 && half.partial->rounds_to == WF_BF16);
    NEED(half.whole->dtype == WF_BF16 && half.scattered->dtype == WF_BF16);
    for (int i = 0; i < ROWS * N; i++) {
        uint16_t right = wf_bf16_of(((float *)wide.whole->data)[i]);

        NEED(((uint16_t *)half.whole->data)[i] == right);
        NEED(((uint16_t *)half.gathered->data)[i] == right);
    }
    return WF_OK;
}

static void rounding(void)
{
    for (int ranks = 2; ranks <= 8; ranks *= 2)
        on_mesh((mesh_test){.n_axes = 1, .size = {ranks}, .body = rounded_once});
}

static void every_layout(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = gradients});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = gradients});
}

static void several_tensors(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = one_of_two});
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = one_is_constant});
}

static void borders_of_plans(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = on_one_axis});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = on_two_axes});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = on_two_axes});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = off_its_axis});
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = origin});
}

int main(void)
{
    static const wf_test tests[] = {{"from any layout to any other", every_layout},
                                    {"what is stored as bf16 is rounded once", rounding},
                                    {"one of several is used", several_tensors},
                                    {"on one axis, and with an origin", borders_of_plans},
                                    {NULL, NULL}};

    return wf_test_main("border", tests);
}
