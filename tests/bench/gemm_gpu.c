/*
 * tests/bench/gemm_gpu.c - bench gemm --device cuda: products of bf16 in exact mode on the
 * first GPU, by each kernel that it runs, in turns; `chosen` is the one that serves where none
 * is asked for. TFLOP/s. The kernels are called as they are, without dispatch.
 */
#include "tests/bench/gemm.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KERNELS = 4, CHOSEN = 3, SEQUENCE = 1024 };

static const char *const kernels[KERNELS] = {"mma", "wgmma", "persistent", NULL};

/* A product: its shape, form and cuts. Of TN the sum is over tokens, cut by sequences. */
typedef struct product {
    bench_shape shape;
    const char *form;
    int chunks;
} product;

/* Those of a step of GPT-2 124M, 32 sequences of 1024, and a large one. */
static const product of_a_step[] = {
    {{8192, 8192, 8192}, "NT", 1},  {{32768, 768, 2304}, "NT", 1},
    {{32768, 768, 2304}, "NT", 8},  {{32768, 768, 768}, "NT", 8},
    {{32768, 768, 3072}, "NT", 1},  {{32768, 3072, 768}, "NT", 8},
    {{32768, 2304, 768}, "NN", 8},  {{32768, 3072, 768}, "NN", 8},
    {{2304, 32768, 768}, "TN", 32}, {{3072, 32768, 768}, "TN", 32},
};

typedef struct runner {
    wf_call call;
    const wf_kernel *kernel;
    wf_tensor *workspace;
    const char *by; /* NULL: none is asked for */
} runner;

static void ask_for(const char *kernel)
{
    if (kernel)
        setenv("WEFT_TENSOR_CORES", kernel, 1);
    else
        unsetenv("WEFT_TENSOR_CORES");
}

static double time_product(void *arg, int64_t repeat)
{
    const runner *r = arg;
    wf_device *device = wf_context_device(r->call.ctx);
    wf_error error = {WF_OK, ""};
    bool well = device->memory->wait(device, &error) == WF_OK;
    double start;

    ask_for(r->by);
    start = bench_now(2); /* wall time */
    for (int64_t i = 0; i < repeat && well; i++)
        well = r->kernel->run(&r->call, r->workspace->data) == WF_OK;
    well = well && device->memory->wait(device, &error) == WF_OK;
    ask_for(NULL);
    return well ? bench_now(2) - start : NAN;
}

static wf_tensor *random_bf16(wf_context *ctx, int ndim, const wf_dim *dims, uint64_t stream)
{
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    return t && wf_init_normal(t, 0, 1, stream) == WF_OK ? wf_cast(t, WF_BF16) : NULL;
}

/* Makes operands, result and workspace of a product in a context. */
static wf_status prepare(runner *r, wf_context *ctx, const product *p)
{
    const wf_device *device = wf_context_device(ctx);
    const bench_shape *s = &p->shape;
    bool tn = strcmp(p->form, "TN") == 0, nt = strcmp(p->form, "NT") == 0;
    int64_t tokens = tn ? s->k : s->m, of_one = tokens % SEQUENCE ? tokens : SEQUENCE;
    const wf_dim sum = {s->k, 1, p->chunks == 8 ? WF_CHUNKS_8 : WF_CHUNKS_1};
    const wf_dim m = wf_dim_width(s->m), n = wf_dim_width(s->n);
    const wf_dim batch = wf_dim_batch(tokens / of_one), rows = wf_dim_chunked(of_one);
    const wf_op *op = tn ? &wf_op_linear_dw : nt ? &wf_op_linear1 : &wf_op_linear1_dx;
    wf_call *c = &r->call;
    int64_t floats;

    c->op = op;
    c->ctx = ctx;
    c->n_in = 2;
    c->n_out = 1;
    c->in[0] = random_bf16(ctx, 3, (wf_dim[]){batch, rows, tn ? m : sum}, 1);
    if (tn)
        c->in[1] = random_bf16(ctx, 3, (wf_dim[]){batch, rows, n}, 2);
    else
        c->in[1] = random_bf16(ctx, 2, nt ? (wf_dim[]){n, sum} : (wf_dim[]){sum, n}, 2);
    c->out[0] = wf_tensor_new(ctx, tn ? WF_F32 : WF_BF16, tn ? 2 : 3,
                              tn ? (wf_dim[]){m, n} : (wf_dim[]){batch, rows, n}, NULL,
                              WF_MEMORY_ACTIVATION);
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    r->kernel = device->kernel(device, op);
    floats = (int64_t)(r->kernel->workspace(c) / sizeof(float)) + 1;
    r->workspace = wf_tensor_new(ctx, WF_F32, 1, (wf_dim[]){wf_dim_chunked(floats)}, NULL,
                                 WF_MEMORY_WORKSPACE);
    return wf_context_status(ctx);
}

static void report_product(bench_report *report, const product *p, const bench_entrant *e,
                           bool hopper)
{
    const bench_shape *s = &p->shape;
    double flops = 2e-12 * (double)(s->m * s->k) * (double)s->n;
    const bench_entrant *chosen = &e[hopper ? CHOSEN : 1];

    bench_row(report,
              (const bench_cell[]){
                  bench_text("setting", "cuda"),
                  bench_number("m", (double)s->m, 0),
                  bench_number("k", (double)s->k, 0),
                  bench_number("n", (double)s->n, 0),
                  bench_text("form", p->form),
                  bench_number("chunks", p->chunks, 0),
                  bench_number("mma", flops / e[0].seconds, 1),
                  bench_number("wgmma", hopper ? flops / e[1].seconds : NAN, 1),
                  bench_number("persistent", hopper ? flops / e[2].seconds : NAN, 1),
                  bench_number("chosen", flops / chosen->seconds, 1),
                  bench_number("of_wgmma", hopper ? e[1].seconds / e[2].seconds : NAN, 3),
                  {.name = NULL}});
}

static wf_status race_product(const bench_options *o, bench_report *report, const product *p,
                              bool hopper, wf_error *error)
{
    wf_context *ctx = bench_gpu_context(false, error);
    runner runners[KERNELS] = {{.kernel = NULL}};
    bench_entrant entrants[KERNELS];
    int count = 0;

    if (!ctx)
        return error->code;
    wf_scope_open(ctx);
    if (prepare(&runners[0], ctx, p) == WF_OK) {
        for (int k = 0; k < KERNELS; k++) {
            if (!hopper && k != 0 && k != CHOSEN)
                continue;
            runners[count] = runners[0];
            runners[count].by = kernels[k];
            entrants[count] = (bench_entrant){.run = time_product, .arg = &runners[count]};
            count++;
        }
        if (bench_race(o, count, entrants))
            report_product(report, p, entrants, hopper);
    }
    wf_scope_close(ctx);
    if (wf_context_status(ctx) != WF_OK)
        wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return error->code;
}

/* Returns whether the GPU runs the kernels of a Hopper, which is asked by a small product. */
static bool is_hopper(bench_report *report, wf_error *error)
{
    const product small = {{8, 8, 8}, "NT", 1};
    wf_context *ctx = bench_gpu_context(false, error);
    runner r = {.by = "wgmma"};
    bool hopper;

    if (!ctx)
        return false;
    wf_scope_open(ctx);
    if (prepare(&r, ctx, &small) == WF_OK)
        time_product(&r, 1);
    wf_scope_close(ctx);
    hopper = wf_context_status(ctx) == WF_OK;
    if (wf_context_status(ctx) == WF_EUNSUPPORTED)
        bench_note(report, "one kernel: this GPU is no Hopper");
    else if (!hopper)
        wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    wf_context_close(ctx);
    return hopper;
}

wf_status bench_gemm_gpu(const bench_options *o, bench_report *report, wf_error *error)
{
    bench_shape shapes[BENCH_SHAPES];
    int n_shapes = o->shapes || o->quick ? bench_gemm_shapes(o, shapes, error) : 0;
    bool hopper;

    if (o->dtype && strcmp(o->dtype, "bf16") != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--dtype %s: on a GPU products of bf16 are timed, of which there "
                            "are several kernels: leave it out",
                            o->dtype);
    if (o->threads)
        return wf_error_set(error, WF_EINVAL, "--threads %d: a GPU has none: leave it out",
                            (int)o->threads);
    if (error->code != WF_OK || !bench_gemm_forms_are_good(o, error))
        return error->code;
    bench_note(report, "TFLOP/s; products of bf16 in exact mode");
    hopper = is_hopper(report, error);
    if (n_shapes == 0 && !o->forms)
        for (size_t i = 0; i < sizeof of_a_step / sizeof *of_a_step; i++)
            if (error->code == WF_OK)
                race_product(o, report, &of_a_step[i], hopper, error);
    for (int i = 0; i < n_shapes; i++) {
        const char *forms = o->forms ? o->forms : "NT,NN,TN";
        char form[8];

        while (bench_next_word(&forms, form, sizeof form) && error->code == WF_OK) {
            bool tn = strcmp(form, "TN") == 0;

            if (strcmp(form, "TT") == 0)
                wf_error_set(error, WF_EINVAL, "form TT: no product of a model has it");
            for (int chunks = 1; chunks <= (tn ? 1 : 8) && error->code == WF_OK; chunks += 7)
                race_product(o, report,
                             &(product){shapes[i], form,
                                        tn && shapes[i].k % SEQUENCE == 0
                                            ? (int)(shapes[i].k / SEQUENCE)
                                            : chunks},
                             hopper, error);
        }
    }
    return error->code;
}
