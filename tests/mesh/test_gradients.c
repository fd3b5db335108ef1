/*
 * tests/mesh/test_gradients.c - what gradients may not be across ranks: sums that meet before
 * they are taken, of a maximum, of members that are split differently; and borders that vectors
 * pass, or that are crossed a second time in backward.
 *
 * ctest: builds plain address thread
 */
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/mesh/mesh_harness.h"

static wf_tensor *ones_like(const wf_tensor *t)
{
    wf_tensor *one = t ? wf_tensor_like(t, WF_MEMORY_ACTIVATION) : NULL;

    return one && wf_init_fill(one, 1) == WF_OK ? one : NULL;
}

static wf_tensor *ones(wf_mesh *mesh, int ndim, const wf_dim *dims, const wf_layout *layout)
{
    wf_tensor *t = wf_tensor_new(mesh->ctx, WF_F32, ndim, dims, layout, WF_MEMORY_ACTIVATION);

    return t && wf_init_fill(t, 1) == WF_OK ? t : NULL;
}

static bool all_are(const wf_tensor *t, float value)
{
    bool all = t != NULL;

    for (int64_t e = 0; all && e < wf_tensor_local_count(t); e++)
        all = ((const float *)t->data)[e] == value;
    return all;
}

/* The gradients of two uses of w are sums over the ranks' rows of x: reduce(a) + reduce(b) has
   other bits than reduce(a + b), so w needs a border at each use. */
static wf_status partial_sums_that_meet(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_dim x_dims[] = {wf_dim_batch(4), wf_dim_width(3)};
    const wf_dim w_dims[] = {wf_dim_width(3), wf_dim_width(3)};
    wf_context *ctx = mesh->ctx;
    wf_tensor *x = ones(mesh, 2, x_dims, wf_layout_split(mesh, NULL, 0, 0));

    (void)arg;
    for (int way = 0; way < 3; way++) { /* a leaf, what an op made, a border at each use */
        wf_tape *tape = wf_tape_open(ctx);
        wf_tensor *w = wf_leaf(ones(mesh, 2, w_dims, NULL)), *used[2], *y;

        for (int i = 0; i < 2; i++)
            used[i] = way == 2 ? wf_redistribute(w, NULL) : w;
        if (way == 1)
            used[0] = used[1] = wf_redistribute(w, NULL);
        y = wf_linear(wf_linear(x, used[0]), used[1]);
        if (way == 2) {
            GOOD(wf_backward(y, ones_like(y), false));
            NEED(all_are(w->grad, 4 * 3 + 4 * 3));
        } else {
            NEED(wf_backward(y, ones_like(y), false) == WF_ELAYOUT);
            GOOD(refused(rank, ctx, NULL, WF_ELAYOUT, "meet as partial sums"));
        }
        wf_tape_close(tape);
    }
    return WF_OK;
}

/* Only one rank had the maximum, and nobody knows which: no gradient comes back through it. */
static wf_status maximum(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *max = wf_layout_partial(mesh, NULL, 0, WF_REDUCE_MAX);
    const wf_dim dim = wf_dim_width(5);
    wf_context *ctx = mesh->ctx;
    wf_tensor *other = ones(mesh, 1, &dim, NULL), *x = wf_tensor_view(other, 1, &dim, max), *y;
    wf_tape *tape = wf_tape_open(ctx);

    (void)arg;
    GOOD(refused(rank, ctx, wf_redistribute(wf_leaf(x), NULL), WF_EUNSUPPORTED,
                 "a maximum over ranks has no gradient, but f32 [5] max(a) wants one"));
    GOOD(refused(rank, ctx, wf_whole(wf_from_local(wf_leaf(other), 1, &dim, max)),
                 WF_EUNSUPPORTED, "pass it through wf_detach first"));
    NEED(wf_redistribute(wf_leaf(x), max)); /* it is not taken */
    other = wf_leaf(other);
    y = wf_mul(other, wf_redistribute(wf_detach(wf_leaf(x)), NULL));
    GOOD(wf_backward(y, ones_like(y), false));
    NEED(all_are(other->grad, 1));
    wf_tape_close(tape);
    NEED(wf_redistribute(wf_leaf(x), NULL)); /* nobody asks for gradients */
    return wf_context_status(ctx);
}

/* Whatever layouts a group accepts, its gradient can be made. */
static wf_status groups_go_back(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_dim x_dims[] = {wf_dim_batch(4), wf_dim_chunked(5)};
    const wf_dim w_dims[] = {wf_dim_chunked(6), wf_dim_chunked(5)};
    const wf_layout *all[MAX_LAYOUTS];
    wf_context *ctx = mesh->ctx;
    int n = all_layouts(mesh, 2, false, all), accepted = 0, apart = 0;

    (void)arg;
    for (int i = 0; i < n * n * n; i++) {
        const wf_layout *layout[] = {all[i % n], all[i / n % n], all[i / n / n]};
        wf_tensor *x, *w[2], *y[2], *z;
        wf_tape *tape;

        wf_scope_open(ctx);
        tape = wf_tape_open(ctx);
        x = wf_leaf(ones(mesh, 2, x_dims, layout[0]));
        for (int m = 0; m < 2; m++)
            w[m] = wf_leaf(ones(mesh, 2, w_dims, layout[1 + m]));
        wf_linear_group(x, 2, w, y);
        if (wf_context_status(ctx) == WF_OK) {
            for (int m = 0; m < 2; m++)
                y[m] = wf_whole(y[m]);
            z = wf_add(y[0], y[1]);
            GOOD(wf_backward(z, ones_like(z), false));
            x = wf_whole(x->grad);
            NEED(all_are(x, 12) && all_are(wf_whole(w[1]->grad), 4));
            accepted++;
        } else {
            apart += strstr(wf_context_error(ctx)->text,
                            "are split by different axes, but the gradient "
                            "of operand 0 is one sum over both") != NULL;
            GOOD(refused(rank, ctx, NULL, WF_ELAYOUT, "linear2"));
        }
        wf_tape_close(tape);
        wf_scope_close(ctx);
    }
    NEED(accepted > 3 && apart > 1);
    return WF_OK;
}

/* A destination has the result's layout, or its elements would be taken for others. */
static wf_status into_another_layout(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *rows = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *columns = wf_layout_split(mesh, NULL, 1, 0);
    const wf_dim dims[] = {wf_dim_width(4), wf_dim_width(4)};
    wf_tensor *dy = ones(mesh, 2, dims, rows), *w = ones(mesh, 2, dims, NULL);
    wf_tensor *wrong = ones(mesh, 2, dims, columns), *right = ones(mesh, 2, dims, rows);

    (void)arg;
    NEED(wf_tensor_local_count(wrong) == wf_tensor_local_count(right));
    GOOD(refused(rank, mesh->ctx, wf_linear_dx_into(1, &dy, &w, wrong), WF_ESHAPE,
                 "output 0 cannot go into f32 [4,4] [*, a]"));
    NEED(all_are(wrong, 1));
    NEED(wf_linear_dx_into(1, &dy, &w, right) == right && all_are(right, 4));
    return WF_OK;
}

/* A bias that is split at rest: its gradient is like it where user code redistributes it, and
   has a row per sequence, split as it is, behind the border of one axis that a plan sets. */
static wf_status biases(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *split = wf_layout_split(mesh, NULL, 0, 0), *whole = NULL;
    const wf_dim dims[] = {wf_dim_batch(4), wf_dim_chunked(3), wf_dim_chunked(6)};
    wf_context *ctx = mesh->ctx;
    wf_tape *tape = wf_tape_open(ctx);
    wf_tensor *bias = wf_leaf(ones(mesh, 1, &dims[2], split)), *y, *b;

    (void)arg;
    b = wf_redistribute(bias, NULL);
    y = wf_bias_add(ones(mesh, 3, dims, split), b);
    GOOD(wf_backward(y, ones_like(y), false));
    NEED(bias->grad && bias->grad->ndim == 1 && bias->grad->layout == split);
    NEED(all_are(bias->grad, 12));
    bias = wf_leaf(bias);
    GOOD(wf_border(0, 1, &bias, &whole, &b));
    y = wf_bias_add(ones(mesh, 3, dims, NULL), b);
    GOOD(wf_backward(y, ones_like(y), false));
    NEED(bias->grad && bias->grad->ndim == 2 && all_are(bias->grad, 3));
    NEED(mesh->ranks == 1 || bias->grad->layout == wf_layout_split(mesh, NULL, 1, 0));
    wf_tape_close(tape);
    return wf_context_status(ctx);
}

/* Repeated along dims that axes split: the sum over dim 0 is made last and may be partial, of
   others the whole is needed. */
static wf_status repeated_dims(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_dim dims[] = {wf_dim_batch(4), wf_dim_chunked(4), wf_dim_width(3)};
    const wf_dim one[] = {wf_dim_width(1), wf_dim_width(1), wf_dim_width(3)};
    const wf_layout *rows = wf_layout_split(mesh, NULL, 0, 0);
    const wf_layout *both = wf_layout_split(mesh, rows, 1, 1);
    wf_tape *tape = wf_tape_open(mesh->ctx);
    wf_tensor *x = wf_leaf(ones(mesh, 3, one, NULL)), *y = wf_mul(x, ones(mesh, 3, dims, rows));

    (void)arg;
    GOOD(wf_backward(y, ones_like(y), false));
    NEED(all_are(wf_whole(x->grad), 16));
    x = wf_leaf(ones(mesh, 3, one, NULL));
    y = wf_mul(x, ones(mesh, 3, dims, both));
    GOOD(wf_backward(y, ones_like(y), false));
    NEED(all_are(wf_whole(x->grad), 16));
    wf_tape_close(tape);
    return WF_OK;
}

/* An input that was gathered, and is gathered again for the gradient of a weight that was
   computed: of the rows that the forward pass has seen. */
static wf_status regathered(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *rows = wf_layout_split(mesh, NULL, 1, 0);
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_chunked(4), wf_dim_width(3)};
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int changed = 0; changed < 2; changed++)
        for (int computed = 0; computed < 2; computed++) {
            wf_tape *tape = wf_tape_open(ctx);
            wf_tensor *part = ones(mesh, 3, dims, rows), *x = wf_redistribute(part, NULL);
            wf_tensor *w = wf_leaf(ones(mesh, 2, (wf_dim[]){dims[2], dims[2]}, NULL)), *y;

            wf_keep_origin(x, part);
            y = wf_linear(x, computed ? wf_scale(w, 2) : w);
            if (changed)
                wf_init_scale(part, 3);
            if (changed && mesh->ranks > 1) { /* one rank has but one tensor */
                NEED(wf_backward(y, ones_like(y), false) == WF_EINVAL);
                GOOD(refused(rank, ctx, NULL, WF_EINVAL,
                             "linear1: operand 0, f32 [2,4,3] [*, a], was changed in place"));
            } else if (!changed) {
                GOOD(wf_backward(y, ones_like(y), false));
                NEED(all_are(w->grad, computed ? 16 : 8));
            }
            wf_tape_close(tape);
        }
    return WF_OK;
}

static void sums_that_meet(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = partial_sums_that_meet});
}

static void maxima(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {3}, .body = maximum});
}

static void groups(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = groups_go_back});
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = groups_go_back});
}

static void into(void)
{
    on_mesh((mesh_test){.n_axes = 1, .size = {2}, .body = into_another_layout});
}

static void borders(void)
{
    for (int ranks = 1; ranks < 4; ranks++) {
        on_mesh((mesh_test){.n_axes = 1, .size = {ranks}, .body = biases});
        on_mesh((mesh_test){.n_axes = 1, .size = {ranks}, .body = regathered});
    }
}

static void broadcasts(void)
{
    on_mesh((mesh_test){.n_axes = 2, .size = {2, 2}, .body = repeated_dims});
}

int main(void)
{
    static const wf_test tests[] = {{"partial sums that meet", sums_that_meet},
                                    {"maxima", maxima},
                                    {"groups that are accepted go back", groups},
                                    {"into another layout", into},
                                    {"borders of vectors and of origins", borders},
                                    {"broadcasts", broadcasts},
                                    {NULL, NULL}};

    return wf_test_main("gradients", tests);
}
