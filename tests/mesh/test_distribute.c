/*
 * tests/mesh/test_distribute.c - from plain memory to tensors of a mesh and back, and the
 * gradients of tensors that one rank looks at alone.
 *
 * ctest: builds address thread
 */
#include "core/tape.h"
#include "kernels/ops.h"
#include "tests/mesh/mesh_harness.h"

static const wf_dim dims[] = {
    {5, 1, WF_CHUNKS_EACH}, {12, 4, WF_CHUNKS_8}, {3, 1, WF_CHUNKS_1}};

enum { COUNT = 5 * 12 * 3 };

/* Fills an array, of any type, with the numbers that a tensor's local part has at the same
   indices. */
static void fill(wf_dtype dtype, void *data)
{
    for (int64_t e = 0; e < COUNT; e++)
        put(dtype, data, e, number(0, 0, e));
}

static wf_status there_and_back(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    static const wf_dtype dtypes[] = {WF_F32, WF_F64, WF_BF16, WF_I32};
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 3, false, all);
    double array[COUNT];

    (void)arg;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < n; i++) {
            wf_tensor *t, *whole;

            fill(dtypes[k], array);
            wf_scope_open(mesh->ctx);
            t = wf_distribute(mesh->ctx, array, dtypes[k], 3, dims, all[i]);
            GOOD(check_tensor(rank, t, 0, all[i], all[i]));
            memset(array, 0xff, sizeof array); /* it is a copy */
            whole = wf_whole(t);
            GOOD(check_tensor(rank, whole, 0, NULL, NULL));
            wf_scope_close(mesh->ctx);
            NEED(in_use(mesh->ctx) == 0);
        }
    return WF_OK;
}

/* A number is a tensor too, and an array may be empty. */
static wf_status no_dims(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_dim none = wf_dim_width(0);
    float one = 7;
    wf_tensor *t = wf_distribute(mesh->ctx, &one, WF_F32, 0, NULL, NULL);

    (void)arg;
    NEED(t && t->ndim == 0 && *(float *)wf_whole(t)->data == 7);
    t = wf_distribute(mesh->ctx, &one, WF_F32, 1, &none, split);
    NEED(t && wf_tensor_local_count(t) == 0 && wf_tensor_count(wf_whole(t)) == 0);
    t = wf_redistribute(wf_distribute(mesh->ctx, &one, WF_F32, 0, NULL, NULL),
                        wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM));
    NEED(t && *(float *)wf_whole(t)->data == 7);
    return WF_OK;
}

static void arrays(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = there_and_back});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = there_and_back});
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = no_dims});
}

/* A tensor without layout that holds this rank's part of tensor 0 in a layout. */
static wf_tensor *part(wf_mesh *mesh, const wf_layout *layout)
{
    wf_tensor *t = make_tensor(mesh->ctx, WF_F32, 0, 3, dims, layout);
    wf_dim local[3];

    for (int i = 0; t && i < 3; i++) /* heads stay heads: the gradient must come back as such */
        local[i] = (wf_dim){t->local[i], dims[i].grain, dims[i].chunks};
    return wf_tensor_view(t, 3, local, NULL);
}

/* from_local: the gradient of a part is the part of the gradient, whatever layout that came in.
 */
static wf_status from_local(wf_rank *rank, wf_mesh *mesh, const wf_layout *a,
                            const wf_layout *c)
{
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf, *x, *grad;

    wf_scope_open(ctx);
    leaf = wf_leaf(part(mesh, a));
    x = wf_from_local(leaf, 3, dims, a);
    GOOD(check_tensor(rank, x, 0, a, a));
    NEED(x->data == leaf->data);
    GOOD(wf_backward(x, make_tensor(ctx, WF_F32, 1, 3, dims, c), false));
    grad = leaf->grad;
    NEED(grad && !grad->layout);
    for (int i = 0; i < 3; i++)
        NEED(wf_dim_equal(grad->dim[i], leaf->dim[i]));
    grad = wf_tensor_view(grad, 3, dims, wf_layout_dual(mesh, a));
    GOOD(check_tensor(rank, grad, 1, c, wf_layout_dual(mesh, a)));
    wf_scope_close(ctx);
    wf_tape_close(tape);
    NEED(in_use(ctx) == 0);
    return WF_OK;
}

/* to_local: the ranks' gradients of their parts make up that of x as grad_layout says. */
static wf_status to_local(wf_rank *rank, wf_mesh *mesh, const wf_layout *a, const wf_layout *c)
{
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *leaf, *y, *seed;

    wf_scope_open(ctx);
    leaf = wf_leaf(make_tensor(ctx, WF_F32, 0, 3, dims, a));
    y = wf_to_local(leaf, c);
    NEED(y && !y->layout && y->data == leaf->data);
    for (int i = 0; i < 3; i++)
        NEED(y->dim[i].size == leaf->local[i]);
    seed = make_tensor(ctx, WF_F32, 1, 3, dims, c);
    GOOD(wf_backward(y, wf_tensor_view(seed, 3, y->dim, NULL), false));
    GOOD(check_tensor(rank, leaf->grad, 1, c, wf_layout_dual(mesh, a)));
    wf_scope_close(ctx);
    wf_tape_close(tape);
    NEED(in_use(ctx) == 0);
    return WF_OK;
}

static wf_status local_gradients(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *all[MAX_LAYOUTS];
    int n = all_layouts(mesh, 2, true, all);

    (void)arg;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            if ((all[i] && all[i]->max) || (all[j] && all[j]->max))
                continue;
            GOOD(from_local(rank, mesh, all[i], all[j]));
            if (wf_layout_dual(mesh, all[i]) == wf_layout_dual(mesh, all[j]))
                GOOD(to_local(rank, mesh, all[i], all[j]));
        }
    return WF_OK;
}

/*
 * A gain that all ranks share, used by each on its own rows: y[i, j] = x[i, j] gain[i, j mod
 * ..] would be wrong by a factor of the ranks if their shares of its gradient were taken for
 * copies.
 */
static wf_status shared_gain(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *sum = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    const wf_dim x_dims[] = {wf_dim_batch(7), wf_dim_width(4)};
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    float x[7 * 4], gain[4] = {1, -2, 3, 0.5f}, dy[7 * 4], whole[4] = {0};
    wf_tensor *rows, *leaf, *local, *y;

    (void)arg;
    for (int i = 0; i < 7 * 4; i++) {
        x[i] = (float)(i % 5) - 2;
        dy[i] = (float)(i % 3) + 1;
        whole[i % 4] += x[i] * dy[i]; /* small integers: exact in any order */
    }
    leaf = wf_leaf(wf_distribute(ctx, gain, WF_F32, 1, &x_dims[1], NULL));
    rows = wf_to_local(wf_distribute(ctx, x, WF_F32, 2, x_dims, split), split);
    local = wf_to_local(leaf, sum);
    y = wf_mul(rows, wf_batch_expand(local, rows));
    y = wf_whole(wf_from_local(y, 2, x_dims, split));
    if (!y)
        return give_up(rank, ctx);
    for (int i = 0; i < 7 * 4; i++)
        NEED(((float *)y->data)[i] == x[i] * gain[i % 4]);
    GOOD(wf_backward(y, wf_distribute(ctx, dy, WF_F32, 2, x_dims, NULL), false));
    NEED(leaf->grad && !leaf->grad->layout);
    for (int i = 0; i < 4; i++)
        NEED(((float *)leaf->grad->data)[i] == whole[i]);
    wf_tape_close(tape);
    return WF_OK;
}

static void local_parts(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = local_gradients});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = local_gradients});
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = shared_gain});
}

/* Rows of whatever this rank has: they are its part of a tensor of the same layout. */
static wf_status take_rows(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_dim sizes[] = {wf_dim_batch(11), wf_dim_width(3)};
    wf_context *ctx = mesh->ctx;
    const wf_layout *list[MAX_LAYOUTS];
    int n = all_layouts(mesh, 2, true, list);

    (void)arg;
    for (int i = 0; i < n; i++) {
        wf_tensor *t = make_tensor(ctx, WF_F32, 1, 2, sizes, list[i]);
        int64_t row;

        NEED(t);
        row = t->local[1];
        for (int64_t first = 0; first <= t->local[0]; first++)
            for (int64_t count = 0; count <= t->local[0] - first; count++) {
                wf_tensor *rows = wf_tensor_rows(t, first, count), *again;

                NEED(rows && rows->layout == t->layout && rows->local[0] == count);
                NEED(rows->local[1] == row && rows->start[0] == t->start[0] + first);
                NEED(rows->data == (float *)t->data + first * row);
                again = wf_tensor_fake(ctx, WF_F32, 2, rows->dim, rows->layout);
                NEED(again && again->local[0] == count && again->local[1] == row);
            }
    }
    return WF_OK;
}

static void rows_of_parts(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 3}, .body = take_rows});
}

static wf_status errors(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *second = wf_layout_split(mesh, NULL, 1, 0);
    const wf_layout *last = wf_layout_split(mesh, NULL, 3, 0);
    const wf_layout *sum = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_SUM);
    static const float array[COUNT];
    wf_context *ctx = mesh->ctx;
    wf_tensor *x = wf_distribute(ctx, array, WF_F32, 3, dims, split);
    wf_tensor *local = wf_to_local(x, split);

    (void)arg;
    NEED(x && local);
    NEED(!wf_from_local(NULL, 3, dims, split) && !wf_to_local(NULL, split) && !wf_whole(NULL));
    NEED(wf_context_status(ctx) == WF_OK);
    GOOD(refused(rank, ctx, wf_distribute(ctx, array, WF_F32, 3, dims, sum), WF_ELAYOUT,
                 "choose a layout that is not partial"));
    GOOD(refused(rank, ctx, wf_distribute(ctx, array, WF_F32, 3, dims, last), WF_ELAYOUT,
                 "[*, *, *, a] splits dim 3, but the tensor has 3 dims"));
    GOOD(refused(rank, ctx, wf_from_local(local, 3, dims, NULL), WF_ESHAPE,
                 "this rank's part of dim 0 (5 in all) has size 5, but the tensor has"));
    GOOD(refused(rank, ctx, wf_from_local(local, 3, dims, second), WF_ESHAPE, "dim 0"));
    GOOD(refused(rank, ctx, wf_from_local(local, 3, dims, last), WF_ELAYOUT, "splits dim 3"));
    GOOD(refused(rank, ctx, wf_from_local(local, 2, dims, split), WF_ESHAPE, "of 2 dims"));
    GOOD(refused(rank, ctx, wf_from_local(x, 3, dims, split), WF_ESHAPE, "without layout"));
    GOOD(refused(rank, ctx, wf_to_local(x, NULL), WF_ELAYOUT,
                 "the gradient's layout whole may differ from the tensor's, f32 [5,12,3] [a]"));
    GOOD(refused(rank, ctx, wf_to_local(x, second), WF_ELAYOUT, "only in what is partial"));
    return WF_OK;
}

static void failures(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = errors});
}

int main(void)
{
    static const wf_test tests[] = {{"arrays there and back", arrays},
                                    {"parts of one rank and their gradients", local_parts},
                                    {"rows of parts", rows_of_parts},
                                    {"failures", failures},
                                    {NULL, NULL}};

    return wf_test_main("distribute", tests);
}
