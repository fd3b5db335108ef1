/*
 * kernels/cpu/simd/attention_row.c - flash attention of one token, the last of those that its
 * keys and values are of: the rows of a cache. The bits are those of
 * kernels/cpu/simd/attention.c, whose header says which chains they are: the same blocks of 64
 * keys, from that of the first token that it sees on, and in them the same order of every sum.
 *
 * The query heads of a group read its keys and values together, and groups that go together
 * take turns, block by block: a token's keys lie side by side, and so are read once, in order.
 * While a block is computed the next one is prefetched, a few lines with every few products.
 */
#include "kernels/cpu/simd/attention_row_internal.h"

#include "kernels/cpu/denormals_internal.h"
#include "kernels/cpu/vec_math_internal.h"

/* Returns the floats of one group's state, and of the list of all. */
static int64_t group_floats(int64_t heads, int64_t dim)
{
    int64_t rows = heads * wf_attention_padded(dim), each = wf_attention_padded(heads);

    return 2 * rows + heads * BLOCK + 3 * each;
}

static int64_t list_floats(int64_t groups)
{
    return wf_attention_padded(groups * (int64_t)(sizeof(row_state) / sizeof(float) + 1));
}

size_t WF_ISA_NAME(wf_attention_row_workspace)(int64_t groups, int64_t heads, int64_t dim)
{
    return workspace_of(list_floats(groups) + groups * group_floats(heads, dim) +
                        GRAIN * wf_attention_padded(dim));
}

static row_state begin_row(const wf_attention_head *head, int64_t heads, float **at)
{
    int64_t width = wf_attention_padded(head->dim);
    row_state f = {.head = head,
                   .k = head->k,
                   .v = head->v,
                   .heads = heads,
                   .width = width,
                   .size = head->bf16 ? sizeof(uint16_t) : sizeof(float),
                   .from = wf_attention_from(NULL, head->window, head->seq - 1)};

    f.q = take(at, heads * width);
    f.out = take(at, heads * width);
    f.s = take(at, heads * BLOCK);
    f.max = take(at, heads);
    f.sum = take(at, heads);
    f.rescale = take(at, heads);
    return f;
}

/* Takes the queries of group g, whose keys and values lie beside those of the one before. */
static void begin_group(row_state *f, int64_t g)
{
    const wf_attention_head *head = f->head;
    const float *sink = head->sink ? head->sink + g * f->heads : NULL;
    int64_t first = g * f->heads * head->dim;

    f->k = (const char *)head->k + g * head->dim * f->size;
    f->v = (const char *)f->v + g * head->dim * f->size;
    for (int64_t r = 0; r < f->heads; r++) {
        f->max[r] = sink ? sink[r] : -INFINITY;
        f->sum[r] = sink ? 1 : 0;
        for (int64_t d = 0; d < head->dim; d += GRAIN)
            v16_store(f->q + r * f->width + d,
                      v16_mul(v16_set1(query_scale(head)),
                              load_numbers(head->q, head->bf16, first + r * head->dim + d,
                                           head->dim - d)));
    }
}

/* Makes p of a head's scores, in place; renews m. Returns nothing of l: it is a chain. */
static void exponentials(const row_state *f, token_block keys, int64_t r)
{
    float scale = softmax_scale(f->head), old = f->max[r];
    float *s = f->s + r * BLOCK, one[GRAIN], max;
    v16 most = v16_load(s);

    for (int64_t j = GRAIN; j < keys.padded; j += GRAIN)
        most = v16_max(most, v16_load(s + j));
    max = v16_max_lanes(most) * scale;
    max = old > max ? old : max;
    v16_store(one, v16_exp_or_zero(v16_sub(v16_set1(old), v16_set1(max))));
    for (int64_t j = 0; j < keys.padded; j += GRAIN)
        v16_store(s + j,
                  v16_exp_or_zero(v16_fma(v16_load(s + j), v16_set1(scale), v16_set1(-max))));
    f->max[r] = max;
    f->rescale[r] = one[0];
}

/* Adds p of n heads to their l: chains side by side. */
ALWAYS_INLINE void add_probabilities(const row_state *f, token_block keys, int64_t first,
                                     const int n)
{
    const float *p = f->s + first * BLOCK;
    float sum[HEADS];

    for (int r = 0; r < n; r++)
        sum[r] = f->sum[first + r] * f->rescale[first + r];
    for (int64_t j = 0; j < keys.count; j++) {
        UNROLL
        for (int r = 0; r < n; r++)
            sum[r] += p[r * BLOCK + j];
    }
    for (int r = 0; r < n; r++)
        f->sum[first + r] = sum[r];
}

/* Makes p of scores, in place; renews m and l. */
static void softmax(const row_state *f, token_block keys)
{
    int64_t first = 0;

    for (int64_t r = 0; r < f->heads; r++)
        exponentials(f, keys, r);
    for (; first + HEADS <= f->heads; first += HEADS)
        add_probabilities(f, keys, first, HEADS);
    for (; first < f->heads; first++)
        add_probabilities(f, keys, first, 1);
    for (int64_t j = 0; f->head->bf16 && j < f->heads * BLOCK; j += GRAIN)
        v16_store(f->s + j, v16_round_bf16(v16_load(f->s + j)));
}

/* Adds p * v of the keys [first, count) of a block, or of every second one, to sums of n heads
   and of `vectors` vectors of features from d on; whole: no feature is missing. */
ALWAYS_INLINE void add_terms(const row_state *f, const bool bf16, const bool whole,
                             token_block keys, const float *p, int64_t d, const int n,
                             const int vectors, int64_t first, const int64_t step,
                             int64_t count, bool ahead, v16 sum[VALUE_HEADS][FLOAT_VECTORS])
{
    const wf_attention_head *head = f->head;
    int64_t stride = step * head->v_stride, at = (keys.begin + first) * head->v_stride + d;
    int64_t next = ahead ? head->seq - keys.begin - BLOCK : 0;

    for (int64_t j = first; j < count; j += step, at += stride) {
        v16 v[FLOAT_VECTORS];

        for (int i = 0; i < vectors && j < next; i++)
            __builtin_prefetch(
                (const char *)f->v + (at + BLOCK * head->v_stride + i * GRAIN) * f->size, 0, 2);

        UNROLL
        for (int i = 0; i < vectors; i++)
            v[i] = load_numbers(f->v, bf16, at + i * GRAIN,
                                whole ? GRAIN : head->dim - d - i * GRAIN);
        UNROLL
        for (int r = 0; r < n; r++) {
            UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r][i] = v16_fma(v16_set1(p[r * BLOCK + j]), v[i], sum[r][i]);
        }
    }
}

/* Adds a block of keys of bf16: even and odd terms of 32 keys at a time. */
ALWAYS_INLINE void add_bf16(const row_state *f, const bool whole, token_block keys,
                            const float *p, int64_t d, const int n, const int vectors,
                            bool ahead, v16 sum[VALUE_HEADS][FLOAT_VECTORS])
{
    for (int64_t j = 0; j < keys.count; j += BF16_TERMS) {
        int64_t end = wf_least(j + BF16_TERMS, keys.count);
        v16 even[VALUE_HEADS][FLOAT_VECTORS], odd[VALUE_HEADS][FLOAT_VECTORS];

        UNROLL
        for (int r = 0; r < n; r++) {
            UNROLL
            for (int i = 0; i < vectors; i++)
                even[r][i] = odd[r][i] = v16_zero();
        }
        add_terms(f, true, whole, keys, p, d, n, vectors, j, 2, end, ahead, even);
        add_terms(f, true, whole, keys, p, d, n, vectors, j + 1, 2, end, ahead, odd);
        UNROLL
        for (int r = 0; r < n; r++) {
            UNROLL
            for (int i = 0; i < vectors; i++)
                sum[r][i] = v16_add(sum[r][i], v16_add(even[r][i], odd[r][i]));
        }
    }
}
/* Adds p * v to `vectors` vectors of n heads' outputs, from feature d on. */
ALWAYS_INLINE void add_values(const row_state *f, const bool bf16, const bool whole,
                              token_block keys, int64_t first, const int n, int64_t d,
                              const int vectors)
{
    const float *p = f->s + first * BLOCK;
    float *out = f->out + first * f->width + d;
    bool add = keys.begin > f->from, ahead = first == 0;
    v16 sum[VALUE_HEADS][FLOAT_VECTORS];

    UNROLL
    for (int r = 0; r < n; r++) {
        v16 rescale = v16_set1(f->rescale[first + r]);

        UNROLL
        for (int i = 0; i < vectors; i++)
            sum[r][i] =
                add ? v16_mul(v16_load(out + r * f->width + i * GRAIN), rescale) : v16_zero();
    }
    if (bf16)
        add_bf16(f, whole, keys, p, d, n, vectors, ahead, sum);
    else
        add_terms(f, false, whole, keys, p, d, n, vectors, 0, 1, keys.count, ahead, sum);
    UNROLL
    for (int r = 0; r < n; r++) {
        UNROLL
        for (int i = 0; i < vectors; i++)
            v16_store(out + r * f->width + i * GRAIN, sum[r][i]);
    }
}

/* Adds p * v to n heads' outputs. */
ALWAYS_INLINE void add_heads(const row_state *f, const bool bf16, token_block keys,
                             int64_t first, const int n)
{
    const int vectors = bf16 ? BF16_VECTORS : FLOAT_VECTORS;
    int64_t d = 0;

    for (; d + vectors * GRAIN <= f->head->dim; d += vectors * GRAIN)
        add_values(f, bf16, true, keys, first, n, d, vectors);
    for (; d < f->width; d += GRAIN)
        add_values(f, bf16, false, keys, first, n, d, 1);
}

static void finish(const row_state *f, void *out, int64_t first)
{
    for (int64_t r = 0; r < f->heads; r++) {
        v16 factor = v16_div(v16_set1(1), v16_set1(f->sum[r]));

        for (int64_t d = 0; d < f->head->dim; d += GRAIN)
            store_numbers(out, f->head->bf16, (first + r) * f->head->dim + d,
                          v16_mul(v16_load(f->out + r * f->width + d), factor),
                          f->head->dim - d);
    }
}

/* Adds a block of keys to a group's outputs. */
ALWAYS_INLINE void attend_block(const row_state *f, const bool bf16, int64_t key)
{
    token_block keys = block_at(key, f->head->seq);
    int64_t r = 0;

    score_block(f, bf16, keys);
    softmax(f, keys);
    for (; r + VALUE_HEADS <= f->heads; r += VALUE_HEADS)
        add_heads(f, bf16, keys, r, VALUE_HEADS);
    for (; VALUE_HEADS > 2 && r + 2 <= f->heads; r += 2)
        add_heads(f, bf16, keys, r, VALUE_HEADS > 2 ? 2 : 1);
    for (; r < f->heads; r++)
        add_heads(f, bf16, keys, r, 1);
}

/* Compiled for either type: a test for every vector costs a fifth of the time. */
WF_OUT_OF_LINE static void attend_floats(const row_state *f, int64_t key)
{
    attend_block(f, false, key);
}

WF_OUT_OF_LINE static void attend_bf16(const row_state *f, int64_t key)
{
    attend_block(f, true, key);
}

/* Blocks of keys come group after group: rows are read from their first byte to the last. */
void WF_ISA_NAME(wf_attention_row)(const wf_attention_head *head, int64_t groups, int64_t heads,
                                   void *out, void *workspace)
{
    float *at = align_line(workspace);
    row_state *f = (row_state *)take(&at, list_floats(groups));
    float *padded = take(&at, GRAIN * wf_attention_padded(head->dim));
    uint64_t mode = head->bf16 ? wf_denormals_begin(true) : 0;

    for (int64_t g = 0; g < groups; g++) {
        f[g] = begin_row(head, heads, &at);
        f[g].padded = padded;
        begin_group(&f[g], g);
    }
    for (int64_t key = f->from / BLOCK * BLOCK; key < head->seq; key += BLOCK) {
        for (int64_t g = 0; g < groups; g++) {
            if (head->bf16)
                attend_bf16(&f[g], key);
            else
                attend_floats(&f[g], key);
        }
    }
    for (int64_t g = 0; g < groups; g++)
        finish(&f[g], out, g * heads);
    if (head->bf16)
        wf_denormals_end(mode);
}
