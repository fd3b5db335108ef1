/*
 * dtensor.c - tensors over a mesh, by hand: distribute, compute, redistribute, from and to
 * local, the whole tensor, and the gradients of all that. In PyTorch's words:
 * distribute_tensor, redistribute, from_local, to_local, full_tensor; split is Shard(dim),
 * whole is Replicate, partial is Partial.
 *
 * Four ranks, 2 x 2: axis dp splits the batch, axis tp the summed dim of a product. Every rank
 * checks every number, and the first one prints.
 */
#include <weft/weft.h>
#include <stdio.h>

enum { BATCH = 4, IN = 6, OUT = 5, DP = 2, TP = 2 };

typedef struct rank {
    wf_context *ctx;
    wf_mesh *mesh;
    int dp, tp; /* the axes */
    bool prints;
} rank;

static float x_at(int b, int k)
{
    return (float)(b + 1) * (float)(k - 2);
}

static float weight_at(int n, int k)
{
    return (float)(n - k);
}

static void show(const rank *r, const char *what, const wf_tensor *t)
{
    char text[256];

    if (!r->prints || !t)
        return;
    printf("  %-34s %-36s here:", what, wf_tensor_describe(t, text, sizeof text));
    for (int i = 0; i < t->ndim; i++)
        printf(" %lld..%lld", (long long)t->start[i], (long long)(t->start[i] + t->local[i]));
    printf("\n");
}

/* This rank's part of t against what it should be at global (i, j). */
static wf_status expect(const char *what, const wf_tensor *t, float (*value)(int, int))
{
    const float *at = t ? t->data : NULL;

    for (int64_t i = 0; t && i < t->local[0]; i++)
        for (int64_t j = 0; j < t->local[1]; j++, at++) {
            int row = (int)(t->start[0] + i), column = (int)(t->start[1] + j);

            if (*at != value(row, column))
                return wf_fail(t->ctx, WF_EINTERNAL, "%s: %g at (%d, %d), expected %g", what,
                               (double)*at, row, column, (double)value(row, column));
        }
    return WF_OK;
}

static wf_tensor *ones_like(const wf_tensor *t)
{
    wf_tensor *one =
        t ? wf_tensor_new(t->ctx, t->dtype, t->ndim, t->dim, t->layout, WF_MEMORY_ACTIVATION)
          : NULL;

    return one && wf_init_fill(one, 1) == WF_OK ? one : NULL;
}

static float product_at(int b, int n)
{
    float sum = 0;

    for (int k = 0; k < IN; k++)
        sum += x_at(b, k) * weight_at(n, k);
    return sum;
}

static float weight_gradient_at(int n, int k) /* the gradient of the sum of all products */
{
    float sum = 0;

    (void)n;
    for (int b = 0; b < BATCH; b++)
        sum += x_at(b, k);
    return sum;
}

/* y = x W^T with the batch split over dp and the summed dim over tp, and W's gradient. */
static wf_status product(const rank *r)
{
    float x_whole[BATCH][IN], weight_whole[OUT][IN];
    wf_dim x_dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(IN)};
    wf_dim weight_dims[] = {wf_dim_width(OUT), wf_dim_chunked(IN)};
    const wf_layout *by_dp = wf_layout_split(r->mesh, NULL, 0, r->dp);
    const wf_layout *x_layout = wf_layout_split(r->mesh, by_dp, 1, r->tp);
    const wf_layout *weight_layout = wf_layout_split(r->mesh, NULL, 1, r->tp);
    wf_tensor *x, *weight, *y, *sum, *all;
    wf_tape *tape = wf_tape_open(r->ctx);

    for (int k = 0; k < IN; k++) {
        for (int b = 0; b < BATCH; b++)
            x_whole[b][k] = x_at(b, k);
        for (int n = 0; n < OUT; n++)
            weight_whole[n][k] = weight_at(n, k);
    }
    x = wf_distribute(r->ctx, x_whole, WF_F32, 2, x_dims, x_layout);
    weight =
        wf_leaf(wf_distribute(r->ctx, weight_whole, WF_F32, 2, weight_dims, weight_layout));
    show(r, "distribute x", x);
    show(r, "distribute weight", weight);
    y = wf_linear(x, weight);
    show(r, "linear(x, weight)", y);
    sum = wf_redistribute(y, by_dp); /* all-reduce over tp */
    show(r, "redistribute: the sum taken", sum);
    expect("product", sum, product_at);
    all = wf_whole(sum); /* all-gather over dp */
    show(r, "whole", all);
    expect("whole product", all, product_at);
    if (wf_backward(all, ones_like(all), false) == WF_OK) {
        show(r, "gradient of weight, as it falls", weight->grad);
        sum = wf_redistribute(weight->grad, weight_layout); /* all-reduce over dp */
        show(r, "redistribute: as weight is", sum);
        expect("gradient of weight", sum, weight_gradient_at);
    }
    wf_tape_close(tape);
    return wf_context_status(r->ctx);
}

static float square_gradient_at(int i, int j)
{
    return 2 * x_at(i, j);
}

/* Each rank brings a part that it made itself, and gets the gradient of just that part. */
static wf_status local_parts(const rank *r)
{
    wf_dim part_dims[] = {wf_dim_width(BATCH / DP), wf_dim_width(IN / TP)};
    wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(IN)};
    const wf_layout *layout =
        wf_layout_split(r->mesh, wf_layout_split(r->mesh, NULL, 0, r->dp), 1, r->tp);
    int row = wf_mesh_coordinate(r->mesh, r->dp) * (BATCH / DP);
    int column = wf_mesh_coordinate(r->mesh, r->tp) * (IN / TP);
    wf_tensor *part = wf_tensor_new(r->ctx, WF_F32, 2, part_dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tape *tape = wf_tape_open(r->ctx);
    wf_tensor *x, *square, *gradient;

    for (int i = 0; part && i < BATCH / DP; i++)
        for (int j = 0; j < IN / TP; j++)
            ((float *)part->data)[i * (IN / TP) + j] = x_at(row + i, column + j);
    part = wf_leaf(part);
    x = wf_from_local(part, 2, dims, layout);
    show(r, "from_local", x);
    expect("from_local, whole", wf_whole(wf_detach(x)), x_at);
    square = wf_mul(x, x);
    if (wf_backward(square, ones_like(square), false) == WF_OK) {
        gradient = wf_from_local(part->grad, 2, dims, layout);
        show(r, "gradient of the local part", part->grad);
        expect("gradient through from_local", gradient, square_gradient_at);
    }
    wf_tape_close(tape);
    return wf_context_status(r->ctx);
}

static float sum_of_shares_at(int i, int j)
{
    (void)i;
    (void)j;
    return 1 + 2;
}

/*
 * Every rank has all of x, and uses it for its own share of a result: rank t along tp scales it
 * by t + 1. The gradient of x is the sum of what the ranks find: their gradients are partial,
 * and only the caller can know that.
 */
static wf_status own_shares(const rank *r)
{
    wf_dim dims[] = {wf_dim_width(2), wf_dim_width(3)};
    const wf_layout *partial = wf_layout_partial(r->mesh, NULL, r->tp, WF_REDUCE_SUM);
    wf_tensor *x = wf_leaf(wf_tensor_new(r->ctx, WF_F32, 2, dims, NULL, WF_MEMORY_ACTIVATION));
    wf_tape *tape = wf_tape_open(r->ctx);
    wf_tensor *mine, *share;

    if (x)
        wf_init_fill(x, 1);
    mine = wf_to_local(x, partial);
    show(r, "to_local", mine);
    share = wf_scale(mine, (float)(wf_mesh_coordinate(r->mesh, r->tp) + 1));
    if (wf_backward(share, ones_like(share), false) == WF_OK) {
        show(r, "gradient through to_local", x->grad);
        expect("gradient through to_local", x->grad, sum_of_shares_at);
    }
    wf_tape_close(tape);
    return wf_context_status(r->ctx);
}

/* Ops never communicate: operands that do not fit are an error, with the way out in its text.
 */
static wf_status refused(const rank *r)
{
    wf_dim x_dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(IN)};
    wf_dim weight_dims[] = {wf_dim_width(OUT), wf_dim_chunked(IN)};
    const wf_layout *layout = wf_layout_split(r->mesh, NULL, 1, r->tp);
    wf_tensor *x = wf_tensor_new(r->ctx, WF_F32, 2, x_dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *weight =
        wf_tensor_new(r->ctx, WF_F32, 2, weight_dims, layout, WF_MEMORY_ACTIVATION);

    if (wf_linear(x, weight) || wf_context_status(r->ctx) != WF_ELAYOUT)
        return wf_fail(r->ctx, WF_EINTERNAL, "operands that do not fit were not refused");
    if (r->prints)
        printf("refused, as it should be:\n  %s\n", wf_context_error(r->ctx)->text);
    wf_context_clear(r->ctx);
    return WF_OK;
}

static wf_status run(const rank *r)
{
    static wf_status (*const part[])(const rank *) = {product, local_parts, own_shares,
                                                      refused};
    static const char *const title[] = {"a product over the mesh", "parts made by each rank",
                                        "a share of each rank", "what does not fit"};
    wf_status status = WF_OK;

    for (int i = 0; i < 4 && status == WF_OK; i++) {
        if (r->prints)
            printf("%s\n", title[i]);
        wf_scope_open(r->ctx);
        status = part[i](r);
        wf_scope_close(r->ctx);
    }
    return status;
}

static wf_status rank_main(wf_rank *self, void *arg)
{
    const wf_axis axes[] = {{"dp", DP}, {"tp", TP}};
    wf_device *device = wf_cpu_device(1, &self->error);
    rank r = {.prints = self->index == 0};
    wf_status status = WF_OK;

    (void)arg;
    r.ctx = device ? wf_context_open(device, &(wf_context_options){.rank = self->index},
                                     &self->error)
                   : NULL;
    r.mesh = r.ctx ? wf_mesh_open(r.ctx, self->world, 2, axes, &self->error) : NULL;
    if (r.mesh) {
        r.dp = wf_mesh_axis(r.mesh, "dp");
        r.tp = wf_mesh_axis(r.mesh, "tp");
        status = run(&r);
        if (status != WF_OK)
            wf_error_set(&self->error, status, "%s", wf_context_error(r.ctx)->text);
    }
    wf_mesh_close(r.mesh);
    wf_context_close(r.ctx);
    return self->error.code;
}

int main(void)
{
    wf_launch_options launch = {.ranks = DP * TP};
    wf_error error = {WF_OK, ""};

    if (wf_launch(&launch, rank_main, NULL, &error) != WF_OK)
        fprintf(stderr, "%s\n", error.text);
    return error.code != WF_OK;
}
