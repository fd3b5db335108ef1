/*
 * tests/bench/experts.c - bench experts: grouped products, of the rows of all experts of a
 * mixture, beside the dense products of as many rows and the same matrices' sizes.
 *
 * Forward is three products of a token's choice, with what is between them; the gradients here
 * are eight, since gate and up are made again, in both.
 */
#include "tests/bench/bench.h"
#include "kernels/moe_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, TYPES = 2, FORWARD = 3, BACKWARD = 8 };

typedef struct shape {
    int64_t tokens, d, f, experts, k;
} shape;

/* The tensors of one type: a mixture, and an MLP for all rows of choices. */
typedef struct bench {
    wf_context *ctx;
    wf_device *gpu; /* NULL: on the CPU */
    int threads;
    wf_dtype dtype;
    wf_tensor *gate, *up, *down, *x, *dy, *weights, *index;
    wf_tensor *dense_gate, *dense_up, *dense_down, *rows, *dense_dy;
} bench;

static void forward(bench *b)
{
    wf_experts(b->gate, b->up, b->down, b->x, b->weights, b->index, 0);
}

static void backward(bench *b)
{
    wf_gradient g = {.ctx = b->ctx,
                     .n_in = WF_MOE_DY,
                     .n_out = 1,
                     .in = {b->gate, b->up, b->down, b->x, b->weights, b->index},
                     .dout = {b->dy},
                     .want = {true, true, true, true, true}};

    wf_experts_backward(&g, 1, 0);
}

static wf_tensor *dense_h(bench *b, wf_tensor *gate_up[2])
{
    wf_linear_group(b->rows, 2, (wf_tensor *[]){b->dense_gate, b->dense_up}, gate_up);
    return wf_swiglu(gate_up[0], gate_up[1]);
}

static void dense_forward(bench *b)
{
    wf_tensor *gate_up[2];

    wf_linear(dense_h(b, gate_up), b->dense_down);
}

static void dense_backward(bench *b)
{
    wf_tensor *gate_up[2], *d[2], *h = dense_h(b, gate_up);
    wf_tensor *dh = wf_linear_dx(1, &b->dense_dy, &b->dense_down);

    wf_swiglu_grad(gate_up[0], gate_up[1], dh, &d[0], &d[1]);
    wf_linear_dx(2, d, (wf_tensor *[]){b->dense_gate, b->dense_up});
    wf_linear_dw(d[0], b->rows);
    wf_linear_dw(d[1], b->rows);
    wf_linear_dw(b->dense_dy, h);
}

typedef struct runner {
    bench *b;
    void (*run)(bench *b);
} runner;

static double stop_clock(const bench *b)
{
    return bench_stop_clock(b->gpu, b->threads);
}

static double run(void *arg, int64_t repeat)
{
    runner *r = arg;
    double start = stop_clock(r->b);

    for (int64_t i = 0; i < repeat; i++) {
        wf_scope_open(r->b->ctx);
        r->run(r->b);
        wf_scope_close(r->b->ctx);
    }
    return wf_context_status(r->b->ctx) == WF_OK ? stop_clock(r->b) - start : NAN;
}

/* ---- tensors ---- */

static wf_tensor *drawn(bench *b, int ndim, const wf_dim *dims, uint64_t stream)
{
    wf_tensor *t = wf_tensor_new(b->ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    if (t && wf_init_normal(t, 0, 0.02F, stream) == WF_OK && b->dtype != WF_F32)
        return wf_cast(t, b->dtype);
    return t;
}

/* Floats that the host knows. */
static wf_tensor *written(bench *b, const wf_dim dims[3],
                          float (*at)(const shape *s, int64_t i), const shape *s)
{
    wf_tensor *t = wf_tensor_new(b->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);
    float *host = t ? malloc((size_t)wf_tensor_local_count(t) * sizeof *host) : NULL;

    for (int64_t i = 0; host && i < wf_tensor_local_count(t); i++)
        host[i] = at(s, i);
    if (host && b->gpu)
        b->gpu->memory->write(b->gpu, t->data, host,
                              (size_t)wf_tensor_local_count(t) * sizeof *host);
    else if (host)
        memcpy(t->data, host, (size_t)wf_tensor_local_count(t) * sizeof *host);
    free(host);
    return t;
}

static float weight_at(const shape *s, int64_t i)
{
    (void)i;
    return 1.0F / (float)s->k;
}

/* Loads are equal: a token chooses k experts side by side, and the next one those after
   them. */
static float index_at(const shape *s, int64_t i)
{
    return (float)(i / s->k % (s->experts / s->k) * s->k + i % s->k);
}

static wf_status prepare(bench *b, const shape *s)
{
    const wf_dim e = wf_dim_experts(s->experts), f = wf_dim_chunked(s->f),
                 d = wf_dim_width(s->d);
    const wf_dim batch = wf_dim_batch(SEQUENCES), tokens = wf_dim_chunked(s->tokens);
    const wf_dim many = wf_dim_chunked(s->tokens * s->k);
    const wf_dim chosen[] = {batch, tokens, wf_dim_width(s->k)};

    b->gate = drawn(b, 3, (wf_dim[]){e, f, d}, 1);
    b->up = drawn(b, 3, (wf_dim[]){e, f, d}, 2);
    b->down = drawn(b, 3, (wf_dim[]){e, d, f}, 3);
    b->x = drawn(b, 3, (wf_dim[]){batch, tokens, d}, 4);
    b->dy = drawn(b, 3, (wf_dim[]){batch, tokens, d}, 5);
    b->dense_gate = drawn(b, 2, (wf_dim[]){f, d}, 6);
    b->dense_up = drawn(b, 2, (wf_dim[]){f, d}, 7);
    b->dense_down = drawn(b, 2, (wf_dim[]){d, f}, 8);
    b->rows = drawn(b, 3, (wf_dim[]){batch, many, d}, 9);
    b->dense_dy = drawn(b, 3, (wf_dim[]){batch, many, d}, 10);
    if (wf_context_status(b->ctx) == WF_OK) {
        b->weights = written(b, chosen, weight_at, s);
        b->index = written(b, chosen, index_at, s);
    }
    return wf_context_status(b->ctx);
}

/* ---- rows ---- */

static void report_pass(bench_report *report, const bench *b, const shape *s, bool back,
                        double seconds, double dense)
{
    double products = (back ? BACKWARD : FORWARD) * 2.0 * SEQUENCES;
    double flops = products * (double)(s->tokens * s->k * s->d) * (double)s->f;

    bench_row(report,
              (const bench_cell[]){bench_text("pass", back ? "backward" : "forward"),
                                   bench_text("type", wf_dtype_name(b->dtype)),
                                   bench_number("tokens", (double)s->tokens * SEQUENCES, 0),
                                   bench_number("d", (double)s->d, 0),
                                   bench_number("f", (double)s->f, 0),
                                   bench_number("experts", (double)s->experts, 0),
                                   bench_number("k", (double)s->k, 0),
                                   bench_number("ms", seconds * 1e3, 3),
                                   bench_number("gflops", flops * 1e-9 / seconds, 1),
                                   bench_number("dense_ms", dense * 1e3, 3),
                                   bench_number("of_dense", dense / seconds, 3),
                                   {.name = NULL}});
}

static wf_status run_type(const bench_options *o, bench_report *report, bench *b,
                          const shape *s)
{
    runner runners[] = {{b, forward}, {b, dense_forward}, {b, backward}, {b, dense_backward}};
    bench_entrant entrants[4];

    for (int i = 0; i < 4; i++)
        entrants[i] = (bench_entrant){.run = run, .arg = &runners[i]};
    wf_context_storage(b->ctx, b->dtype);
    wf_scope_open(b->ctx);
    if (prepare(b, s) == WF_OK && bench_race(o, 4, entrants))
        for (int back = 0; back < 2; back++)
            report_pass(report, b, s, back, entrants[2 * back].seconds,
                        entrants[2 * back + 1].seconds);
    wf_scope_close(b->ctx);
    return wf_context_status(b->ctx);
}

static bool has_chosen(const int64_t *number)
{
    return number[4] <= number[3];
}

static int list_shapes(const bench_options *o, bool gpu, shape *shapes, wf_error *error)
{
    const char *list = o->shapes  ? o->shapes
                       : o->quick ? "12x16x24x4x2"
                       : gpu      ? "4096x2048x768x128x8,4096x4096x14336x8x2,64x2048x768x128x8"
                                  : "256x512x256x16x4";
    char text[128];
    const bench_shape_rule rule = {.numbers = 5,
                                   .most = {1 << 20, 1 << 20, 1 << 20, 1 << 20, WF_ROUTE_MOST},
                                   .fits = has_chosen,
                                   .text = text};
    int64_t read[BENCH_SHAPES][BENCH_SHAPE];
    int count;

    snprintf(text, sizeof text,
             "TOKENSxWIDTHxFEATURESxEXPERTSxCHOSEN, like 4096x2048x768x128x8, with at most %d "
             "experts of a token",
             WF_ROUTE_MOST);
    count = bench_shapes(list, &rule, read, error);
    for (int i = 0; i < count; i++)
        shapes[i] = (shape){read[i][0], read[i][1], read[i][2], read[i][3], read[i][4]};
    return count;
}

static wf_status run_experts(const bench_options *o, bench_report *report, wf_error *error)
{
    static const wf_dtype types[TYPES] = {WF_F32, WF_BF16};
    const bool gpu = o->device && strcmp(o->device, "cuda") == 0;
    const int threads = o->threads ? (int)o->threads : o->cores;
    shape shapes[BENCH_SHAPES];
    int count;

    if (o->device && !gpu && strcmp(o->device, "cpu") != 0)
        return wf_error_set(error, WF_EINVAL, "there is no device %s: use cpu or cuda",
                            o->device);
    count = list_shapes(o, gpu, shapes, error);
    for (int i = 0; i < count * TYPES && error->code == WF_OK; i++) {
        bench b = {.ctx = gpu ? bench_gpu_context(false, error) : bench_context(threads, error),
                   .threads = threads,
                   .dtype = types[i % TYPES]};

        if (!b.ctx)
            return error->code;
        b.gpu = gpu ? wf_context_device(b.ctx) : NULL;
        if (run_type(o, report, &b, &shapes[i / TYPES]) != WF_OK)
            wf_error_set(error, wf_context_status(b.ctx), "%s", wf_context_error(b.ctx)->text);
        wf_context_close(b.ctx);
    }
    return error->code;
}

const bench_command bench_experts = {
    .name = "experts",
    .summary = "grouped products of experts, beside dense ones of equal work",
    .more =
        "A mixture of experts with equal loads, forward and backward, in fp32 and bf16, at 2\n"
        "sequences; beside it the MLP of as many rows as the mixture has choices, with the\n"
        "products of one expert's size. The work counted is that of products: 3 of a row\n"
        "forward; 8 backward, in both, which make gate and up again. A shape TxDxFxExK has T\n"
        "tokens in a sequence, of width D, and E experts of F features, of which each token\n"
        "has K.\n\n"
        "  bench experts --shapes 256x512x256x16x4 --threads 1\n"
        "  bench experts --device cuda --shapes 4096x2048x768x128x8",
    .run = run_experts};
