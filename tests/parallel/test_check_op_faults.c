/*
 * tests/parallel/test_check_op_faults.c - wf_check_op finds ops with one fault each, which
 * passed it once: they read what they have not written, or beside their operands, write to
 * operands, keep numbers between calls, claim to be linear or to take bf16, need all gradients
 * at once, recompute something else. What is right in an unusual way passes.
 *
 * ctest: builds plain
 */
#include "core/tape.h"
#include "core/tensor.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "parallel/check_op.h"
#include "tests/harness.h"
#include <string.h>

/* A loop over n elements x -> y of a type, k to a row. */
#define LOOP(name, type, body)                                                                 \
    static wf_status name(const wf_call *call, void *workspace)                                \
    {                                                                                          \
        type *x = call->in[0]->data, *y = call->out[0]->data, *w = workspace;                  \
        int64_t n = wf_tensor_local_count(call->out[0]);                                       \
                                                                                               \
        (void)w;                                                                               \
        for (int64_t i = 0; i < n; i++)                                                        \
            body;                                                                              \
        return WF_OK;                                                                          \
    }

LOOP(twice_reference, double, y[i] = 2 * x[i])
LOOP(twice, float, y[i] = 2 * x[i])
LOOP(accumulates, float, y[i] += 2 * x[i])
LOOP(reads_beside, float, y[i] = 2 * x[i] + (i == n - 1 ? x[n] : 0))
LOOP(writes_operand, float, (y[i] = 2 * x[i], x[i] = 0))
LOOP(dirty_workspace, float, (w[i] += 2 * x[i], y[i] = w[i]))
LOOP(square_reference, double, y[i] = x[i] * x[i])
LOOP(square, float, y[i] = x[i] * x[i])
LOOP(relu_reference, double, y[i] = x[i] > 0 ? x[i] : 0)
LOOP(relu, float, y[i] = x[i] > 0 ? x[i] : 0)

static float kept[256];
static int64_t n_kept;
LOOP(keeps, float, (kept[i] = n_kept > i ? kept[i] : 2 * x[i], y[i] = kept[n_kept = i]))

static size_t workspace_of(const wf_call *call)
{
    return (size_t)wf_tensor_local_count(call->out[0]) * sizeof(float);
}

static void twice_backward(wf_gradient *g)
{
    g->din[0] = wf_scale(g->dout[0], 2);
}

static void square_backward(wf_gradient *g)
{
    g->din[0] = wf_scale(wf_mul(g->in[0], g->dout[0]), 2);
}

static void relu_backward(wf_gradient *g)
{
    g->din[0] = wf_mul(wf_greater_than(g->in[0], 0), g->dout[0]);
}

static wf_tensor *recompute_another(const wf_gradient *g)
{
    return wf_scale(g->in[0], 3);
}

static wf_tensor *recompute_square(const wf_gradient *g)
{
    return wf_mul(g->in[0], g->in[0]);
}

/* y = x0 x1, and 2 x and x^2. */
#define PRODUCT(name, type)                                                                    \
    static wf_status name(const wf_call *call, void *workspace)                                \
    {                                                                                          \
        const type *a = call->in[0]->data, *b = call->in[1]->data;                             \
        type *y = call->out[0]->data;                                                          \
                                                                                               \
        (void)workspace;                                                                       \
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)                      \
            y[i] = a[i] * b[i];                                                                \
        return WF_OK;                                                                          \
    }                                                                                          \
    static wf_status name##_two(const wf_call *call, void *workspace)                          \
    {                                                                                          \
        const type *x = call->in[0]->data;                                                     \
        type *a = call->out[0]->data, *b = call->out[1]->data;                                 \
                                                                                               \
        (void)workspace;                                                                       \
        for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)                      \
            a[i] = 2 * x[i], b[i] = x[i] * x[i];                                               \
        return WF_OK;                                                                          \
    }
PRODUCT(product_reference, double)
PRODUCT(product, float)

static void product_backward(wf_gradient *g)
{
    for (int i = 0; i < 2; i++)
        if (g->want[i])
            g->din[i] = wf_mul(g->in[1 - i], g->dout[0]);
}

/* Right where both are wanted. */
static void product_together(wf_gradient *g)
{
    g->din[0] = wf_mul(g->in[1], g->dout[0]);
    g->din[1] = g->want[0] ? wf_mul(g->in[0], g->dout[0]) : g->din[0];
}

static void both_outputs(wf_gradient *g)
{
    g->din[0] = wf_add(wf_scale(g->dout[0], 2), wf_scale(wf_mul(g->in[0], g->dout[1]), 2));
}

static void any_output(wf_gradient *g)
{
    wf_tensor *a = g->dout[0] ? wf_scale(g->dout[0], 2) : NULL;
    wf_tensor *b = g->dout[1] ? wf_scale(wf_mul(g->in[0], g->dout[1]), 2) : NULL;

    g->din[0] = a && b ? wf_add(a, b) : a ? a : b;
}

static void apply(void *self, wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_apply(self, NULL, 0, 1, in[0]);
}

static void apply_product(void *self, wf_tensor *const *in, wf_tensor **out)
{
    out[0] = wf_apply(self, NULL, 0, 2, in[0], in[1]);
}

static void apply_two(void *self, wf_tensor *const *in, wf_tensor **out)
{
    wf_call call = {.op = self, .ctx = in[0]->ctx, .n_in = 1, .in = {in[0]}, .n_out = 2};

    wf_dispatch(&call);
    out[0] = call.out[0];
    out[1] = call.out[1];
}

static void apply_nothing(void *self, wf_tensor *const *in, wf_tensor **out)
{
    (void)self;
    out[0] = in[0];
}

typedef struct fault {
    wf_op op;
    wf_kernel kernel;  /* the CPU's */
    const char *words; /* "": it is right */
    void (*apply)(void *self, wf_tensor *const *in, wf_tensor **out);
    int n_in, n_out; /* 0: 1 */
    double low, high;
} fault;

#define ONE(text, more_flags, from, back)                                                      \
    .op = {.name = "own",                                                                      \
           .signature = text,                                                                  \
           .flags = more_flags,                                                                \
           .save = WF_SAVE_IN(0) | WF_SAVE_IN(1),                                              \
           .reference = {.run = from},                                                         \
           .backward = back}

static void check(const fault *f)
{
    const wf_device_kernel kernels[] = {{"cpu", &f->kernel}, {NULL, NULL}};
    wf_op op = f->op;
    wf_op_check c = {.op = &op,
                     .apply = f->apply ? f->apply : apply,
                     .self = &op,
                     .n_in = f->n_in ? f->n_in : 1,
                     .n_out = f->n_out ? f->n_out : 1};
    wf_error error = {WF_OK, ""};
    wf_status status;

    op.kernels = kernels;
    if (c.n_in == 1)
        op.save &= WF_SAVE_IN(0);
    for (int i = 0; i < c.n_in; i++)
        c.in[i] = (wf_op_check_operand){.ndim = 2,
                                        .dim = {wf_dim_batch(6), wf_dim_width(7)},
                                        .low = f->low,
                                        .high = f->high};
    n_kept = 0;
    status = wf_check_op(&c, NULL, &error);
    CU_ASSERT_EQUAL(status, *f->words ? WF_EINVAL : WF_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, f->words));
    if (!strstr(error.text, f->words) || (status == WF_OK) != !*f->words)
        printf("    \"%s\": %s\n", f->words, error.text);
}

static const char unwritten[] =
    "does a kernel read elements that it has not written, or beside";

static void faults_of_kernels(void)
{
    const fault list[] = {
        {ONE("m!n!->m!n!", 0, twice_reference, twice_backward),
         {.run = accumulates},
         unwritten},
        {ONE("m!n!->m!n!", 0, twice_reference, twice_backward),
         {.run = dirty_workspace, .workspace = workspace_of},
         unwritten},
        {ONE("m!n!->m!n!", 0, twice_reference, twice_backward),
         {.run = reads_beside},
         "own: output 0 by the CPU's kernel is "},
        {ONE("...->...", 0, twice_reference, twice_backward),
         {.run = writes_operand},
         "own has written to operand 0, in element 0"},
        {ONE("m!n!->m!n!", 0, twice_reference, twice_backward),
         {.run = keeps},
         "for other numbers of the same shapes: does it keep any"},
        {ONE("...->...", 0, twice_reference, twice_backward),
         {.run = twice, .mixed_ok = WF_IN(0)},
         "with operands that are stored as bf16"},
        {ONE("...->...", 0, twice_reference, twice_backward),
         {.run = twice, .all_bf16 = WF_IN(0)},
         "with operands that are stored as bf16"},
        {ONE("...->...", WF_OP_LINEAR, square_reference, square_backward),
         {.run = square},
         "own with operands laid out as partial(a): element 0 of output 0 is "},
        {ONE("...->...", WF_OP_LINEAR, relu_reference, relu_backward),
         {.run = relu},
         "own with operands laid out as partial(a): element "},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check(&list[i]);
}

static void faults_of_gradients(void)
{
    fault again = {ONE("...->...", 0, square_reference, square_backward),
                   {.run = square},
                   "own: what its recompute returns is not output 0"};
    const fault list[] = {
        {ONE("...->...,...", 0, product_reference_two, both_outputs),
         {.run = product_two},
         "This is where dout is NULL but for output 0",
         .apply = apply_two,
         .n_out = 2},
        {ONE("...,...->...", 0, product_reference, product_together),
         {.run = product},
         "own: the gradient of operand 1 is another one where no other operand takes one",
         .apply = apply_product,
         .n_in = 2},
        {ONE("...->...", 0, twice_reference, twice_backward),
         {.run = twice},
         "own is not called by the function that is to apply it",
         .apply = apply_nothing},
        {ONE(NULL, 0, twice_reference, twice_backward), {.run = twice}, "a signature"},
        {ONE("...->...", 0, twice_reference, twice_backward),
         {.run = twice},
         "own: operand 0 in [3, 1)",
         .low = 3,
         .high = 1},
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check(&list[i]);
    again.op.recompute = recompute_another;
    check(&again);
}

/* Gradients of passes in the order of the tree, one after the other, of one pass alone, and
   with a part that is left to backward. */
static wf_tensor *of_pass(wf_gradient *const *g, int i, int operand)
{
    return wf_mul(g[i]->in[1 - operand], g[i]->dout[0]);
}

static void join(int passes, wf_gradient *const *g, bool tree, int operands)
{
    for (int o = 0; o < operands; o++) {
        wf_tensor *sum = g[0]->want[o] ? of_pass(g, 0, o) : NULL;

        for (int i = 1; i < passes && sum; i += tree ? 2 : 1)
            sum = !tree    ? wf_add(sum, of_pass(g, i, o))
                  : i == 1 ? wf_add(sum, of_pass(g, 1, o))
                           : wf_add(sum, wf_add(of_pass(g, 2, o), of_pass(g, 3, o)));
        g[0]->din[o] = sum;
    }
}

static void in_a_tree(int passes, wf_gradient *const *g)
{
    join(passes, g, true, 2);
}

static void in_a_row(int passes, wf_gradient *const *g)
{
    join(passes, g, false, 2);
}

static void first_alone(int passes, wf_gradient *const *g)
{
    (void)passes;
    join(1, g, true, 2);
}

static void one_operand(int passes, wf_gradient *const *g)
{
    join(passes, g, true, 1);
}

static void several_passes(void)
{
    static const struct {
        void (*joined)(int passes, wf_gradient *const *g);
        const char *words;
    } list[] = {{in_a_tree, ""},
                {one_operand, ""},
                {in_a_row, "own: its backward_joined of 4 passes makes another gradient"},
                {first_alone, "own: its backward_joined of 2 passes makes another gradient"}};

    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        fault f = {ONE("...,...->...", 0, product_reference, product_backward),
                   {.run = product},
                   list[i].words,
                   .apply = apply_product,
                   .n_in = 2};

        f.op.save = 0;
        f.op.save_others = WF_SAVE_IN(0) | WF_SAVE_IN(1);
        f.op.backward_joined = list[i].joined;
        check(&f);
    }
}

static void unusual_and_right(void)
{
    fault again = {ONE("...->...", 0, square_reference, square_backward), {.run = square}, ""};
    const fault list[] = {
        {ONE("...->...", WF_OP_LINEAR, twice_reference, twice_backward), {.run = twice}, ""},
        {ONE("...->...,...", 0, product_reference_two, any_output),
         {.run = product_two},
         "",
         .apply = apply_two,
         .n_out = 2},
        {ONE("...,...->...", 0, product_reference, product_backward),
         {.run = product},
         "",
         .apply = apply_product,
         .n_in = 2},
        {ONE("...->...", 0, square_reference, square_backward),
         {.run = square},
         "",
         .low = 1e8,
         .high = 2e8}, /* differences of 2^-17 had nothing but rounding */
    };

    for (size_t i = 0; i < sizeof list / sizeof *list; i++)
        check(&list[i]);
    again.op.recompute = recompute_square;
    check(&again);
}

int main(void)
{
    static const wf_test tests[] = {{"faults of kernels", faults_of_kernels},
                                    {"faults of gradients", faults_of_gradients},
                                    {"several passes", several_passes},
                                    {"unusual and right", unusual_and_right},
                                    {NULL, NULL}};

    return wf_test_main("faults of ops", tests);
}
