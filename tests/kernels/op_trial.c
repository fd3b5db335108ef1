/* tests/kernels/op_trial.c - running one case at one shape on one context. */
#include "tests/kernels/op_trial.h"
#include "tests/kernels/xorshift.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

static uint64_t state;

/* Uniform in [0, 1). */
static double uniform(void)
{
    return (double)(xorshift(&state) >> 11) * 0x1p-53;
}

static op_operand wanted(int ndim, wf_dim a, wf_dim b, wf_dim c, wf_dim d)
{
    return (op_operand){.ndim = ndim, .dim = {a, b, c, d}, .wanted = true};
}

wf_dim op_width(const op_shape *s)
{
    return wf_dim_width(s->width);
}

op_operand op_activations(const op_shape *s, wf_dim last)
{
    return wanted(3, wf_dim_batch(s->batch), wf_dim_chunked(s->tokens), last, (wf_dim){0});
}

op_operand op_per_token(const op_shape *s)
{
    return wanted(2, wf_dim_batch(s->batch), wf_dim_chunked(s->tokens), (wf_dim){0},
                  (wf_dim){0});
}

op_operand op_unwanted(op_operand o)
{
    o.wanted = false;
    return o;
}

op_operand op_matrix(wf_dim rows, wf_dim columns)
{
    return (op_operand){.ndim = 2, .dim = {rows, columns}, .wanted = true};
}

op_case op_case_of(int n_in, int n_out, void (*apply)(wf_tensor *const *, wf_tensor **))
{
    return (op_case){.n_in = n_in, .n_out = n_out, .apply = apply};
}

op_operand op_vector(wf_dim dim)
{
    return wanted(1, dim, (wf_dim){0}, (wf_dim){0}, (wf_dim){0});
}

op_operand op_heads(const op_shape *s, int64_t heads)
{
    return wanted(4, wf_dim_batch(s->batch), wf_dim_chunked(s->tokens), wf_dim_chunked(heads),
                  wf_dim_width(s->head_dim));
}

op_operand op_token_ids(const op_shape *s)
{
    op_operand o = op_per_token(s);

    o.wanted = false;
    o.below = s->vocabulary;
    return o;
}

int64_t op_elements(const op_operand *o)
{
    int64_t n = 1;

    for (int d = 0; d < o->ndim; d++)
        n *= o->dim[d].size;
    return n;
}

double *op_numbers(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);

    if (!x)
        CU_FAIL_FATAL("no memory");
    return x;
}

static void random_operand(const op_operand *o, double *x)
{
    double low = o->low, high = o->high;

    if (low == 0 && high == 0) {
        low = -2;
        high = 2;
    }
    for (int64_t i = 0, n = op_elements(o); i < n; i++)
        x[i] = o->below ? floor(uniform() * (double)o->below)
                        : (float)(low + (high - low) * uniform());
}

/* A tensor of the type that the context computes in; i32 where asked for. */
static wf_tensor *tensor_of(wf_context *ctx, int ndim, const wf_dim *dims, bool integer,
                            const double *x)
{
    bool reference = strcmp(wf_context_device(ctx)->name, "reference") == 0;
    wf_dtype dtype = integer ? WF_I32 : reference ? WF_F64 : WF_F32;
    wf_tensor *t = wf_tensor_new(ctx, dtype, ndim, dims, NULL, WF_MEMORY_ACTIVATION);

    if (!t)
        CU_FAIL_FATAL("no tensor");
    for (int64_t i = 0, n = wf_tensor_count(t); i < n; i++) {
        if (dtype == WF_I32)
            ((int32_t *)t->data)[i] = (int32_t)x[i];
        else if (dtype == WF_F32)
            ((float *)t->data)[i] = (float)x[i];
        else
            ((double *)t->data)[i] = x[i];
    }
    return t;
}

static double *values_of(const wf_tensor *t)
{
    int64_t n = wf_tensor_count(t);
    double *x = op_numbers(n);

    for (int64_t i = 0; i < n; i++)
        x[i] = t->dtype == WF_F32 ? ((const float *)t->data)[i] : ((const double *)t->data)[i];
    return x;
}

/* loss = sum of weights * x, an application's op: its gradient is the weights themselves. */
typedef struct weigh_attr {
    wf_tensor *weights;
} weigh_attr;

static wf_status weigh_run(const wf_call *call, void *workspace)
{
    double *x = values_of(call->in[0]);
    double *w = values_of(((const weigh_attr *)call->attr)->weights), sum = 0;

    (void)workspace;
    for (int64_t i = 0, n = wf_tensor_count(call->in[0]); i < n; i++)
        sum += x[i] * w[i];
    if (call->out[0]->dtype == WF_F32)
        *(float *)call->out[0]->data = (float)sum;
    else
        *(double *)call->out[0]->data = sum;
    free(x);
    free(w);
    return WF_OK;
}

static void weigh_backward(wf_gradient *g)
{
    g->din[0] = ((const weigh_attr *)g->attr)->weights;
}

static const wf_kernel weigh_kernel = {.run = weigh_run};
static const wf_op weigh = {.name = "weigh",
                            .signature = "...->",
                            .reference = {.run = weigh_run},
                            .backward = weigh_backward,
                            .kernels = WF_KERNELS({"cpu", &weigh_kernel})};

void op_fail(const op_trial *t, const char *format, ...)
{
    const op_shape *s = t->shape;
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    printf("    %s, batch %" PRId64 ", tokens %" PRId64 ", width %" PRId64 ": %s\n",
           t->entry->name, s->batch, s->tokens, s->width, text);
    CU_FAIL("see above");
}

/* Returns true where upper halves of vector registers are in use, which a kernel has to clear:
   SSE takes forty times as long beside them on some processors. gcc does not below -O2. */
static bool uses_upper_halves(void)
{
#if defined(__x86_64__)
    const unsigned upper = 1u << 2 | 1u << 6; /* ymm, zmm */
    unsigned a = 0, b, c, d;

    if (!__get_cpuid_count(0xd, 1, &a, &b, &c, &d) || !(a & 1u << 2))
        return false;
    __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
    return a & upper;
#else
    return false;
#endif
}

static void inspect(wf_context *ctx, const op_trial *t)
{
    if (uses_upper_halves())
        op_fail(t, "upper halves of registers are left in use");
    if (wf_context_status(ctx) == WF_OK)
        return;
    op_fail(t, "%s", wf_context_error(ctx)->text);
    wf_context_clear(ctx);
}

static void keep(op_result *r, int i, const wf_tensor *t)
{
    r->value[i] = values_of(t);
    r->count[i] = wf_tensor_count(t);
    r->first[i] = t->ndim ? t->dim[0].size : 1;
    r->ndim[i] = t->ndim;
}

void op_forget(op_result *r)
{
    for (int i = 0; i < OP_RESULTS; i++)
        free(r->value[i]);
    memset(r, 0, sizeof *r);
}

/* The number that gradients are of, on the tape; NULL where no output carries a gradient. */
static wf_tensor *weighed(wf_context *ctx, const op_trial *t, wf_tensor *const *out)
{
    wf_tensor *loss = NULL;

    for (int o = 0; o < t->c.n_out; o++) {
        weigh_attr attr;
        wf_tensor *term;

        if (t->c.constant[o] || !out[o])
            continue;
        attr.weights = tensor_of(ctx, out[o]->ndim, out[o]->dim, false, t->w[o]);
        term = wf_apply(&weigh, &attr, sizeof attr, 1, out[o]);
        loss = loss ? wf_add(loss, term) : term;
    }
    return loss;
}

/* Run a trial. Weights are drawn at the first run, when the outputs' sizes are known. */
void op_run(wf_context *ctx, op_trial *t, bool gradients, op_result *r)
{
    wf_tensor *in[OP_INPUTS] = {NULL}, *out[OP_OUTPUTS] = {NULL};
    const double one = 1;
    wf_tape *tape = NULL;
    bool any = false;

    memset(r, 0, sizeof *r);
    wf_scope_open(ctx);
    if (gradients)
        tape = wf_tape_open(ctx);
    for (int i = 0; i < t->c.n_in; i++) {
        const op_operand *o = &t->c.in[i];

        in[i] = tensor_of(ctx, o->ndim, o->dim, o->below > 0, t->x[i]);
        if (o->wanted && gradients)
            in[i] = wf_leaf(in[i]);
        any |= o->wanted;
    }
    t->c.apply(in, out);
    inspect(ctx, t);
    for (int o = 0; o < t->c.n_out; o++) {
        if (!out[o]) {
            op_fail(t, "output %d is NULL", o);
            continue;
        }
        keep(r, o, out[o]);
        if (!t->w[o]) {
            t->w[o] = op_numbers(r->count[o]);
            for (int64_t i = 0; i < r->count[o]; i++)
                t->w[o][i] = (float)(4 * uniform() - 2);
        }
    }
    if (any && gradients) {
        wf_tensor *loss = weighed(ctx, t, out);

        wf_backward(loss, tensor_of(ctx, 0, NULL, false, &one), false);
        inspect(ctx, t);
        for (int i = 0; i < t->c.n_in; i++) {
            if (t->c.in[i].wanted && in[i]->grad)
                keep(r, OP_OUTPUTS + i, in[i]->grad);
            else if (t->c.in[i].wanted)
                op_fail(t, "operand %d has no gradient", i);
        }
    }
    wf_tape_close(tape);
    wf_scope_close(ctx);
}
op_trial op_trial_begin(const op_entry *entry, const op_shape *shape, uint64_t seed)
{
    op_trial t = {.entry = entry, .shape = shape};

    state = 0x9e3779b97f4a7c15u ^ seed;
    entry->build(&t.c, shape);
    for (int i = 0; i < t.c.n_in; i++) {
        t.x[i] = op_numbers(op_elements(&t.c.in[i]));
        random_operand(&t.c.in[i], t.x[i]);
    }
    return t;
}

void op_trial_end(op_trial *t)
{
    for (int i = 0; i < OP_INPUTS; i++)
        free(t->x[i]);
    for (int o = 0; o < OP_OUTPUTS; o++)
        free(t->w[o]);
}

wf_tensor *op_causal(wf_tensor *q, wf_tensor *k, wf_tensor *v, float dropout, int site)
{
    return wf_attention(
        q, k, v, &(wf_attention_options){.causal = true, .dropout = dropout, .site = site});
}
