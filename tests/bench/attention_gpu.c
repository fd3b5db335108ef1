/*
 * tests/bench/attention_gpu.c - bench attention --device cuda: bf16 on the first GPU, in the
 * shape of the figures that NVIDIA publishes for cuDNN: a sequence, 64 heads of queries, 8 of
 * keys and values. As there, gradients may be added in any order. Who serves where nothing is
 * asked for (`served`: cuDNN where it is found), Weft's own kernels (`weft`: by wgmma on a
 * Hopper, else by mma.sync) and those by mma.sync (`mma`) take turns. The kernels are called as
 * they are, without dispatch.
 */
#include "tests/bench/bench.h"
#include "kernels/attention_internal.h"
#include <math.h>
#include <stdlib.h>

enum { HEADS = 64, GROUPS = 8 };

static const wf_attention_attr no_dropout = {.site = 0};

/* Who computes, and what asks for it in the environment. */
typedef struct server {
    const char *name, *cudnn, *cores;
} server;

enum { SERVERS = 3, PASSES = 2 };

static const server servers[SERVERS] = {
    {"served", NULL, NULL}, {"weft", "off", NULL}, {"mma", "off", "mma"}};

static void set(const char *name, const char *value)
{
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

static void ask_for(const server *s)
{
    set("WEFT_CUDNN", s->cudnn);
    set("WEFT_TENSOR_CORES", s->cores);
}

/* One direction: its call, and the kernel that serves it. */
typedef struct pass {
    const server *by;
    wf_call call;
    const wf_kernel *kernel;
    wf_tensor *workspace;
} pass;

static wf_tensor *new_bf16(wf_context *ctx, const wf_dim dims[4])
{
    return wf_tensor_new(ctx, WF_BF16, 4, dims, NULL, WF_MEMORY_ACTIVATION);
}

static wf_tensor *random_bf16(wf_context *ctx, const wf_dim dims[4], uint64_t stream)
{
    wf_tensor *t = new_bf16(ctx, dims);
    wf_tensor *wide = wf_tensor_new(ctx, WF_F32, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_device *device = wf_context_device(ctx);

    if (!t || !wide || wf_init_normal(wide, 0, 1, stream) != WF_OK)
        return NULL;
    device->narrow(device, wide->data, t->data, wf_tensor_local_count(t));
    return t;
}

static wf_status prepare_pass(pass *p, wf_context *ctx, const wf_op *op)
{
    const wf_device *device = wf_context_device(ctx);
    int64_t floats;

    p->call.op = op;
    p->call.ctx = ctx;
    p->call.attr = &no_dropout;
    p->call.attr_size = sizeof no_dropout;
    p->kernel = device->kernel(device, op);
    floats = (int64_t)(p->kernel->workspace(&p->call) / sizeof(float)) + 1;
    p->workspace = wf_tensor_new(ctx, WF_F32, 1, (wf_dim[]){wf_dim_chunked(floats)}, NULL,
                                 WF_MEMORY_WORKSPACE);
    return wf_context_status(ctx);
}

static wf_status run_pass(const pass *p)
{
    return p->kernel->run(&p->call, p->workspace->data);
}

static double time_pass(void *arg, int64_t repeat)
{
    const pass *p = arg;
    wf_device *device = wf_context_device(p->call.ctx);
    wf_error error = {WF_OK, ""};
    bool good = device->memory->wait(device, &error) == WF_OK;
    double start;

    ask_for(p->by);
    start = bench_now(2); /* wall time */
    for (int64_t i = 0; i < repeat && good; i++)
        good = run_pass(p) == WF_OK;
    good = good && device->memory->wait(device, &error) == WF_OK;
    ask_for(&servers[0]);
    return good ? bench_now(2) - start : NAN;
}

/* Operands and results of both directions; what the second reads, the first has made. */
static wf_status prepare(wf_context *ctx, int64_t seq, int64_t dim, pass *forward,
                         pass *backward)
{
    const wf_dim q[] = {wf_dim_batch(1), wf_dim_chunked(seq), wf_dim_chunked(HEADS),
                        wf_dim_width(dim)};
    const wf_dim k[] = {wf_dim_batch(1), wf_dim_chunked(seq), wf_dim_chunked(GROUPS),
                        wf_dim_width(dim)};
    wf_call *f = &forward->call, *b = &backward->call;

    f->n_in = 3;
    f->n_out = 2;
    b->n_in = 6;
    b->n_out = 3;
    for (int i = 0; i < 3; i++) {
        f->in[i] = b->in[i] = random_bf16(ctx, i ? k : q, (uint64_t)i);
        b->out[i] = new_bf16(ctx, i ? k : q);
    }
    f->out[0] = b->in[3] = new_bf16(ctx, q);
    f->out[1] = b->in[4] = wf_tensor_new(ctx, WF_F32, 3, q, NULL, WF_MEMORY_ACTIVATION);
    b->in[5] = random_bf16(ctx, q, 3);
    if (wf_context_status(ctx) != WF_OK ||
        prepare_pass(forward, ctx, &wf_op_attention) != WF_OK ||
        prepare_pass(backward, ctx, &wf_op_attention_grad) != WF_OK)
        return wf_context_status(ctx);
    return run_pass(forward);
}

static void report(bench_report *report, const char *name, const server *by, int64_t seq,
                   int64_t dim, double products, double seconds)
{
    double flops = products * (double)seq * (double)seq * (double)dim * HEADS;

    bench_row(report, (const bench_cell[]){bench_text("pass", name),
                                           bench_text("by", by->name),
                                           bench_number("seq", (double)seq, 0),
                                           bench_number("dim", (double)dim, 0),
                                           bench_number("ms", seconds * 1e3, 3),
                                           bench_number("tflops", flops * 1e-12 / seconds, 1),
                                           {.name = NULL}});
}

wf_status bench_attention_gpu(const bench_options *o, bench_report *out, int64_t seq,
                              int64_t dim, wf_error *error)
{
    wf_context *ctx = bench_gpu_context(true, error);
    pass passes[SERVERS][PASSES] = {{{.kernel = NULL}}};
    bench_entrant entrants[SERVERS * PASSES];
    bool raced;

    if (!ctx)
        return error->code;
    wf_scope_open(ctx);
    ask_for(&servers[0]);
    if (prepare(ctx, seq, dim, &passes[0][0], &passes[0][1]) == WF_OK) {
        for (int i = 0; i < SERVERS * PASSES; i++) {
            pass *p = &passes[i / PASSES][i % PASSES];

            *p = passes[0][i % PASSES];
            p->by = &servers[i / PASSES];
            entrants[i] = (bench_entrant){.run = time_pass, .arg = p};
        }
        raced = bench_race(o, SERVERS * PASSES, entrants);
        for (int i = 0; raced && i < SERVERS * PASSES; i++)
            report(out, i % PASSES ? "backward" : "forward", &servers[i / PASSES], seq, dim,
                   i % PASSES ? 5 : 2, entrants[i].seconds);
    }
    wf_scope_close(ctx);
    if (wf_context_status(ctx) != WF_OK)
        wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return error->code;
}
