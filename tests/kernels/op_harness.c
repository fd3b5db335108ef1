/* tests/kernels/op_harness.c - the checks of op_harness.h. */
#include "kernels/cpu/cpu_internal.h"
#include "kernels/cpu/isa_internal.h"
#include "kernels/devices.h"
#include "tests/kernels/op_trial.h"
#include "tests/sanitizer.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BACKENDS = 8, MAX_TESTS = 32 };
/* Rows by program; those of none are test_ops_products.c's and test_ops_a.c's. */
/* clang-format off */
static const char *const rows_of_b[] = {
    "rope", "rope_at", "rope_pair", "rope_pair_at", "logit_max", "logit_sum", "logit_sum_grad", "cross_entropy",
    "cross_entropy_grad", "logit_loss", "attention_part", "attention_part_grad", NULL};

static const char *const rows_of_norms[] = {
    "layernorm", "layernorm_dx", "layernorm_dw", "layernorm_grad", "rmsnorm", "rmsnorm_dx", "rmsnorm_dw", "rmsnorm_grad",
    "add_layernorm", "add_layernorm_dx", "add_layernorm_grad", "add_rmsnorm", "add_rmsnorm_dx", "add_rmsnorm_grad", NULL};
/* clang-format on */

static const char *const rows_of_attention[] = {
    "attention",         "attention_grad",         "attention_from",   "attention_from_grad",
    "attention_general", "attention_general_grad", "attention_cached", NULL};

static const char *const rows_of_dims[] = {
    "permute", "slice",     "slice_grad", "sum",     "sum_expand",   "softmax", "softmax_grad",
    "matmul",  "broadcast", "reshape",    "patches", "patches_grad", NULL};

static const char *const rows_of_elements[] = {
#define EXPRESSION(name, inputs, numbers, outputs, flags)
#define ELEMENTWISE(name, inputs, numbers, expression, gradients) #name, #name "_grad",
#include "kernels/expressions.def"
    "greater", "greater_equal", "equal", "greater_than", "less_than", "equal_to",
    "floor",   "ceil",          "round", "sign",         "is_nan",    NULL};

static const char *const rows_of_rows[] = {"topk",     "gather", "scatter", "one_hot", "cumsum",
                                           "triangle", "concat", "pad",     NULL};
static const char *const rows_of_moe[] = {
    "linear1_fp32", "route", "route_grad", "route_load", "route_losses", "route_balance", NULL};

static const op_shape shapes[] = {
    {1, 1, 3, 1, 1, 2, 3, false},   {1, 7, 5, 2, 1, 4, 9, false},
    {3, 5, 24, 4, 2, 6, 17, false}, {3, 16, 16, 3, 3, 8, 24, false},
    {2, 9, 33, 6, 2, 4, 33, false}, {3, 99, 203, 6, 2, 16, 301, true}};

enum { SHAPES = sizeof shapes / sizeof shapes[0] };
enum { NUMERIC_SHAPES = UNDER_SANITIZER ? 2 : SHAPES }; /* the others run without them */

static op_suite running;
static const op_entry *entries;
static bool seen_reference[256], seen_cpu[256]; /* rows of ops.def, by id */

static const wf_kernel *(*reference_kernel)(const wf_device *, const wf_op *);
static const wf_kernel *(*cpu_kernel)(const wf_device *, const wf_op *);

static const wf_kernel *observed_reference(const wf_device *device, const wf_op *op)
{
    seen_reference[op->id] = true;
    return reference_kernel(device, op);
}

static const wf_kernel *observed_cpu(const wf_device *device, const wf_op *op)
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
    wf_context_position(ctx, 3, (wf_sequences){.first = 5});
    return ctx;
}

wf_context *op_context_open(int threads)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = threads ? wf_cpu_device(threads, &error) : wf_reference_device(&error);

    if (device && threads) {
        cpu_kernel = device->kernel;
        device->kernel = observed_cpu;
    } else if (device) {
        reference_kernel = device->kernel;
        device->kernel = observed_reference;
    }
    return context_over(device, &error);
}

/* Contexts of every instruction set (the one asked for, if one is) with 1 and 3 threads. */
static int open_backends(wf_context *backend[MAX_BACKENDS], const char *label[MAX_BACKENDS])
{
    static const char *const isas[] = {WF_CPU_ISAS};
    const char *asked = getenv("WEFT_CPU_ISA");
    int n = 0;

    for (int i = 0; i < (int)(sizeof isas / sizeof isas[0]); i++) {
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
static double measure(const op_result *r, int i, int from, int to)
{
    double scale = 0, own;

    for (int k = from; k < to; k++)
        if (r->value[k] && r->count[k])
            scale = fmax(scale, norm(r->value[k], r->count[k]) / sqrt((double)r->count[k]));
    own = norm(r->value[i], r->count[i]);
    return fmax(own, 0.1 * scale * sqrt((double)r->count[i])) + 1e-300;
}

static double loss_at(wf_context *ctx, op_trial *t)
{
    double sum = 0;
    op_result r;

    op_run(ctx, t, false, &r);
    for (int o = 0; o < t->c.n_out; o++)
        for (int64_t i = 0; !t->c.constant[o] && i < r.count[o]; i++)
            sum += t->w[o][i] * r.value[o][i];
    op_forget(&r);
    return sum;
}

/* Computes central differences for operand i. */
static double *differences(wf_context *ctx, op_trial *t, int i)
{
    const double step = 0x1p-17;
    int64_t n = op_elements(&t->c.in[i]);
    double *numeric = op_numbers(n);

    for (int64_t k = 0; k < n; k++) {
        double x = t->x[i][k], above, below;

        t->x[i][k] = x + step;
        above = loss_at(ctx, t);
        t->x[i][k] = x - step;
        below = loss_at(ctx, t);
        t->x[i][k] = x;
        numeric[k] = (above - below) / (2 * step);
    }
    return numeric;
}

/* Gradients of vectors come per sequence, [batch, ..]: add them up in place. */
static void whole_gradient(op_result *r, int i, int ndim)
{
    int64_t n = r->count[i] / (r->first[i] ? r->first[i] : 1);

    if (r->ndim[i] == ndim)
        return;
    for (int64_t b = 1; b < r->first[i]; b++)
        for (int64_t k = 0; k < n; k++)
            r->value[i][k] += r->value[i][b * n + k];
    r->count[i] = n;
}

static void gradient_trial(wf_context *ctx, op_trial *t)
{
    op_result r;

    op_run(ctx, t, true, &r);
    for (int i = 0; i < t->c.n_in; i++)
        if (r.value[OP_OUTPUTS + i])
            whole_gradient(&r, OP_OUTPUTS + i, t->c.in[i].ndim);
    for (int i = 0; i < t->c.n_in; i++) {
        int g = OP_OUTPUTS + i;
        double *numeric, error;

        if (!r.value[g])
            continue;
        if (r.count[g] != op_elements(&t->c.in[i])) {
            op_fail(t, "gradient of operand %d has %" PRId64 " elements", i, r.count[g]);
            continue;
        }
        numeric = differences(ctx, t, i);
        error =
            distance(r.value[g], numeric, r.count[g]) / measure(&r, g, OP_OUTPUTS, OP_RESULTS);
        if (!(error <= 1e-6))
            op_fail(t, "gradient of operand %d is %.1e away from differences", i, error);
        free(numeric);
    }
    op_forget(&r);
}
static uint64_t seed_of(const op_entry *entry, int shape)
{
    return (uint64_t)shape << 32 ^ (uint64_t)(entry - entries);
}

static void gradients(void)
{
    wf_context *ctx = op_context_open(0);

    for (const op_entry *e = entries; e->name; e++)
        for (int s = 0; s < NUMERIC_SHAPES; s++) {
            op_trial t = op_trial_begin(e, &shapes[s], seed_of(e, s));

            if (!shapes[s].large)
                gradient_trial(ctx, &t);
            op_trial_end(&t);
        }
    wf_context_close(ctx);
}

static void name_of_result(int i, char text[32])
{
    snprintf(text, 32, i < OP_OUTPUTS ? "output %d" : "gradient %d",
             i < OP_OUTPUTS ? i : i - OP_OUTPUTS);
}

static void compare(const op_trial *t, const op_result *cpu, const op_result *reference)
{
    char name[32];

    for (int i = 0; i < OP_RESULTS; i++) {
        int from = i < OP_OUTPUTS ? 0 : OP_OUTPUTS,
            to = i < OP_OUTPUTS ? OP_OUTPUTS : OP_RESULTS;
        double error;

        if (!reference->value[i])
            continue;
        name_of_result(i, name);
        if (!cpu->value[i] || cpu->count[i] != reference->count[i]) {
            op_fail(t, "%s of the CPU has another shape than the reference's", name);
            continue;
        }
        error = distance(cpu->value[i], reference->value[i], cpu->count[i]) /
                measure(reference, i, from, to);
        if (!(error <= 1e-5))
            op_fail(t, "%s of the CPU is %.1e away from the reference", name, error);
    }
}

static void against_reference(void)
{
    wf_context *reference = op_context_open(0), *cpu = op_context_open(1);

    for (const op_entry *e = entries; e->name; e++) {
        const wf_op *op = wf_op_find(e->name);

        for (int s = 0; s < SHAPES; s++) {
            op_trial t = op_trial_begin(e, &shapes[s], seed_of(e, s));
            op_result a, b;

            op_run(reference, &t, true, &a);
            op_run(cpu, &t, true, &b);
            compare(&t, &b, &a);
            op_forget(&a);
            op_forget(&b);
            op_trial_end(&t);
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
            op_trial t = op_trial_begin(e, &shapes[s], seed_of(e, s));
            op_result first, other;
            char name[32];

            op_run(backend[0], &t, true, &first);
            for (int k = 1; k < n; k++) {
                op_run(backend[k], &t, true, &other);
                for (int i = 0; i < OP_RESULTS; i++) {
                    size_t bytes = (size_t)first.count[i] * sizeof(double);

                    name_of_result(i, name);
                    if (first.count[i] != other.count[i] ||
                        (first.value[i] && memcmp(first.value[i], other.value[i], bytes) != 0))
                        op_fail(&t, "%s: not the bits of %s, 1 thread, on %s, %d threads", name,
                                label[0], label[k], k % 2 ? 3 : 1);
                }
                op_forget(&other);
            }
            op_forget(&first);
            op_trial_end(&t);
        }
    for (int k = 0; k < n; k++)
        wf_context_close(backend[k]);
}

/* The programs that answer for lists of rows. */
static const struct {
    op_suite suite;
    const char *const *rows;
} lists[] = {{OP_SUITE_B, rows_of_b},        {OP_SUITE_ATTENTION, rows_of_attention},
             {OP_SUITE_DIMS, rows_of_dims},  {OP_SUITE_ELEMENTWISE, rows_of_elements},
             {OP_SUITE_ROWS, rows_of_rows},  {OP_SUITE_MOE, rows_of_moe},
             {OP_SUITE_NORMS, rows_of_norms}};

static bool answers_for(op_suite suite, const wf_op *op)
{
    if (op->flags & WF_OP_IN_PLACE)
        return suite == OP_SUITE_IN_PLACE;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const char *const *row = lists[i].rows; *row; row++)
            if (strcmp(*row, op->name) == 0)
                return suite == lists[i].suite;
    if (op_is_of_part(op))
        return suite == OP_SUITE_PART;
    if (strncmp(op->name, "experts", 7) == 0)
        return suite == OP_SUITE_MOE;
    if (strncmp(op->name, "linear", 6) == 0)
        return suite == OP_SUITE_PRODUCTS;
    return suite == (strstr(op->name, "_sinks") ? OP_SUITE_SINKS : OP_SUITE_A);
}

/* Runs last: every row that this program answers for was computed on both devices. */
static void every_row(void)
{
    CU_ASSERT_FATAL(wf_op_count() < 256);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (const char *const *row = lists[i].rows; *row; row++)
            CU_ASSERT(wf_op_find(*row) != NULL);
    for (int id = 1; id <= wf_op_count(); id++) {
        const wf_op *op = wf_op_at(id);

        if (!answers_for(running, op) || (seen_reference[id] && seen_cpu[id]))
            continue;
        printf("    row %s of ops.def has no case\n", op->name);
        CU_FAIL("see above");
    }
}

int op_main(op_suite suite, const op_entry *table, const wf_test *more)
{
    /* clang-format off */
    static const char *const title[] = {"ops a", "ops b", "attention", "products", "ops on dims", "ops in place",
        "ops by expression", "ops on rows", "mixtures", "parts of experts", "sinks", "norms", "ops computed"};
    /* clang-format on */
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
    return wf_test_main(title[suite], tests);
}
