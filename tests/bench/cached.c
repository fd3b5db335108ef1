/*
 * tests/bench/cached.c - bench cached: attention of one token to a cache of keys and values, as
 * decoding has it in every layer, in fp32 and in bf16, beside a plain read of the same memory.
 *
 * A run reads as many caches as make MEMORY bytes, so that no cache of the processor helps.
 */
#include "tests/bench/bench.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TYPES = 2, MOST_LAYERS = 4096 };
static const size_t memory = (size_t)1 << 28, quick_memory = (size_t)1 << 20;

typedef struct shape {
    int64_t keys, heads, groups, dim;
} shape;

/* A type's caches, and the operands of a token. */
typedef struct bench {
    wf_context *ctx;
    wf_dtype dtype;
    int threads;
    int64_t layers;
    wf_tensor *q, *first, *slot, *cache[2];
} bench;

/* Slots are layers: a call attends to one of them. */
static double run_attention(void *arg, int64_t repeat)
{
    bench *b = arg;
    double start = bench_now(b->threads);

    for (int64_t i = 0; i < repeat * b->layers; i++) {
        int32_t slot = (int32_t)(i % b->layers);

        wf_scope_open(b->ctx);
        memcpy(b->slot->data, &slot, sizeof slot);
        wf_attention_cached(b->q, b->cache[0], b->cache[1], b->first, b->slot, NULL);
        wf_scope_close(b->ctx);
    }
    return wf_context_status(b->ctx) == WF_OK ? bench_now(b->threads) - start : NAN;
}

static wf_status prepare(bench *b, const shape *s, int64_t layers)
{
    const wf_dim one = wf_dim_batch(1), token = wf_dim_chunked(1);
    const wf_dim q[] = {one, token, wf_dim_chunked(s->heads), wf_dim_width(s->dim)};
    const wf_dim cache[] = {wf_dim_batch(layers), wf_dim_chunked(s->keys),
                            wf_dim_chunked(s->groups), wf_dim_width(s->dim)};
    int32_t last = (int32_t)s->keys - 1;

    b->layers = layers;
    b->q = wf_tensor_new(b->ctx, WF_F32, 4, q, NULL, WF_MEMORY_ACTIVATION);
    b->first = wf_tensor_new(b->ctx, WF_I32, 1, &one, NULL, WF_MEMORY_ACTIVATION);
    b->slot = wf_tensor_new(b->ctx, WF_I32, 1, &one, NULL, WF_MEMORY_ACTIVATION);
    for (int i = 0; i < 2; i++) {
        b->cache[i] = wf_tensor_new(b->ctx, WF_F32, 4, cache, NULL, WF_MEMORY_ACTIVATION);
        if (b->cache[i] && wf_init_normal(b->cache[i], 0, 1, 1 + (uint64_t)i) == WF_OK &&
            b->dtype != WF_F32)
            b->cache[i] = wf_cast(b->cache[i], b->dtype);
    }
    if (b->q && wf_init_normal(b->q, 0, 1, 0) == WF_OK && b->dtype != WF_F32)
        b->q = wf_cast(b->q, b->dtype);
    if (wf_context_status(b->ctx) == WF_OK)
        memcpy(b->first->data, &last, sizeof last);
    return wf_context_status(b->ctx);
}

/* Returns how many caches of `one` bytes a run reads. */
static int64_t layers_of(const bench_options *o, size_t one)
{
    size_t layers = (o->quick ? quick_memory : memory) / one;

    return layers < 1 ? 1 : layers < MOST_LAYERS ? (int64_t)layers : MOST_LAYERS;
}

static void report_shape(bench_report *report, const bench *b, const shape *s, double bytes,
                         const bench_entrant *e)
{
    double gb = 1e-9 * bytes;

    bench_row(report, (const bench_cell[]){
                          bench_number("threads", b->threads, 0),
                          bench_number("keys", (double)s->keys, 0),
                          bench_number("heads", (double)s->heads, 0),
                          bench_number("groups", (double)s->groups, 0),
                          bench_number("dim", (double)s->dim, 0),
                          bench_number("read", gb / 2 / e[0].seconds, 1),
                          bench_number("fp32", gb / e[1].seconds, 1),
                          bench_number("bf16", gb / 2 / e[2].seconds, 1),
                          bench_number("fp32_us", 1e6 * e[1].seconds / (double)b->layers, 1),
                          bench_number("of_read", 2 * e[0].seconds / e[1].seconds, 3),
                          bench_number("bf16_of_read", e[0].seconds / e[2].seconds, 3),
                          {.name = NULL}});
}

static wf_status run_shape(const bench_options *o, bench_report *report, bench *b,
                           bench_workers *workers, const shape *s)
{
    size_t one = (size_t)(2 * s->keys * s->groups * s->dim) * sizeof(float);
    int64_t layers = layers_of(o, one);
    bench_read read = {.workers = workers, .bytes = one * (size_t)layers / 2};
    bench_entrant e[1 + TYPES] = {bench_reader(&read)};
    bool good = true;

    for (int i = 0; i < TYPES; i++) {
        e[1 + i] = (bench_entrant){.run = run_attention, .arg = &b[i]};
        wf_scope_open(b[i].ctx);
        good = good && prepare(&b[i], s, layers) == WF_OK;
    }
    if (good)
        read.data = b[0].cache[0]->data;
    if (good && bench_race(o, 1 + TYPES, e))
        report_shape(report, b, s, (double)one * (double)layers, e);
    for (int i = 0; i < TYPES; i++)
        wf_scope_close(b[i].ctx);
    return wf_context_status(b[0].ctx) ? wf_context_status(b[0].ctx)
                                       : wf_context_status(b[1].ctx);
}

static bool has_whole_groups(const int64_t *number)
{
    return number[1] % number[2] == 0;
}

static int list_shapes(const bench_options *o, shape *shapes, wf_error *error)
{
    static const bench_shape_rule rule = {
        .numbers = 4,
        .most = {1 << 20, 1 << 10, 1 << 10, 1 << 10},
        .fits = has_whole_groups,
        .text = "KEYSxHEADSxGROUPSxDIM with heads in whole groups, like 4096x8x2x64"};
    const char *list = o->shapes  ? o->shapes
                       : o->quick ? "70x4x2x16"
                                  : "64x8x2x64,600x8x2x64,4096x8x2x64,32768x8x2x64,"
                                    "4096x9x3x64,4096x32x8x128";
    int64_t read[BENCH_SHAPES][BENCH_SHAPE];
    int count = bench_shapes(list, &rule, read, error);

    for (int i = 0; i < count; i++)
        shapes[i] = (shape){read[i][0], read[i][1], read[i][2], read[i][3]};
    return count;
}

static wf_status run_threads(const bench_options *o, bench_report *report, int threads,
                             const shape *shapes, int n_shapes, wf_error *error)
{
    static const wf_dtype types[TYPES] = {WF_F32, WF_BF16};
    bench b[TYPES];
    bench_workers *workers = bench_workers_open(threads, error);

    for (int t = 0; t < TYPES; t++) {
        b[t] = (bench){.ctx = workers && error->code == WF_OK ? bench_context(threads, error)
                                                              : NULL,
                       .dtype = types[t],
                       .threads = threads};
        if (b[t].ctx) {
            wf_context_storage(b[t].ctx, types[t]);
            wf_context_training(b[t].ctx, false);
        }
    }
    for (int i = 0; i < n_shapes && error->code == WF_OK; i++)
        if (run_shape(o, report, b, workers, &shapes[i]) != WF_OK)
            for (int t = TYPES; t-- > 0;)
                if (wf_context_status(b[t].ctx) != WF_OK)
                    wf_error_set(error, wf_context_status(b[t].ctx), "%s",
                                 wf_context_error(b[t].ctx)->text);
    bench_workers_close(workers);
    for (int t = 0; t < TYPES; t++)
        wf_context_close(b[t].ctx);
    return error->code;
}

static wf_status run_cached(const bench_options *o, bench_report *report, wf_error *error)
{
    shape shapes[BENCH_SHAPES];
    int n_shapes = list_shapes(o, shapes, error);

    if (error->code != WF_OK)
        return error->code;
    bench_note(report, "GB/s of keys and values that are read");
    if (o->threads)
        return run_threads(o, report, (int)o->threads, shapes, n_shapes, error);
    if (run_threads(o, report, 1, shapes, n_shapes, error) == WF_OK && o->cores > 1)
        run_threads(o, report, o->cores, shapes, n_shapes, error);
    return error->code;
}

const bench_command bench_cached = {
    .name = "cached",
    .summary = "attention of one token to a cache, beside a read of the same memory",
    .more = "One token's queries attend to a cache of KEYS tokens, as decoding does in each "
            "layer.\n"
            "`read` adds up the same memory; bf16 has half the bytes. Caches of many layers\n"
            "make 256 MiB together. Without --threads: one, and all cores.\n\n"
            "  bench cached\n"
            "  bench cached --shapes 32768x8x2x64 --threads 1",
    .run = run_cached};
