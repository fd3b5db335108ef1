/*
 * kernels/cuda/cudnn/attention.c - causal attention and its gradient as cuDNN's operations.
 * cuDNN recognises these graphs and runs each as one kernel (NVIDIA's cudnn-frontend makes them
 * of the same operations; the native descriptors know no causal mask before cuDNN 9.21).
 *
 *     s = q k^T scale, -inf where the key is later      lse = max s + log sum e^(s - max s)
 *     p = e^(s - max s) / sum                           y = p v
 *
 *     p = e^(s - lse), ds = p (dy v^T - y . dy) scale   dv = p^T dy, dk = ds^T q, dq = ds k
 *
 * Under a cap s is cap tanh(s / cap) before it is masked, and ds has the factor 1 - tanh^2; in
 * a window a score is -inf where the key is before it, too.
 *
 * Tensors are [batch, heads, tokens, dim] to cuDNN, by strides over our [batch, tokens, heads,
 * dim]; transposed factors are swapped strides. p and ds are bf16 where a product takes them.
 */
#include "kernels/cuda/cudnn/graph_internal.h"

#define F32   CUDNN_DATA_FLOAT
#define BF16  CUDNN_DATA_BFLOAT16
#define INT32 CUDNN_DATA_INT32

/* The shapes of a call. */
typedef struct shapes {
    wf_cudnn_shape q, k, k_transposed, rows, scores, scores_transposed, lse;
} shapes;

static wf_cudnn_shape packed(int64_t b, int64_t h, int64_t s, int64_t t)
{
    return (wf_cudnn_shape){{b, h, s, t}, {h * s * t, s * t, t, 1}};
}

/* Dims 2 and 3 swapped, in the same memory. */
static wf_cudnn_shape transposed(const wf_cudnn_shape *s)
{
    return (wf_cudnn_shape){{s->dim[0], s->dim[1], s->dim[3], s->dim[2]},
                            {s->stride[0], s->stride[1], s->stride[3], s->stride[2]}};
}

/* [batch, tokens, heads, dim] in memory. */
static wf_cudnn_shape by_tokens(int64_t b, int64_t h, int64_t s, int64_t d)
{
    return (wf_cudnn_shape){{b, h, s, d}, {s * h * d, d, h * d, 1}};
}

static shapes shapes_of(const wf_cudnn_heads *a)
{
    shapes s = {.q = by_tokens(a->batch, a->heads, a->tokens, a->dim),
                .k = by_tokens(a->batch, a->groups, a->tokens, a->dim),
                .rows = packed(a->batch, a->heads, a->tokens, 1),
                .scores = packed(a->batch, a->heads, a->tokens, a->tokens),
                .lse = by_tokens(a->batch, a->heads, a->tokens, 1)};

    s.k_transposed = transposed(&s.k);
    s.scores_transposed = transposed(&s.scores);
    return s;
}

static wf_cudnn_descriptor elementwise(wf_cudnn_graph *g, cudnnPointwiseMode_t mode,
                                       wf_cudnn_descriptor x, wf_cudnn_descriptor b,
                                       const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor y = wf_cudnn_virtual(g, F32, shape);

    wf_cudnn_pointwise(g, mode, F32, x, b, NULL, y, -1);
    return y;
}

static wf_cudnn_descriptor product(wf_cudnn_graph *g, wf_cudnn_descriptor a,
                                   wf_cudnn_descriptor b, const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor c = wf_cudnn_virtual(g, F32, shape);

    wf_cudnn_matmul(g, a, b, c);
    return c;
}

static wf_cudnn_descriptor reduction(wf_cudnn_graph *g, cudnnReduceTensorOp_t how,
                                     wf_cudnn_descriptor x, const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor y = wf_cudnn_virtual(g, F32, shape);

    wf_cudnn_reduce(g, how, x, y);
    return y;
}

/* x as bf16 in another shape. */
static wf_cudnn_descriptor reshaped(wf_cudnn_graph *g, wf_cudnn_descriptor x,
                                    const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor y = wf_cudnn_virtual(g, BF16, shape);

    wf_cudnn_reshape(g, x, y);
    return y;
}

/* The index along a dim of each element of x. */
static wf_cudnn_descriptor index_along(wf_cudnn_graph *g, wf_cudnn_descriptor x,
                                       const wf_cudnn_shape *shape, int64_t axis)
{
    wf_cudnn_descriptor y = wf_cudnn_virtual(g, INT32, shape);

    wf_cudnn_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, INT32, x, NULL, NULL, y, axis);
    return y;
}

/* x where a compares with b as `mode` says, else -inf. */
static wf_cudnn_descriptor where(wf_cudnn_graph *g, wf_cudnn_descriptor x,
                                 cudnnPointwiseMode_t mode, wf_cudnn_descriptor a,
                                 wf_cudnn_descriptor b, const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor seen = wf_cudnn_virtual(g, CUDNN_DATA_BOOLEAN, shape);
    wf_cudnn_descriptor lowest = wf_cudnn_scalar(g, WF_CUDNN_LOWEST, F32);
    wf_cudnn_descriptor y = wf_cudnn_virtual(g, F32, shape);

    wf_cudnn_pointwise(g, mode, CUDNN_DATA_BOOLEAN, a, b, NULL, seen, -1);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_BINARY_SELECT, F32, x, lowest, seen, y, -1);
    return y;
}

/* x where the query's index is at least the key's, and below the key's + window where there is
   one; else -inf. In these operations and this order cuDNN knows the masks. */
static wf_cudnn_descriptor masked(wf_cudnn_graph *g, const wf_cudnn_heads *a,
                                  wf_cudnn_descriptor x, const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor query = index_along(g, x, shape, 2), key = index_along(g, x, shape, 3);
    wf_cudnn_descriptor end;

    x = where(g, x, CUDNN_POINTWISE_CMP_GE, query, key, shape);
    if (a->window == 0)
        return x;
    query = index_along(g, x, shape, 2);
    key = index_along(g, x, shape, 3);
    end = wf_cudnn_virtual(g, INT32, shape);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_ADD, INT32, key,
                       wf_cudnn_scalar(g, WF_CUDNN_WINDOW, INT32), NULL, end, -1);
    return where(g, x, CUDNN_POINTWISE_CMP_GT, end, query, shape);
}

/* A score under its cap, and x / cap in *inside, of which a gradient has need; without a cap
   x. */
static wf_cudnn_descriptor capped(wf_cudnn_graph *g, const wf_cudnn_heads *a,
                                  wf_cudnn_descriptor x, const wf_cudnn_shape *shape,
                                  wf_cudnn_descriptor *inside)
{
    wf_cudnn_descriptor cap;

    if (!a->capped)
        return x;
    cap = wf_cudnn_scalar(g, WF_CUDNN_CAP, F32);
    *inside = elementwise(g, CUDNN_POINTWISE_DIV, x, cap, shape);
    x = elementwise(g, CUDNN_POINTWISE_TANH_FWD, *inside, NULL, shape);
    return elementwise(g, CUDNN_POINTWISE_MUL, x, cap, shape);
}

/* The gradient of what was capped, from that of the result: cap tanh'(inside) / cap. */
static wf_cudnn_descriptor capped_gradient(wf_cudnn_graph *g, const wf_cudnn_heads *a,
                                           wf_cudnn_descriptor ds, wf_cudnn_descriptor inside,
                                           const wf_cudnn_shape *shape)
{
    wf_cudnn_descriptor cap, y;

    if (!a->capped)
        return ds;
    cap = wf_cudnn_scalar(g, WF_CUDNN_CAP, F32);
    ds = elementwise(g, CUDNN_POINTWISE_MUL, ds, cap, shape);
    y = wf_cudnn_virtual(g, F32, shape);
    wf_cudnn_tanh_gradient(g, ds, inside, y);
    return elementwise(g, CUDNN_POINTWISE_DIV, y, cap, shape);
}

static void forward_graph(wf_cudnn_graph *g, const wf_cudnn_heads *a, const shapes *s)
{
    wf_cudnn_descriptor q = wf_cudnn_tensor(g, WF_CUDNN_Q, BF16, &s->q);
    wf_cudnn_descriptor k = wf_cudnn_tensor(g, WF_CUDNN_K, BF16, &s->k_transposed);
    wf_cudnn_descriptor v = wf_cudnn_tensor(g, WF_CUDNN_V, BF16, &s->k);
    wf_cudnn_descriptor y = wf_cudnn_tensor(g, WF_CUDNN_Y, BF16, &s->q);
    wf_cudnn_descriptor lse = wf_cudnn_tensor(g, WF_CUDNN_LSE, F32, &s->lse);
    wf_cudnn_descriptor scale = wf_cudnn_scalar(g, WF_CUDNN_SCALE, F32);
    wf_cudnn_descriptor score, greatest, e, sum, p, inside;

    score = product(g, q, k, &s->scores);
    score = elementwise(g, CUDNN_POINTWISE_MUL, score, scale, &s->scores);
    score = capped(g, a, score, &s->scores, &inside);
    score = masked(g, a, score, &s->scores);
    greatest = reduction(g, CUDNN_REDUCE_TENSOR_MAX, score, &s->rows);
    e = elementwise(g, CUDNN_POINTWISE_SUB, score, greatest, &s->scores);
    e = elementwise(g, CUDNN_POINTWISE_EXP, e, NULL, &s->scores);
    sum = reduction(g, CUDNN_REDUCE_TENSOR_ADD, e, &s->rows);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_ADD, F32, greatest,
                       elementwise(g, CUDNN_POINTWISE_LOG, sum, NULL, &s->rows), NULL, lse, -1);
    p = wf_cudnn_virtual(g, BF16, &s->scores);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_DIV, F32, e, sum, NULL, p, -1);
    wf_cudnn_matmul(g, p, v, y);
}

/* c = a b for every query head; of grouped heads, their sum for each group. */
static void group_product(wf_cudnn_graph *g, const wf_cudnn_heads *a, wf_cudnn_descriptor left,
                          wf_cudnn_descriptor right, int64_t id, const shapes *s)
{
    wf_cudnn_descriptor result = wf_cudnn_tensor(g, id, BF16, &s->k), all;
    wf_cudnn_shape each = packed(a->batch, a->heads, a->tokens, a->dim);

    if (a->heads == a->groups) {
        wf_cudnn_matmul(g, left, right, result);
        return;
    }
    all = wf_cudnn_virtual(g, BF16, &each);
    wf_cudnn_matmul(g, left, right, all);
    wf_cudnn_reduce(g, CUDNN_REDUCE_TENSOR_ADD, all, result);
}

/* y . dy of every row, in memory: a kernel before the main one makes it. */
static wf_cudnn_descriptor delta(wf_cudnn_graph *g, wf_cudnn_descriptor y,
                                 wf_cudnn_descriptor dy, const shapes *s)
{
    wf_cudnn_descriptor all = elementwise(g, CUDNN_POINTWISE_MUL, dy, y, &s->q), row;
    wf_cudnn_descriptor result = wf_cudnn_tensor(g, WF_CUDNN_DELTA, F32, &s->rows);

    row = reduction(g, CUDNN_REDUCE_TENSOR_ADD, all, &s->rows);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_MUL, F32, row, wf_cudnn_scalar(g, WF_CUDNN_ONE, F32),
                       NULL, result, -1);
    return result;
}

/* Computes dq = ds k: from scores in memory, or in float by additions of tiles, which are in
   one order or in any, and then rounded. */
static void query_gradient(wf_cudnn_graph *g, const wf_cudnn_heads *a, wf_cudnn_descriptor ds,
                           wf_cudnn_descriptor k, const shapes *s)
{
    wf_cudnn_descriptor dq = wf_cudnn_tensor(g, WF_CUDNN_DQ, BF16, &s->q), sum;
    wf_cudnn_shape floats = packed(a->batch, a->heads, a->tokens, a->dim);

    k = reshaped(g, k, &s->k);
    if (a->order == WF_CUDNN_BY_SCORES) {
        wf_cudnn_matmul(g, ds, k, dq);
        return;
    }
    sum = wf_cudnn_tensor(g, WF_CUDNN_DQ_SUM, F32, &floats);
    wf_cudnn_matmul(g, ds, k, sum);
    wf_cudnn_pointwise(g, CUDNN_POINTWISE_IDENTITY, F32, sum, NULL, NULL, dq, -1);
}

static void backward_graph(wf_cudnn_graph *g, const wf_cudnn_heads *a, const shapes *s)
{
    wf_cudnn_descriptor q = wf_cudnn_tensor(g, WF_CUDNN_Q, BF16, &s->q);
    wf_cudnn_descriptor k = wf_cudnn_tensor(g, WF_CUDNN_K, BF16, &s->k_transposed);
    wf_cudnn_descriptor v = wf_cudnn_tensor(g, WF_CUDNN_V, BF16, &s->k_transposed);
    wf_cudnn_descriptor y = wf_cudnn_tensor(g, WF_CUDNN_Y, BF16, &s->q);
    wf_cudnn_descriptor dy = wf_cudnn_tensor(g, WF_CUDNN_DY, BF16, &s->q);
    wf_cudnn_descriptor lse = wf_cudnn_tensor(g, WF_CUDNN_LSE, F32, &s->lse);
    wf_cudnn_descriptor scale = wf_cudnn_scalar(g, WF_CUDNN_SCALE, F32);
    wf_cudnn_descriptor row = delta(g, y, dy, s), p, ds, inside = NULL;

    p = product(g, q, k, &s->scores);
    p = elementwise(g, CUDNN_POINTWISE_MUL, p, scale, &s->scores);
    p = capped(g, a, p, &s->scores, &inside);
    p = elementwise(g, CUDNN_POINTWISE_SUB, p, lse, &s->scores);
    p = masked(g, a, p, &s->scores);
    p = elementwise(g, CUDNN_POINTWISE_EXP, p, NULL, &s->scores);
    group_product(g, a, reshaped(g, p, &s->scores_transposed), dy, WF_CUDNN_DV, s);
    ds = product(g, dy, v, &s->scores);
    ds = elementwise(g, CUDNN_POINTWISE_SUB, ds, row, &s->scores);
    ds = elementwise(g, CUDNN_POINTWISE_MUL, ds, p, &s->scores);
    ds = capped_gradient(g, a, ds, inside, &s->scores);
    ds = elementwise(g, CUDNN_POINTWISE_MUL, ds, scale, &s->scores);
    group_product(g, a, reshaped(g, ds, &s->scores_transposed), q, WF_CUDNN_DK, s);
    query_gradient(g, a, ds, k, s);
}

bool wf_cudnn_attention_graph(wf_cudnn_graph *g, const wf_cudnn_heads *a)
{
    shapes s = shapes_of(a);

    if (a->backward)
        backward_graph(g, a, &s);
    else
        forward_graph(g, a, &s);
    return !g->failed;
}

int64_t wf_cudnn_attention_engine(const wf_cudnn_heads *a)
{
    const int64_t tile = 128, little = 1 << 20;
    int64_t tokens = (a->tokens + tile - 1) / tile * tile, rows = a->batch * a->heads * tokens;
    int64_t bytes = little;

    if (a->backward)
        bytes += a->order == WF_CUDNN_BY_SCORES ? rows * tokens * 2 : rows * a->dim * 4;
    if (a->backward && a->heads != a->groups)
        bytes += 2 * rows * a->dim * 2;
    return bytes;
}

wf_cudnn_engine wf_cudnn_ordered_engine(void)
{
    static const struct {
        cudnnBackendKnobType_t knob;
        int64_t value;
    } knobs[] = {{CUDNN_KNOB_TYPE_TILE_M, 2},     {CUDNN_KNOB_TYPE_TILE_N, 1}, /* 64 x 64 */
                 {CUDNN_KNOB_TYPE_KERNEL_CFG, 2}, {CUDNN_KNOB_TYPE_STREAM_K, 0},
                 {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}, {CUDNN_KNOB_TYPE_STAGES, 4} /* the order */};
    wf_cudnn_engine e = {.index = 6};

    for (size_t i = 0; i < sizeof knobs / sizeof knobs[0]; i++, e.n_knobs++) {
        e.knob[i] = knobs[i].knob;
        e.value[i] = knobs[i].value;
    }
    return e;
}
