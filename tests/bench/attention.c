/*
 * tests/bench/attention.c - bench attention: causal attention forward and backward beside the
 * peak of multiply-add, of floats and of bf16 numbers with bf16 products.
 *
 * Only the half of the scores that a causal mask leaves is counted: 2 products of S^2 D / 2
 * multiply-adds a head forward, 5 backward (the scores recomputed, then dV, dP, dQ, dK).
 */
#include "tests/bench/bench.h"
#include "kernels/attention_internal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { BATCH = 2, HEADS = 12, TYPES = 2 };

typedef struct shape {
    int64_t seq, dim;
} shape;

typedef struct bench {
    wf_context *ctx;
    wf_dtype dtype;
    int threads;
    wf_tensor *q, *k, *v, *out, *lse, *dout;
} bench;

static bool forward(bench *b, wf_tensor **out, wf_tensor **lse)
{
    static const wf_attention_attr attr = {.site = 0};
    wf_call call = {.op = &wf_op_attention,
                    .ctx = b->ctx,
                    .n_in = 3,
                    .in = {b->q, b->k, b->v},
                    .n_out = 2,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    wf_dispatch(&call);
    *out = call.out[0];
    *lse = call.out[1];
    return wf_context_status(b->ctx) == WF_OK;
}

static bool backward(bench *b)
{
    static const wf_attention_attr attr = {.site = 0};
    wf_call call = {.op = &wf_op_attention_grad,
                    .ctx = b->ctx,
                    .n_in = 6,
                    .in = {b->q, b->k, b->v, b->out, b->lse, b->dout},
                    .n_out = 3,
                    .attr = &attr,
                    .attr_size = sizeof attr};

    return wf_dispatch(&call) == WF_OK;
}

static double run(bench *b, int64_t repeat, bool back)
{
    double start = bench_now(b->threads);
    bool good = true;

    for (int64_t i = 0; i < repeat && good; i++) {
        wf_tensor *out, *lse;

        wf_scope_open(b->ctx);
        good = back ? backward(b) : forward(b, &out, &lse);
        wf_scope_close(b->ctx);
    }
    return good ? bench_now(b->threads) - start : NAN;
}

static double run_forward(void *arg, int64_t repeat)
{
    return run(arg, repeat, false);
}

static double run_backward(void *arg, int64_t repeat)
{
    return run(arg, repeat, true);
}

/* A context that stores and multiplies so */
static wf_context *open_context(int threads, wf_dtype dtype, wf_error *error)
{
    wf_context *ctx = bench_context(threads, error);

    if (ctx)
        wf_context_storage(ctx, dtype);
    return ctx;
}

/* Queries, keys, values and a gradient for them, and what the forward pass leaves. */
static wf_status prepare(bench *b, const shape *s)
{
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(s->seq), wf_dim_chunked(HEADS),
                           wf_dim_width(s->dim)};
    wf_tensor **inputs[] = {&b->q, &b->k, &b->v, &b->dout};

    for (uint64_t i = 0; i < 4; i++) {
        *inputs[i] = wf_tensor_new(b->ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
        if (*inputs[i] && wf_init_normal(*inputs[i], 0, 1, i) == WF_OK && b->dtype != WF_F32)
            *inputs[i] = wf_cast(*inputs[i], b->dtype);
    }
    if (wf_context_status(b->ctx) == WF_OK)
        forward(b, &b->out, &b->lse);
    return wf_context_status(b->ctx);
}

static void report_pass(bench_report *report, const bench *b, const shape *s, const char *pass,
                        double products, double seconds, double floats, double peak)
{
    double flops = products * (double)(s->seq * s->seq * s->dim) * BATCH * HEADS;

    bench_row(report,
              (const bench_cell[]){bench_text("pass", pass),
                                   bench_text("type", wf_dtype_name(b->dtype)),
                                   bench_number("seq", (double)s->seq, 0),
                                   bench_number("dim", (double)s->dim, 0),
                                   bench_number("threads", b->threads, 0),
                                   bench_number("ms", seconds * 1e3, 3),
                                   bench_number("gflops", flops * 1e-9 / seconds, 1),
                                   bench_number("fma_peak", peak, 1),
                                   bench_number("of_peak", flops * 1e-9 / seconds / peak, 3),
                                   bench_number("of_fp32", floats / seconds, 3),
                                   {.name = NULL}});
}

/* b: of each type, fp32 first */
static wf_status run_shape(const bench_options *o, bench_report *report, bench *b,
                           bench_workers *workers, const shape *s)
{
    bench_entrant entrants[1 + 2 * TYPES] = {bench_fma(workers)};
    bool good = true;

    for (int i = 0; i < TYPES; i++) {
        entrants[1 + 2 * i] = (bench_entrant){.run = run_forward, .arg = &b[i]};
        entrants[2 + 2 * i] = (bench_entrant){.run = run_backward, .arg = &b[i]};
        wf_scope_open(b[i].ctx);
        good = good && prepare(&b[i], s) == WF_OK;
    }
    if (good && bench_race(o, 1 + 2 * TYPES, entrants)) {
        double peak = bench_fma_flops(workers) * 1e-9 / entrants[0].seconds;

        for (int back = 0; back < 2; back++)
            for (int i = 0; i < TYPES; i++)
                report_pass(report, &b[i], s, back ? "backward" : "forward", back ? 5 : 2,
                            entrants[1 + 2 * i + back].seconds, entrants[1 + back].seconds,
                            peak);
    }
    for (int i = 0; i < TYPES; i++)
        wf_scope_close(b[i].ctx);
    return wf_context_status(b[0].ctx) ? wf_context_status(b[0].ctx)
                                       : wf_context_status(b[1].ctx);
}

static int list_shapes(const bench_options *o, bool gpu, shape *shapes, wf_error *error)
{
    static const bench_shape_rule rule = {
        .numbers = 2, .most = {1 << 16, 1 << 10}, .text = "SEQxDIM, like 1024x64"};
    const char *list = o->shapes  ? o->shapes
                       : o->quick ? "48x16"
                       : gpu      ? "8192x128,16384x128,32768x128"
                                  : "256x64,256x128,1024x64,1024x128";
    int64_t read[BENCH_SHAPES][BENCH_SHAPE];
    int count = bench_shapes(list, &rule, read, error);

    for (int i = 0; i < count; i++)
        shapes[i] = (shape){read[i][0], read[i][1]};
    return count;
}

static wf_status run_threads(const bench_options *o, bench_report *report, int threads,
                             const shape *shapes, int n_shapes, wf_error *error)
{
    static const wf_dtype types[TYPES] = {WF_F32, WF_BF16};
    bench b[TYPES];
    bench_workers *workers = bench_workers_open(threads, error);

    for (int t = 0; t < TYPES; t++)
        b[t] = (bench){.ctx = workers && error->code == WF_OK
                                  ? open_context(threads, types[t], error)
                                  : NULL,
                       .dtype = types[t],
                       .threads = threads};
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

static wf_status run_gpu(const bench_options *o, bench_report *report, const shape *shapes,
                         int n_shapes, wf_error *error)
{
    bench_note(report,
               "causal, bf16, a sequence of 64 heads, 8 of keys and values; half of the "
               "scores counted, sums in any order");
    for (int i = 0; i < n_shapes && error->code == WF_OK; i++)
        bench_attention_gpu(o, report, shapes[i].seq, shapes[i].dim, error);
    return error->code;
}

static wf_status run_attention(const bench_options *o, bench_report *report, wf_error *error)
{
    bool gpu = o->device && strcmp(o->device, "cuda") == 0;
    shape shapes[BENCH_SHAPES];
    int n_shapes = list_shapes(o, gpu, shapes, error);

    if (error->code == WF_OK && o->device && !gpu && strcmp(o->device, "cpu") != 0)
        wf_error_set(error, WF_EINVAL, "there is no device %s: use cpu or cuda", o->device);
    if (error->code != WF_OK)
        return error->code;
    if (gpu)
        return run_gpu(o, report, shapes, n_shapes, error);
    bench_note(report, "causal, batch %d, %d heads; half of the scores counted", BATCH, HEADS);
    if (o->threads)
        return run_threads(o, report, (int)o->threads, shapes, n_shapes, error);
    if (run_threads(o, report, 1, shapes, n_shapes, error) == WF_OK && o->cores > 1)
        run_threads(o, report, o->cores, shapes, n_shapes, error);
    return error->code;
}

const bench_command bench_attention = {
    .name = "attention",
    .summary = "causal attention, beside the FMA peak",
    .more =
        "Causal attention, forward and backward, at 2 sequences of 12 heads, in fp32 and with\n"
        "bf16 products, whose time is compared with fp32's of the same race. The limit is\n"
        "the peak of fp32 multiply-adds; the work counted is the causal half. Without\n"
        "--threads: one thread, then all cores. On a GPU: in bf16, one sequence of 64\n"
        "heads, 8 of keys and values, as NVIDIA's published figures for cuDNN are.\n\n"
        "  bench attention --shapes 1024x64,2048x128 --threads 1\n"
        "  bench attention --device cuda --shapes 8192x128",
    .run = run_attention};
