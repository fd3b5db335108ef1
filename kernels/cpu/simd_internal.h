/*
 * kernels/cpu/simd_internal.h - the CPU's inner loops: plain functions over pointers, written
 * once in kernels/cpu/simd/ over kernels/cpu/vec_internal.h and compiled for portable C, AVX2
 * and AVX-512.
 *
 * Every function computes each output element by one fixed expression, so the three builds give
 * the same bits. A function does not divide its work; callers give row ranges to a thread pool
 * (kernels/cpu/thread_pool_internal.h). "Chain" means ascending order from +0; "16 lanes" means
 * lane l takes the elements i = l, l+16, ... in ascending order from +0, and the lanes are then
 * added as ((l + (l+8)) + ((l+4) + (l+12))) and so on down: l with l+8, then l+4, l+2, l+1.
 */
#ifndef WF_KERNELS_CPU_SIMD_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct block_product;
struct wf_thread_pool;
struct wf_truncated;

/* One part of a chunk's chain: A is [m, k] and B is [k, n], both with any strides, which count
   elements. */
typedef struct wf_gemm_part {
    const void *a;      /* floats, or bf16 (wf_gemm.bf16) */
    int64_t a_row, a_k; /* A(i, p) = a[i * a_row + p * a_k] */
    const void *b;
    int64_t b_k, b_col; /* B(p, j) = b[p * b_k + j * b_col] */
    int64_t k;          /* length of the part, >= 0 */
    bool chunk;         /* true: begins a new chunk; the first part always does */
} wf_gemm_part;

/* The rows of a chunk: `runs` runs of `rows` rows each, which begin `step` rows apart. Those of
   one run are those of the tokens in a chunk; more are heads of a chunk, token by token. */
typedef struct wf_chunk_rows {
    int64_t runs, step, rows;
    /* the chain over rows continues from what the result holds, and does not begin with +0 */
    bool more;
} wf_chunk_rows;

/*
 * C = midpoint tree (core/numerics/tree.h) over chunks; a chunk is one ascending fma chain from
 * +0 through its parts in order; an empty chunk is +0, and so is every zero of C. C is
 * overwritten, or added to (`add`). n_parts may be large (a chunk per sequence); m, n and k may
 * be 0 or any size.
 *
 * bf16 operands have bits of their own, those of the instruction TDPBF16PS. Each part is blocks
 * of WF_GEMM_TERMS terms, the last one filled up with zeros. A block is two fma chains from +0,
 * over its even and over its odd terms, and their sum; a chunk is +0, to which its blocks are
 * added in order. Denormals are zeros in all of that, as operands and as results, and only
 * there: the tree adds chunks as it does elsewhere, since ranks do.
 */
enum { WF_GEMM_TERMS = 32 };

typedef struct wf_gemm {
    int64_t m, n;
    void *c;
    int64_t c_row; /* C(i, j) = c[i * c_row + j] */
    bool add;      /* C = C + tree: what C holds is the older of two nodes */
    bool bf16;     /* the parts' a and b are bf16 (core/numerics/bf16.h) */
    bool c_bf16;   /* C is bf16, each result rounded once; never with `add` */
    const wf_gemm_part *parts;
    int64_t n_parts;
    int64_t each; /* chunks of a sequence (core/numerics/tree.h); 0 means 1 */
} wf_gemm;

/* y[m, n] = x[m, k] w[n, k]^T with few rows of x, each element a tree over chunks as in
   wf_gemm: of decoding. Where x is bf16, too, it is the product of bf16 operands, a chunk one
   part. */
enum {
    WF_GEMV_ROWS = 8,
    WF_GEMV_COLUMNS = 16,
    WF_GEMV_MEMBERS = 4 /* products of one x that are one job of a thread pool */
};

typedef struct wf_gemv {
    int64_t m, n, k; /* n >= WF_GEMV_COLUMNS; up to WF_GEMV_ROWS rows read the weights once */
    const void *x;   /* floats, or bf16 (x_bf16) */
    const void *w;   /* floats, or bf16 */
    bool bf16;       /* w */
    bool x_bf16;     /* only where w is bf16 */
    bool y_bf16;     /* y is bf16, each result rounded once; only where x_bf16 */
    void *y;         /* floats, or bf16 */
    int64_t chunks;
    const int64_t *at; /* [chunks + 1] where they begin in k, and the end */
} wf_gemv;

/* The rows that a head reads and writes, one of each for every token, and where those of the
   head after it begin (NULL: there is none): they are prefetched a block of tokens ahead. */
typedef struct wf_attention_rows {
    int n;
    const void *at[8], *next[8];
    int64_t stride[8], bytes[8]; /* from one row to the next, and of one, in bytes */
} wf_attention_rows;

/*
 * One head of one sequence; rows are tokens. Strides count numbers between tokens. Where
 * `bf16`, q, k, v and what else has a row for every token (out, dout, dq) are bf16 numbers, and
 * products are those of kernels/cpu/simd/attention_product.c; else all are floats. Sums of
 * gradients (dk, dv) and lse are floats.
 */
typedef struct wf_attention_head {
    int64_t seq, dim; /* tokens; head size (any, fast for multiples of 16, of 32 where bf16) */
    int64_t keys;     /* rows of k and v; seq, where the head is not bidirectional */
    bool bf16;
    /* NULL, or makes the bf16 products: a_row is 1 or 64, the distance of A's rows */
    void (*product)(const struct block_product *g, int64_t a_row);
    const void *q, *k, *v; /* q [seq, dim], others [keys, dim] */
    int64_t q_stride, k_stride, v_stride;
    float scale;          /* 1/sqrt(dim) */
    float cap;            /* scores become cap * tanh(score / cap), where above 0 */
    uint64_t dropout_key; /* Philox key of attention dropout */
    /* counter words 1..3; word 0 is w / 4, w = (start + i) * sequence_keys + start + j */
    uint32_t dropout_counter[3];
    float dropout;      /* probability, 0 for none; see the dropout kernel */
    bool bidirectional; /* every query sees all keys, not those up to its own alone */
    /* Bounds of keys where the head is not bidirectional: query i sees keys from[i] .. i alone,
       from[i] in [0, i] (NULL: from 0 on), and no more than the last `window` of them, or
       those of a chunk (0: all); see wf_attention_from. Where the head is a part of a sequence,
       from[start + i] counts from the sequence's first token. */
    const int32_t *from; /* [start + seq] */
    int64_t window;
    int64_t start;         /* the head's first token in its sequence */
    int64_t sequence_keys; /* keys of the sequence */
    const float *mask;     /* [keys], or NULL: keys whose number is 0 are seen by no query */
    const float *bias;     /* [seq][keys], or NULL: added to scores after their scale */
    float *dbias;          /* its gradient, or NULL where it is not wanted */
    /* a logit that takes part in the softmax and has no value, or NULL; of attention_row one of
       each head. A gradient needs it not: lse has it */
    const float *sink;
    /* q, out and lse begin with this token, a multiple of 64; a gradient has 0 */
    int64_t first;
    /* the tokens of which a gradient gives dq, dk and dv: dq begins with the first of them;
       own_end 0: all */
    int64_t own, own_end;
    wf_attention_rows rows; /* n may be 0 */
} wf_attention_head;

static inline bool wf_attention_is_bounded(const wf_attention_head *head)
{
    return head->from || head->window != 0;
}

/* Returns true where a query, or its part of a block, may see no key. */
static inline bool wf_attention_may_be_empty(const wf_attention_head *head)
{
    return wf_attention_is_bounded(head) || head->mask || head->bias || head->keys == 0;
}

enum { WF_ATTENTION_GRAIN = 16 }; /* packed tokens and features come in whole vectors */

static inline int64_t wf_attention_padded(int64_t n)
{
    return (n + WF_ATTENTION_GRAIN - 1) / WF_ATTENTION_GRAIN * WF_ATTENTION_GRAIN;
}

/* Which random numbers (core/numerics/random.h): those of a key and a stream, from an index
   on. */
typedef struct wf_random_run {
    uint64_t key, stream, first;
} wf_random_run;

typedef struct wf_adamw_constants {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 / (1 - beta^t) */
    float grad_scale;   /* clipping: the gradient is multiplied by it first */
} wf_adamw_constants;

struct wf_dynamic8_map;

typedef struct wf_simd {
    const char *name;
    int lanes; /* Index of its loops of an op by expression (wf_elementwise.lanes). */

    /* Scratch bytes for wf_gemm over `threads` threads; gemm itself runs over the thread
       pool. */
    size_t (*gemm_workspace)(const wf_gemm *g, int threads);
    void (*gemm)(struct wf_thread_pool *pool, const wf_gemm *g, void *workspace);
    /* The same bits as gemm of these operands; with an x in floats, of weights that are bf16
       widened (core/numerics/bf16.h). */
    /* Up to WF_GEMV_MEMBERS products, whose m, k, x and chunks are those of the first. */
    void (*gemv)(struct wf_thread_pool *pool, const wf_gemv *s, int members);

    /* y = a + b, y = a - b, y = a * b, y = s * a; y may alias a or b. */
    void (*add)(const float *a, const float *b, float *y, int64_t n);
    void (*sub)(const float *a, const float *b, float *y, int64_t n);
    void (*mul)(const float *a, const float *b, float *y, int64_t n);
    void (*scale)(const float *a, float s, float *y, int64_t n);
    void (*maximum)(const float *a, const float *b, float *y, int64_t n);
    /* y[i] = midpoint tree over s of src[s][i], or their chain src[0] + src[1] + ... (tree
       false); y may be one of the sources. */
    void (*sum)(const float *const *src, int64_t n_src, bool tree, float *y, int64_t n);

    /* dst[d][i] = that, for all d; dst[d] may be one of the sources. `non_temporal`: by
       non-temporal stores, for what will not be read soon. */
    void (*sum_to_all)(const float *const *src, int64_t n_src, bool tree, float *const *dst,
                       int64_t n_dst, bool non_temporal, int64_t n);

    /* floats as bf16 and back, as core/numerics/bf16.h says */
    void (*narrow)(const float *from, uint16_t *to, int64_t n);
    void (*widen)(const uint16_t *from, float *to, int64_t n);

    /* to = from by non-temporal stores: for what will not be read soon */
    void (*copy_non_temporal)(const void *from, void *to, size_t bytes);

    /* y[r, d] = x[r, d] + bias[d] */
    void (*bias_add)(const float *x, const float *bias, float *y, int64_t rows, int64_t d);
    /* silu(x) = x / (1 + exp(-x)); gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)));
       swiglu: y = silu(gate) * up; dgate = silu_grad(gate, dy * up), dup = dy * silu(gate) */
    void (*swiglu)(const float *gate, const float *up, float *y, int64_t n);
    void (*swiglu_grad)(const float *gate, const float *up, const float *dy, float *dgate,
                        float *dup, int64_t n);
    /* rows: y = gelu(x + bias); dx = gelu_grad(x + bias, dy) */
    void (*bias_gelu)(const float *x, const float *bias, float *y, int64_t rows, int64_t d);
    void (*bias_gelu_grad)(const float *x, const float *bias, const float *dy, float *dx,
                           int64_t rows, int64_t d);

    /* y = (x - mean) * rstd * gain + bias; mean, rstd [rows]; sums over d in 16 lanes. */
    void (*layernorm)(const float *x, const float *gain, const float *bias, float eps, float *y,
                      float *mean, float *rstd, int64_t rows, int64_t d);
    void (*layernorm_grad)(const float *x, const float *gain, const float *mean,
                           const float *rstd, const float *dy, float *dx, int64_t rows,
                           int64_t d);
    /* dgain[d] = chain over rows of dy * xhat; dbias[d] = chain over rows of dy */
    void (*layernorm_chunk)(const float *x, const float *mean, const float *rstd,
                            const float *dy, float *dgain, float *dbias, wf_chunk_rows rows,
                            int64_t d);
    /* y = x * rstd * gain; rstd[r] = 1 / sqrt(mean_d x^2 + eps) */
    void (*rmsnorm)(const float *x, const float *gain, float eps, float *y, float *rstd,
                    int64_t rows, int64_t d);
    void (*rmsnorm_grad)(const float *x, const float *gain, const float *rstd, const float *dy,
                         float *dx, int64_t rows, int64_t d);
    void (*rmsnorm_chunk)(const float *x, const float *rstd, const float *dy, float *dgain,
                          wf_chunk_rows rows, int64_t d);
    /* dbias[d] = chain over rows of dy[r, d]; row r begins at dy + r * stride */
    void (*bias_chunk)(const float *dy, int64_t stride, float *dbias, wf_chunk_rows rows,
                       int64_t d);

    /* the gradient of a softmax y over rows of n: dx = y * (dy - dot), dot = sum of y * dy in
       16 lanes */
    void (*softmax_grad)(const float *y, const float *dy, float *dx, int64_t rows, int64_t n);
    /* sum of a * b in 16 lanes, each one fma after the other */
    float (*dot)(const float *a, const float *b, int64_t n);

    /* Rotate pairs (i, i + features/2) of the first features of every head of one token: y =
       rot(x); cosine and sine are [features/2] of this token's position; inverse rotates back.
       x, y are [heads, dim]. */
    void (*rope)(const float *x, const float *cosine, const float *sine, bool inverse, float *y,
                 int64_t heads, int64_t dim, int64_t features);

    /* Element i of the run belongs to Philox word (first + i): y = keep ? x / (1 - p) : 0,
       where keep is word(first + i) >= floor(p * 2^32); word w is philox({w / 4 mod 2^32, c1,
       c2, c3}, key)[w % 4]. */
    void (*dropout)(const float *x, float *y, int64_t n, uint64_t key,
                    const uint32_t counter[3], int64_t first, float p);

    /* dst[i] = the random number at run->first + i, as core/numerics/random.h makes it: shift +
       factor * uniform, mean + deviation * normal (a product and a sum), or a truncated
       normal. */
    void (*fill_uniform)(float *dst, int64_t n, const wf_random_run *run, float shift,
                         float factor);
    void (*fill_normal)(float *dst, int64_t n, const wf_random_run *run, float mean,
                        float deviation);
    void (*fill_truncated)(float *dst, int64_t n, const wf_random_run *run,
                           const struct wf_truncated *truncated);

    float (*row_max)(const float *x, int64_t n);            /* -inf where n is 0 */
    float (*sum_exp)(const float *x, float max, int64_t n); /* 16 lanes: one chunk */
    float (*row_sum)(const float *x, int64_t n);            /* the same of the elements */
    void (*exp_scale)(const float *x, float max, float s, float *y,
                      int64_t n); /* exp(x-max)*s */

    /* Flash attention of one head: in blocks, the score matrix never whole. out [seq, dim],
       lse[i] = log sum_j exp(score), both 0 of a query that sees no key. `workspace` of
       attention_workspace(keys, dim) bytes. */
    size_t (*attention_workspace)(int64_t keys, int64_t dim);
    void (*attention)(const wf_attention_head *head, void *out, int64_t out_stride, float *lse,
                      void *workspace);
    /* The last token of `groups` groups of `heads` query heads, which share their keys and
       values; those of a group lie after those of the one before. out[g][r] is the last row
       that attention gives for that head, bit for bit. q and out are [groups, heads, dim],
       head->first and the strides of q are not read. */
    size_t (*attention_row_workspace)(int64_t groups, int64_t heads, int64_t dim);
    void (*attention_row)(const wf_attention_head *head, int64_t groups, int64_t heads,
                          void *out, void *workspace);
    /* dq, dk, dv of this head alone, all overwritten. dk and dv are packed, for callers to sum
       over grouped heads: [padded keys][padded dim] (wf_attention_padded). */
    size_t (*attention_grad_workspace)(int64_t keys, int64_t dim);
    void (*attention_grad)(const wf_attention_head *head, const void *out, int64_t out_stride,
                           const float *lse, const void *dout, int64_t dout_stride, void *dq,
                           int64_t dq_stride, float *dk, float *dv, void *workspace);
    /* out[i] = -exp(sink[(first + i) % heads] - lse[i]) * (y[i] . dy[i]), rows of y and dy
       being of dim numbers */
    void (*attention_sinks)(int64_t rows, int64_t first, int64_t heads, int64_t dim,
                            const float *y, const float *dy, const float *lse,
                            const float *sink, float *out);
    /* to[t * stride + d] = packed dk or dv, every zero +0; all zeros where packed is NULL. `to`
       is floats, or rounded to bf16. */
    void (*attention_unpack)(const float *packed, int64_t keys, int64_t dim, void *to,
                             int64_t stride, bool bf16);

    /* Decoupled weight decay (Loshchilov & Hutter 2019):
       m = beta1 m + (1-beta1) g; v = beta2 v + (1-beta2) g^2;
       p = p - lr (m bias1 / (sqrt(v bias2) + eps) + weight_decay p) */
    void (*adamw)(float *p, const float *g, float *m, float *v, int64_t n,
                  const wf_adamw_constants *c);
    /* The same for a block of moments in 8 bits (core/numerics/dynamic8.h): of m by map[0], of
       v by map[1] */
    void (*adamw8)(float *p, const float *g, uint8_t *m8, uint8_t *v8, int64_t n,
                   const struct wf_dynamic8_map *map, const wf_adamw_constants *c);
    /* d = g + weight_decay p; with momentum, where beta1 > 0, m = beta1 m + d and d = m;
       p = p - lr d */
    void (*sgd)(float *p, const float *g, float *m, int64_t n, const wf_adamw_constants *c);
    /* sum of squares in double: 8 lanes (element i in lane i % 8), lanes added 4, 2, 1 apart */
    double (*sum_squares)(const float *x, int64_t n);
} wf_simd;

/*
 * wf_cpu_simd - the best table that this machine runs. WEFT_CPU_ISA=portable|avx2|avx512|amx in
 * the environment asks for another one (valgrind has no AVX-512); one that is unknown or that
 * the machine lacks gives NULL and the reason in *why.
 */
const wf_simd *wf_cpu_simd(const char **why);

#endif
