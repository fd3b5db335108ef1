/*
 * tests/kernels/test_attention_cached.c - attention to a cache has the bits of attention to the
 * whole sequence: for every instruction set, whatever the tokens come in, in whichever rows of
 * the cache.
 *
 * ctest: builds plain, cost 50
 */
#include "core/numerics/random.h"
#include "kernels/attention_cached.h"
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/isa_internal.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/harness.h"
#include "tests/sanitizer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SEQUENCES = 3, SLOTS = 5 };

typedef struct shape {
    int64_t tokens, heads, groups, dim;
} shape;

/* One block of keys and less, its edges, several; head sizes on and off the width of a vector;
   more heads in a group than registers hold. */
static const shape shapes[] = {{1, 1, 1, 2},   {17, 2, 1, 5},   {64, 3, 3, 64},
                               {65, 6, 2, 16}, {130, 9, 3, 24}, {129, 14, 2, 80}};

/* Sizes of pieces of tokens: all of them, one by one, few, and so many that blocks are cut. */
static const int64_t pieces[] = {1000, 1, 4, 5, 7, 64, 100};

enum { PIECES = sizeof pieces / sizeof *pieces };

static const char *const isas[] = {WF_CPU_ISAS, "amx"};

static wf_context *ctx;
static wf_dtype stored; /* queries, keys, values, caches and outputs */

static void open_context(const wf_simd *simd, int threads, wf_dtype dtype)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};

    ctx = wf_context_open(wf_cpu_device(threads, &error), &options, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    ((wf_cpu *)wf_context_device(ctx)->self)->simd = simd;
    wf_context_storage(ctx, dtype);
    stored = dtype;
}

static wf_tensor *heads_of(wf_dtype dtype, int64_t rows, int64_t tokens, int64_t heads,
                           int64_t dim)
{
    const wf_dim dims[] = {wf_dim_batch(rows), wf_dim_chunked(tokens), wf_dim_chunked(heads),
                           wf_dim_width(dim)};
    wf_tensor *t = wf_tensor_new(ctx, dtype, 4, dims, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static wf_tensor *random_heads(int64_t tokens, int64_t heads, int64_t dim, uint64_t stream)
{
    wf_tensor *t = heads_of(WF_F32, SEQUENCES, tokens, heads, dim);

    wf_random_fill_normal(t->data, wf_tensor_count(t), 5, stream, 0);
    return stored == WF_F32 ? t : wf_cast(t, stored);
}

/* Stale keys and values are NaNs. */
static wf_tensor *cache_of(const shape *s)
{
    wf_tensor *t = heads_of(stored, SLOTS, s->tokens + 3, s->groups, s->dim);

    memset(t->data, 0xff, (size_t)wf_tensor_count(t) * wf_dtype_size(stored));
    return t;
}

/* The tokens [first, first + count) of all sequences. */
static wf_tensor *piece_of(const wf_tensor *t, int64_t first, int64_t count)
{
    size_t row = (size_t)(t->local[2] * t->local[3]) * wf_dtype_size(t->dtype);
    wf_tensor *piece = heads_of(t->dtype, SEQUENCES, count, t->local[2], t->local[3]);

    for (int64_t b = 0; b < SEQUENCES; b++)
        memcpy((char *)piece->data + (size_t)(b * count) * row,
               (const char *)t->data + (size_t)(b * t->local[1] + first) * row,
               (size_t)count * row);
    return piece;
}

static wf_tensor *numbers(const int32_t *value)
{
    const wf_dim dim = wf_dim_batch(SEQUENCES);
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    memcpy(t->data, value, SEQUENCES * sizeof *value);
    return t;
}

/* None, within a block, over its edge; chunks, which are those below 0. */
static const int64_t windows[] = {0, 9, 66, -9, -70};

/* Scores of the shorter window have a cap. */
static float cap_of(int64_t window)
{
    return window == 9 ? 0.5F : 0;
}

/* Beside the longer window there are sinks, below scores and above them; else NULL. */
static wf_tensor *sinks_of(int64_t heads, int64_t window)
{
    const wf_dim dim = wf_dim_chunked(heads);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);

    for (int64_t h = 0; t && h < heads; h++)
        ((float *)t->data)[h] = 2.5F * (float)(h % 5) - 4;
    return window == 66 ? t : NULL;
}

static bool in_pieces(const shape *s, int64_t most, const wf_tensor *const *x,
                      const wf_tensor *whole, int64_t window)
{
    const int32_t slots[SEQUENCES] = {3, 0, 4};
    wf_tensor *k = cache_of(s), *v = cache_of(s);
    const wf_attention_options how = {.window = window > 0 ? window : 0,
                                      .chunk = window < 0 ? -window : 0,
                                      .cap = cap_of(window),
                                      .sinks = sinks_of(s->heads, window)};
    bool same = true;

    for (int64_t at = 0; at < s->tokens; at += most) {
        int64_t n = s->tokens - at < most ? s->tokens - at : most;
        const int32_t firsts[SEQUENCES] = {(int32_t)at, (int32_t)at, (int32_t)at};
        wf_tensor *first = numbers(firsts), *slot = numbers(slots), *y, *want;

        wf_cache_write(k, v, piece_of(x[1], at, n), piece_of(x[2], at, n), first, slot);
        y = wf_attention_cached(piece_of(x[0], at, n), k, v, first, slot, &how);
        want = piece_of(whole, at, n);
        same = same && y && y->dtype == stored &&
               memcmp(y->data, want->data,
                      (size_t)wf_tensor_count(y) * wf_dtype_size(stored)) == 0;
    }
    return same;
}

/* f32 numbers without a window come in all pieces, on each instruction set. With windows, of
   bf16 and in a sanitizer's build a shape comes in one of them: in the others on other
   instruction sets, with other windows. */
static void every_piece(const wf_simd *simd, int threads, wf_dtype dtype, int64_t window,
                        size_t turn)
{
    wf_attention_options causal = {.causal = true,
                                   .window = window > 0 ? window : 0,
                                   .chunk = window < 0 ? -window : 0,
                                   .cap = cap_of(window)};

    open_context(simd, threads, dtype);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const shape *s = &shapes[i];

        bool all = !window && dtype == WF_F32 && !UNDER_SANITIZER;
        const wf_tensor *x[3];
        wf_tensor *whole;

        wf_scope_open(ctx);
        for (int t = 0; t < 3; t++)
            x[t] = random_heads(s->tokens, t ? s->groups : s->heads, s->dim, (uint64_t)t + 1);
        causal.sinks = sinks_of(s->heads, window);
        whole = wf_attention((wf_tensor *)x[0], (wf_tensor *)x[1], (wf_tensor *)x[2], &causal);
        for (size_t p = all ? 0 : (i + turn) % PIECES; p < PIECES; p += all ? 1 : PIECES) {
            wf_scope_open(ctx);
            if (!in_pieces(s, pieces[p], x, whole, window)) {
                printf("\n  %s, %s, %d threads, %lld tokens, %lld of %lld heads, dim %lld, "
                       "window %lld: not the bits of the whole where %lld come at once",
                       wf_dtype_name(dtype), simd->name, threads, (long long)s->tokens,
                       (long long)s->heads, (long long)s->groups, (long long)s->dim,
                       (long long)window, (long long)pieces[p]);
                CU_FAIL("other bits");
            }
            wf_scope_close(ctx);
        }
        wf_scope_close(ctx);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

static void bits_of_the_whole_as(wf_dtype dtype)
{
    for (int i = 0; i < (int)(sizeof isas / sizeof isas[0]); i++) {
        const wf_simd *simd = wf_cpu_simd_named(isas[i], NULL);

        for (size_t w = 0; simd && w < sizeof windows / sizeof *windows; w++)
            every_piece(simd, 1 + i % 2, dtype, windows[w],
                        5 * (size_t)i + 2 * w + (dtype == WF_BF16 ? 3 : 0));
    }
}

static void bits_of_the_whole(void)
{
    bits_of_the_whole_as(WF_F32);
}

static void bits_of_the_whole_bf16(void)
{
    bits_of_the_whole_as(WF_BF16);
}

/* Outputs that underflow are +0, in blocks as well as one by one: what comes later does not say
   their sign. */
static void zeros_have_no_sign(void)
{
    const wf_attention_options causal = {.causal = true};
    const shape s = {20, 1, 1, 16};

    open_context(wf_cpu_simd_named("portable", NULL), 1, WF_F32);
    for (int sign = -1; sign <= 1; sign += 2) {
        wf_tensor *x[3], *whole;

        for (int t = 0; t < 3; t++)
            x[t] = random_heads(s.tokens, 1, s.dim, 1);
        for (int64_t i = 0; i < wf_tensor_count(x[2]); i++)
            ((float *)x[2]->data)[i] = i / s.dim % s.tokens < 9 ? -1e-45F : (float)sign;
        whole = wf_attention(x[0], x[1], x[2], &causal);
        for (int64_t i = 0; i < 9 * s.dim; i++)
            CU_ASSERT_FALSE(((float *)whole->data)[i] == 0 &&
                            signbit(((float *)whole->data)[i]));
        CU_ASSERT_TRUE(in_pieces(&s, 1, (const wf_tensor *const *)x, whole, 0));
    }
    wf_context_close(ctx);
}

static void refused(const int32_t *first, const int32_t *slot, const char *words)
{
    const shape s = {4, 1, 1, 2};

    open_context(wf_cpu_simd_named("portable", NULL), 1, WF_F32);
    CU_ASSERT_PTR_NULL(wf_attention_cached(random_heads(s.tokens, 1, 2, 1), cache_of(&s),
                                           cache_of(&s), numbers(first), numbers(slot), NULL));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    wf_context_close(ctx);
}

static void out_of_the_cache(void)
{
    const int32_t zeros[SEQUENCES] = {0}, far[SEQUENCES] = {0, 4, 0},
                  below[SEQUENCES] = {0, 0, -1}, more[SEQUENCES] = {SLOTS, 0, 0};

    refused(far, zeros, "tokens [4, 8) of sequence 1 are outside the cache's 7 positions");
    refused(below, zeros, "tokens [-1, 3) of sequence 2");
    refused(zeros, below, "slot -1 of sequence 2 is outside the cache's 5");
    refused(zeros, more, "slot 5 of sequence 0");
}

int main(void)
{
    static const wf_test tests[] = {{"the bits of the whole", bits_of_the_whole},
                                    {"of bf16 numbers", bits_of_the_whole_bf16},
                                    {"zeros have no sign", zeros_have_no_sign},
                                    {"out of the cache", out_of_the_cache},
                                    {NULL, NULL}};

    return wf_test_main("attention to a cache", tests);
}
