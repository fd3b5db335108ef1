/* tests/kernels/op_harness.c - the checks of op_harness.h. */
#include "tests/kernels/op_harness.h"
#include "kernels/cpu/cpu.h"
#include "kernels/cpu/isa.h"
#include "kernels/devices.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESULTS = OP_OUTPUTS + OP_INPUTS, MAX_BACKENDS = 8, MAX_TESTS = 32 };

/* The rows that test_ops_b.c answers for; all others are test_ops_a.c's. */
static const char *const rows_of_b[] = {"layernorm",     "layernorm_dx",       "layernorm_dw",
                                        "rmsnorm",       "rmsnorm_dx",         "rmsnorm_dw",
                                        "rope",          "attention",          "attention_grad",
                                        "logit_max",     "logit_sum",          "logit_sum_grad",
                                        "cross_entropy", "cross_entropy_grad", NULL};

static const op_shape shapes[] = {
    {1, 1, 3, 1, 1, 2, 3, false},   {1, 7, 5, 2, 1, 4, 9, false},
    {3, 5, 24, 4, 2, 6, 17, false}, {3, 16, 16, 3, 3, 8, 24, false},
    {2, 9, 33, 6, 2, 4, 33, false}, {3, 99, 203, 6, 2, 16, 301, true}};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static op_suite running;
static const op_entry *entries;
static bool seen_reference[256], seen_cpu[256]; /* rows of ops.def, by id */

static const wf_kernel *(*reference_kernel)(const wf_device *, const wf_op *);
static const wf_kernel *(*cpu_kernel)(const wf_device *, const wf_op *);

static const wf_kernel *watched_reference(const wf_device *device, const wf_op *op)
{
    seen_reference[op->id] = true;
    return reference_kernel(device, op);
}

static const wf_kernel *watched_cpu(const wf_device *device, const wf_op *op)
{
    seen_cpu[op->id] = true;
    return cpu_kernel(device, op);
}

static wf_context *context_over(wf_device *device, wf_error *error)
{
    wf_context_options options = {.seed = 7};
    wf_context *ctx = device ? wf_context_open(device, &options, error) : NULL;

    if (!ctx) {
        printf("%s\n", error->text);
        CU_FAIL_FATAL("no context");
    }
    wf_context_position(ctx, 3, 5);
    return ctx;
}

wf_context *op_context_open(int threads)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = threads ? wf_cpu_device(threads, &error) : wf_reference_device(&error);

    if (device && threads) {
        cpu_kernel = device->kernel;
        device->kernel = watched_cpu;
    } else if (device) {
        reference_kernel = device->kernel;
        device->kernel = watched_reference;
    }
    return context_over(device, &error);
}

/* Contexts of every instruction set (the one asked for, if one is) with 1 and 3 threads. */
static int open_backends(wf_context *backend[MAX_BACKENDS], const char *label[MAX_BACKENDS])
{
    static const char *const isas[] = {"portable", "avx2", "avx512"};
    const char *asked = getenv("WEFT_CPU_ISA");
    int n = 0;

    for (int i = 0; i < 3; i++) {
        const wf_simd *simd = wf_cpu_simd_named(isas[i], NULL);

        if (!simd || (asked && *asked && strcmp(asked, isas[i]) != 0))
            continue;
        for (int threads = 1; threads <= 3; threads += 2) {
            wf_context *ctx = op_context_open(threads);
            wf_cpu *cpu = wf_context_device(ctx)->self;

            cpu->simd = simd;
            label[n] = isas[i];
            backend[n++] = ctx;
        }
    }
    return n;
}

static uint64_t state;

/* Uniform in [0, 1). */
static double uniform(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) * 0x1p-53;
}

static op_operand wanted(int ndim, wf_dim a, wf_dim b, wf_dim c, wf_dim d)
{
    return (op_operand){.ndim = ndim, .dim = {a, b, c, d}, .wanted = true};
}

op_operand op_activations(const op_shape *s, wf_dim last)
{
    return wanted(3, wf_dim_batch(s->batch), wf_dim_split(s->tokens), last, (wf_dim){0});
}

op_operand op_per_token(const op_shape *s)
{
    return wanted(2, wf_dim_batch(s->batch), wf_dim_split(s->tokens), (wf_dim){0}, (wf_dim){0});
}

op_operand op_vector(wf_dim dim)
{
    return wanted(1, dim, (wf_dim){0}, (wf_dim){0}, (wf_dim){0});
}

op_operand op_heads(const op_shape *s, int64_t heads)
{
    return wanted(4, wf_dim_batch(s->batch), wf_dim_split(s->tokens), wf_dim_split(heads),
                  wf_dim_width(s->head_dim));
}

op_operand op_token_ids(const op_shape *s)
{
    op_operand o = op_per_token(s);

    o.wanted = false;
    o.below = s->vocabulary;
    return o;
}

static int64_t elements(const op_operand *o)
{
    int64_t n = 1;

    for (int d = 0; d < o->ndim; d++)
        n *= o->dim[d].size;
    return n;
}

static double *numbers(int64_t n)
{
    double *x = calloc((size_t)n + 1, sizeof *x);

    CU_ASSERT_FATAL(x != NULL);
    return x;
}

static void random_operand(const op_operand *o, double *x)
{
    double low = o->low, high = o->high;

    if (low == 0 && high == 0) {
        low = -2;
        high = 2;
    }
    for (int64_t i = 0, n = elements(o); i < n; i++)
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

    CU_ASSERT_FATAL(t != NULL);
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
    double *x = numbers(n);

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
                            .cpu = &weigh_kernel};

/* One case at one shape: its operands, and weights that make one number of its outputs. */
typedef struct trial {
    const op_entry *entry;
    const op_shape *shape;
    op_case c;
    double *x[OP_INPUTS], *w[OP_OUTPUTS];
} trial;

/* Outputs first, then gradients; NULL where there is none. */
typedef struct result {
    double *value[RESULTS];
    int64_t count[RESULTS], first[RESULTS]; /* elements; size of dim 0 */
    int ndim[RESULTS];
} result;

static void fail(const trial *t, const char *format, ...) WF_PRINTF(2, 3);

static void fail(const trial *t, const char *format, ...)
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

static void inspect(wf_context *ctx, const trial *t)
{
    if (wf_context_status(ctx) == WF_OK)
        return;
    fail(t, "%s", wf_context_error(ctx)->text);
    wf_context_clear(ctx);
}

static void keep(result *r, int i, const wf_tensor *t)
{
    r->value[i] = values_of(t);
    r->count[i] = wf_tensor_count(t);
    r->first[i] = t->ndim ? t->dim[0].size : 1;
    r->ndim[i] = t->ndim;
}

static void forget(result *r)
{
    for (int i = 0; i < RESULTS; i++)
        free(r->value[i]);
    memset(r, 0, sizeof *r);
}

/* The number that gradients are of, on the tape; NULL where no output carries a gradient. */
static wf_tensor *weighed(wf_context *ctx, const trial *t, wf_tensor *const *out)
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
static void run(wf_context *ctx, trial *t, bool gradients, result *r)
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
            fail(t, "output %d is NULL", o);
            continue;
        }
        keep(r, o, out[o]);
        if (!t->w[o]) {
            t->w[o] = numbers(r->count[o]);
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
                fail(t, "operand %d has no gradient", i);
        }
    }
    wf_tape_close(tape);
    wf_scope_close(ctx);
}

static double norm(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static double distance(const double *x, const double *y, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += (x[i] - y[i]) * (x[i] - y[i]);
    return sqrt(sum);
}

/* Some gradients vanish (of queries, where there is one key): those are measured against a
   tenth of the greatest root mean square among their fellows in [from, to). */
static double measure(const result *r, int i, int from, int to)
{
    double scale = 0, own;

    for (int k = from; k < to; k++)
        if (r->value[k] && r->count[k])
            scale = fmax(scale, norm(r->value[k], r->count[k]) / sqrt((double)r->count[k]));
    own = norm(r->value[i], r->count[i]);
    return fmax(own, 0.1 * scale * sqrt((double)r->count[i])) + 1e-300;
}

static double loss_at(wf_context *ctx, trial *t)
{
    double sum = 0;
    result r;

    run(ctx, t, false, &r);
    for (int o = 0; o < t->c.n_out; o++)
        for (int64_t i = 0; !t->c.constant[o] && i < r.count[o]; i++)
            sum += t->w[o][i] * r.value[o][i];
    forget(&r);
    return sum;
}

/* What central differences say about operand i. */
static double *differences(wf_context *ctx, trial *t, int i)
{
    const double step = 0x1p-17;
    int64_t n = elements(&t->c.in[i]);
    double *slope = numbers(n);

    for (int64_t k = 0; k < n; k++) {
        double x = t->x[i][k], above, below;

        t->x[i][k] = x + step;
        above = loss_at(ctx, t);
        t->x[i][k] = x - step;
        below = loss_at(ctx, t);
        t->x[i][k] = x;
        slope[k] = (above - below) / (2 * step);
    }
    return slope;
}

/* Gradients of vectors come per sequence, [batch, ..]: add them up in place. */
static void whole_gradient(result *r, int i, int ndim)
{
    int64_t n = r->count[i] / (r->first[i] ? r->first[i] : 1);

    if (r->ndim[i] == ndim)
        return;
    for (int64_t b = 1; b < r->first[i]; b++)
        for (int64_t k = 0; k < n; k++)
            r->value[i][k] += r->value[i][b * n + k];
    r->count[i] = n;
}

static void gradient_trial(wf_context *ctx, trial *t)
{
    result r;

    run(ctx, t, true, &r);
    for (int i = 0; i < t->c.n_in; i++)
        if (r.value[OP_OUTPUTS + i])
            whole_gradient(&r, OP_OUTPUTS + i, t->c.in[i].ndim);
    for (int i = 0; i < t->c.n_in; i++) {
        int g = OP_OUTPUTS + i;
        double *slope, error;

        if (!r.value[g])
            continue;
        if (r.count[g] != elements(&t->c.in[i])) {
            fail(t, "gradient of operand %d has %" PRId64 " elements", i, r.count[g]);
            continue;
        }
        slope = differences(ctx, t, i);
        error = distance(r.value[g], slope, r.count[g]) / measure(&r, g, OP_OUTPUTS, RESULTS);
        if (!(error <= 1e-6))
            fail(t, "gradient of operand %d is %.1e away from differences", i, error);
        free(slope);
    }
    forget(&r);
}

static trial trial_of(const op_entry *entry, const op_shape *shape)
{
    trial t = {.entry = entry, .shape = shape};

    state =
        0x9e3779b97f4a7c15u ^ (uint64_t)(shape - shapes) << 32 ^ (uint64_t)(entry - entries);
    entry->build(&t.c, shape);
    for (int i = 0; i < t.c.n_in; i++) {
        t.x[i] = numbers(elements(&t.c.in[i]));
        random_operand(&t.c.in[i], t.x[i]);
    }
    return t;
}

static void end_trial(trial *t)
{
    for (int i = 0; i < OP_INPUTS; i++)
        free(t->x[i]);
    for (int o = 0; o < OP_OUTPUTS; o++)
        free(t->w[o]);
}

static void gradients(void)
{
    wf_context *ctx = op_context_open(0);

    for (const op_entry *e = entries; e->name; e++)
        for (int s = 0; s < SHAPES; s++) {
            trial t = trial_of(e, &shapes[s]);

            if (!shapes[s].large)
                gradient_trial(ctx, &t);
            end_trial(&t);
        }
    wf_context_close(ctx);
}

static void name_of_result(int i, char text[32])
{
    snprintf(text, 32, i < OP_OUTPUTS ? "output %d" : "gradient %d",
             i < OP_OUTPUTS ? i : i - OP_OUTPUTS);
}

static void compare(const trial *t, const result *cpu, const result *reference)
{
    char name[32];

    for (int i = 0; i < RESULTS; i++) {
        int from = i < OP_OUTPUTS ? 0 : OP_OUTPUTS, to = i < OP_OUTPUTS ? OP_OUTPUTS : RESULTS;
        double error;

        if (!reference->value[i])
            continue;
        name_of_result(i, name);
        if (!cpu->value[i] || cpu->count[i] != reference->count[i]) {
            fail(t, "%s of the CPU has another shape than the reference's", name);
            continue;
        }
        error = distance(cpu->value[i], reference->value[i], cpu->count[i]) /
                measure(reference, i, from, to);
        if (!(error <= 1e-5))
            fail(t, "%s of the CPU is %.1e away from the reference", name, error);
    }
}

static void against_reference(void)
{
    wf_context *reference = op_context_open(0), *cpu = op_context_open(1);

    for (const op_entry *e = entries; e->name; e++) {
        const wf_op *op = wf_op_find(e->name);

        for (int s = 0; s < SHAPES; s++) {
            trial t = trial_of(e, &shapes[s]);
            result a, b;

            run(reference, &t, true, &a);
            run(cpu, &t, true, &b);
            compare(&t, &b, &a);
            forget(&a);
            forget(&b);
            end_trial(&t);
        }
        if (op && (op->flags & WF_OP_VIEW)) /* no kernel to be asked for */
            seen_reference[op->id] = seen_cpu[op->id] = true;
    }
    wf_context_close(reference);
    wf_context_close(cpu);
}

static void same_bits(void)
{
    wf_context *backend[MAX_BACKENDS];
    const char *label[MAX_BACKENDS];
    int n = open_backends(backend, label);

    CU_ASSERT_FATAL(n >= 2);
    for (const op_entry *e = entries; e->name; e++)
        for (int s = 0; s < SHAPES; s++) {
            trial t = trial_of(e, &shapes[s]);
            result first, other;
            char name[32];

            run(backend[0], &t, true, &first);
            for (int k = 1; k < n; k++) {
                run(backend[k], &t, true, &other);
                for (int i = 0; i < RESULTS; i++) {
                    size_t bytes = (size_t)first.count[i] * sizeof(double);

                    name_of_result(i, name);
                    if (first.count[i] != other.count[i] ||
                        (first.value[i] && memcmp(first.value[i], other.value[i], bytes) != 0))
                        fail(&t, "%s: not the bits of %s, 1 thread, on %s, %d threads", name,
                             label[0], label[k], k % 2 ? 3 : 1);
                }
                forget(&other);
            }
            forget(&first);
            end_trial(&t);
        }
    for (int k = 0; k < n; k++)
        wf_context_close(backend[k]);
}

static bool answers_for(op_suite suite, const char *row)
{
    for (int i = 0; rows_of_b[i]; i++)
        if (strcmp(rows_of_b[i], row) == 0)
            return suite == OP_SUITE_B;
    return suite == OP_SUITE_A;
}

/* Runs last: every row that this program answers for was computed on both devices. */
static void every_row(void)
{
    CU_ASSERT_FATAL(wf_op_count() < 256);
    for (int i = 0; rows_of_b[i]; i++)
        CU_ASSERT(wf_op_find(rows_of_b[i]) != NULL);
    for (int id = 1; id <= wf_op_count(); id++) {
        const wf_op *op = wf_op_at(id);

        if (!answers_for(running, op->name) || (seen_reference[id] && seen_cpu[id]))
            continue;
        printf("    row %s of ops.def has no case\n", op->name);
        CU_FAIL("see above");
    }
}

int op_main(op_suite suite, const op_entry *table, const wf_test *more)
{
    wf_test tests[MAX_TESTS + 1] = {
        {"gradients against central differences", gradients},
        {"fp32 against the reference in double", against_reference},
        {"the same bits for any threads and instruction set", same_bits},
    };
    int n = 3;

    running = suite;
    entries = table;
    for (; more && more->name && n < MAX_TESTS - 1; more++)
        tests[n++] = *more;
    tests[n] = (wf_test){"every row of ops.def has a case", every_row};
    return wf_test_main(suite == OP_SUITE_A ? "ops a" : "ops b", tests);
}
