/* tests/core/test_dispatch.c - the path of every op: operands, shapes, types, errors. */
#include "tests/core/core_harness.h"
#include "kernels/parameters.h"

/* An op as an application adds one: y = x^3, dx = 3 x^2 dy. */
static int runs; /* counts runs of its kernels */

static wf_status cube_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data;
    double *y = call->out[0]->data;

    (void)workspace;
    runs++;
    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        y[i] = x[i] * x[i] * x[i];
    return WF_OK;
}

static wf_status cube_cpu(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data;

    (void)workspace;
    runs++;
    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        y[i] = x[i] * x[i] * x[i];
    return WF_OK;
}

static void cube_backward(wf_gradient *g)
{
    wf_tensor *x = g->in[0];

    g->din[0] = wf_mul(g->dout[0], wf_scale(wf_mul(x, x), 3));
}

static const wf_kernel cube_kernel = {.run = cube_cpu};
static const wf_op cube_op = {.name = "cube",
                              .signature = "...->...",
                              .save = WF_SAVE_IN(0),
                              .reference = {.run = cube_reference},
                              .backward = cube_backward,
                              .kernels = WF_KERNELS({"cpu", &cube_kernel})};

static wf_tensor *cube(wf_tensor *x)
{
    return wf_apply(&cube_op, NULL, 0, 1, x);
}

static void own_op(void)
{
    static const double value[] = {1, -2, 3}, third[] = {1, -8, 27}, gradient[] = {3, 12, 27};
    static const double ones[] = {1, 1, 1};
    wf_context *ctx = open_reference(0), *cpu;
    wf_dim dim = wf_dim_width(3);
    wf_error error = {WF_OK, ""};
    wf_tensor *x, *y;
    wf_tape *tape = wf_tape_open(ctx);

    x = wf_leaf(make(ctx, 0, 3, value));
    y = cube(x);
    CU_ASSERT_TRUE(equals(y, 3, third));
    CU_ASSERT_EQUAL(wf_backward(y, make(ctx, 0, 3, ones), false), WF_OK);
    CU_ASSERT_TRUE(equals(x->grad, 3, gradient));
    wf_tape_close(tape);
    wf_context_close(ctx);

    cpu = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    CU_ASSERT_PTR_NOT_NULL_FATAL(cpu);
    tape = wf_tape_open(cpu);
    x = wf_leaf(wf_tensor_new(cpu, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION));
    for (int i = 0; i < 3; i++)
        ((float *)x->data)[i] = (float)value[i];
    y = cube(x);
    CU_ASSERT_FATAL(y && y->dtype == WF_F32);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL((double)((float *)y->data)[i], third[i]);
    CU_ASSERT_EQUAL(wf_backward(y, y, false), WF_OK); /* the result is its own weight */
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL((double)((float *)x->grad->data)[i], gradient[i] * third[i]);
    wf_context_close(cpu);
}

/* A kernel that asks for memory beside its tensors has it while it runs: x in another order,
   and back. */
static size_t reversed_bytes(const wf_call *call)
{
    return (size_t)wf_tensor_local_count(call->in[0]) * sizeof(float);
}

static wf_status reversed_cpu(const wf_call *call, void *workspace)
{
    int64_t n = wf_tensor_local_count(call->in[0]);
    const float *x = call->in[0]->data;
    float *y = call->out[0]->data, *room = workspace;

    for (int64_t i = 0; i < n; i++)
        room[n - 1 - i] = x[i];
    for (int64_t i = 0; i < n; i++)
        y[i] = room[n - 1 - i];
    return WF_OK;
}

static const wf_kernel reversed_kernel = {.run = reversed_cpu, .workspace = reversed_bytes};
static const wf_op reversed_op = {.name = "reversed",
                                  .signature = "...->...",
                                  .reference = {.run = cube_reference},
                                  .kernels = WF_KERNELS({"cpu", &reversed_kernel})};

static void workspace_of_an_op(void)
{
    enum { MANY = 5000 };
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    wf_dim dim = wf_dim_width(MANY);
    wf_memory_report memory;
    wf_tensor *x, *y;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    x = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);
    for (int i = 0; i < MANY; i++)
        ((float *)x->data)[i] = (float)i;
    y = wf_apply(&reversed_op, NULL, 0, 1, x);
    CU_ASSERT_FATAL(y != NULL);
    for (int i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL(((float *)y->data)[i], (float)i);
    wf_pool_report(wf_context_pool(ctx), &memory);
    CU_ASSERT(memory.most[WF_MEMORY_WORKSPACE] >= MANY * sizeof(float));
    CU_ASSERT_EQUAL(memory.now[WF_MEMORY_WORKSPACE], 0);
    wf_context_close(ctx);
}

/* An error stays, and nothing happens until it is cleared: no kernel, no memory. */
static void first_error_stays(void)
{
    static const double value[] = {1, 2, 3};
    wf_context *ctx = open_reference(0);
    wf_tensor *a = make(ctx, 0, 3, value), *b = make(ctx, 0, 2, value);
    const char *outside = wf_context_enter(ctx, "block.3.mlp");
    wf_call call = {.op = &cube_op, .n_in = 1, .n_out = 1, .in = {a}, .out = {a}};
    size_t before;

    CU_ASSERT_PTR_NULL(wf_add(a, b));
    wf_context_enter(ctx, outside);
    before = in_use(ctx);
    runs = 0;
    CU_ASSERT_PTR_NULL(cube(a));
    CU_ASSERT_PTR_NULL(wf_mul(a, b));
    CU_ASSERT_PTR_NULL(cube(NULL));
    CU_ASSERT_EQUAL(wf_dispatch(&call), WF_ESHAPE);
    CU_ASSERT_PTR_NULL(call.out[0]);
    CU_ASSERT_EQUAL(wf_fail(ctx, WF_EIO, "later"), WF_EIO);
    CU_ASSERT_EQUAL(runs, 0);
    CU_ASSERT_EQUAL(in_use(ctx), before);
    CU_ASSERT_TRUE(
        refused(ctx, WF_ESHAPE, "rank 3, in block.3.mlp: add: dim 0 of operand 1 has size 2"));
    CU_ASSERT_PTR_NOT_NULL(cube(a));
    CU_ASSERT_EQUAL(runs, 1);
    wf_context_close(ctx);
}

static void wrong_operands(void)
{
    static const double value[] = {1, 2, 3};
    wf_context *ctx = open_reference(0), *other = open_reference(0);
    wf_tensor *a = make(ctx, 0, 3, value), *theirs = make(other, 0, 3, value);
    wf_call call = {.op = &cube_op, .n_in = 1, .n_out = 1};

    CU_ASSERT_PTR_NULL(wf_add(a, NULL));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "add: operand 1 is NULL, though nothing failed"));
    CU_ASSERT_PTR_NULL(wf_add(NULL, a));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "add: operand 0 is NULL"));
    CU_ASSERT_EQUAL(wf_dispatch(&call), WF_EINVAL); /* nowhere to say more */
    CU_ASSERT_PTR_NULL(cube(NULL));
    CU_ASSERT_PTR_NULL(wf_add(a, theirs));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "operand 1 belongs to another context (rank 3)"));
    CU_ASSERT_EQUAL(wf_context_status(other), WF_OK);
    wf_context_close(other);
    wf_context_close(ctx);
}

static void wrong_shapes(void)
{
    static const wf_dim heads[] = {{6, 2, WF_CHUNKS_8}}, split[] = {{6, 1, WF_CHUNKS_8}};
    static const wf_dim width[] = {{6, 1, WF_CHUNKS_1}};
    wf_context *ctx = open_reference(0);
    wf_tensor *h = wf_tensor_fake(ctx, WF_F64, 1, heads, NULL);
    wf_tensor *s = wf_tensor_fake(ctx, WF_F64, 1, split, NULL);
    wf_tensor *w = wf_tensor_fake(ctx, WF_F64, 1, width, NULL);
    wf_dim six[] = {*width, *width, *width, *width, *width, *width};
    wf_tensor *full = wf_tensor_fake(ctx, WF_F64, 6, six, NULL);
    wf_tensor *matrix = wf_tensor_fake(ctx, WF_F64, 2, six, NULL);

    CU_ASSERT_PTR_NULL(wf_add(w, s));
    CU_ASSERT_TRUE(
        refused(ctx, WF_ESHAPE, "chunks 8, but its partner has grain 1 and chunks 1"));
    CU_ASSERT_PTR_NULL(wf_add(h, s));
    CU_ASSERT_TRUE(
        refused(ctx, WF_ESHAPE, "grain 1 and chunks 8, but its partner has grain 2"));
    CU_ASSERT_PTR_NOT_NULL(wf_add(matrix, w)); /* a vector is repeated by rows */
    CU_ASSERT_PTR_NULL(wf_linear(w, w));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "linear1: operand 0 has 1 dims"));
    CU_ASSERT_PTR_NULL(wf_split_heads(full, 1));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "one more than a tensor has (6)"));
    CU_ASSERT_PTR_NULL(wf_batch_expand(full, full)); /* b... of 6 dims: ... is 5 of them */
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "batch_expand: operand 1 has 6 dims"));
    CU_ASSERT_PTR_NOT_NULL(wf_linear(full, matrix));
    wf_context_close(ctx);
}

/* Errors in the row of an op itself are reported at its first call. */
static void wrong_ops(void)
{
    static const struct {
        const char *signature;
        int n_in;
        wf_status code;
        const char *words;
    } bad[] = {
        {"...,...->...", 1, WF_EINVAL, "1 operands and 1 outputs do not fit its signature"},
        {"...->...", 2, WF_EINVAL, "2 operands and 1 outputs"},
        {"...->...,...", 1, WF_EINVAL, "do not fit its signature"},
        {"...->", 2, WF_EINVAL, "do not fit its signature"},
        {"...", 1, WF_EINVAL, "do not fit its signature ..."},
        {"", 1, WF_ESHAPE, "operand 0 has 2 dims"},
        {"A...->A...", 1, WF_EINVAL, "letters a to z"},
        {"!ab->ab", 1, WF_EINVAL, "letters a to z"},
        {"a..->a..", 1, WF_EINVAL, "letters a to z"},
        {"a...b...->a", 1, WF_EINVAL, "letters a to z"},
        {"ab->a...", 1, WF_EINVAL, "do not fit its signature"},
        {"a1->a", 1, WF_EINVAL, "letters a to z"},
        {"ab -> a", 1, WF_EINVAL, "letters a to z"},
        {"ab->a!!", 1, WF_EINVAL, "letters a to z"},
        {"ab->abc", 1, WF_EINVAL, "dim 2 of output 0 has a letter that no operand has"},
        {"ab->ab...ab...", 1, WF_EINVAL, "letters a to z"},
        {"a...->a...bcdefg", 1, WF_ESHAPE, "output 0 would have over 6 dims"},
        {"ab->abababa", 1, WF_ESHAPE, "output 0 would have over 6 dims"}};
    static const double value[] = {1, 2};
    wf_context *ctx = open_reference(0);
    wf_tensor *x = make(ctx, 1, 2, value);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_op op = cube_op;

        op.signature = bad[i].signature;
        CU_ASSERT_PTR_NULL(wf_apply(&op, NULL, 0, bad[i].n_in, x, x));
        if (!refused(ctx, bad[i].code, bad[i].words))
            CU_FAIL("the text above");
    }
    CU_ASSERT_PTR_NULL(wf_apply(&cube_op, NULL, 0, 13, x, x, x, x, x, x, x, x, x, x, x, x, x));
    CU_ASSERT_TRUE(
        refused(ctx, WF_EINVAL, "cube: 13 operands and 1 outputs, at most 12 and 7"));
    CU_ASSERT_PTR_NULL(wf_apply(&cube_op, value, 97, 1, x));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "cube: attributes of 97 bytes, at most 96"));
    wf_context_close(ctx);
}

static void wrong_types(void)
{
    static const wf_dim dims[] = {{3, 1, WF_CHUNKS_8}, {3, 1, WF_CHUNKS_1}};
    static const wf_dim batch[] = {{3, 1, WF_CHUNKS_EACH}};
    wf_context *ctx = open_reference(0);
    wf_tensor *table = wf_tensor_new(ctx, WF_F64, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *ids = wf_tensor_new(ctx, WF_I32, 1, batch, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *floats = wf_tensor_new(ctx, WF_F64, 1, batch, NULL, WF_MEMORY_ACTIVATION);
    wf_tensor *narrow = wf_tensor_new(ctx, WF_F32, 1, batch, NULL, WF_MEMORY_ACTIVATION);

    runs = 0;
    CU_ASSERT_PTR_NULL(cube(narrow));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE,
                           "cube: operand 0 is f32, but device reference computes in f64"));
    CU_ASSERT_PTR_NULL(cube(ids));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "operand 0 is i32"));
    CU_ASSERT_PTR_NULL(wf_add(floats, narrow));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "operand 1 is f32"));
    CU_ASSERT_PTR_NULL(wf_embedding(table, floats));
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "embedding: operand 1 is f64, but must be i32"));
    CU_ASSERT_EQUAL(wf_init_fill(ids, 1), WF_EDTYPE);
    CU_ASSERT_TRUE(refused(ctx, WF_EDTYPE, "init_fill: operand 0 is i32"));
    CU_ASSERT_EQUAL(runs, 0);
    wf_context_close(ctx);
}

static wf_tensor *cube_into(wf_tensor *x, wf_tensor *y)
{
    wf_call call = {.op = &cube_op, .n_in = 1, .in = {x}, .n_out = 1, .into = {y}};

    wf_dispatch(&call);
    return call.out[0];
}

/* A result can be put into a tensor that fits, the operand itself among them. */
static void into_a_given_tensor(void)
{
    static const double value[] = {1, 2, 3, 4};
    wf_context *ctx = open_reference(0);
    wf_tensor *x = make(ctx, 2, 2, value), *y = make(ctx, 2, 2, value);
    wf_tensor *flat = make(ctx, 0, 4, value);
    wf_tensor *fake = wf_tensor_fake(ctx, WF_F64, 2, x->dim, NULL);
    size_t before = in_use(ctx);
    wf_tape *tape;

    CU_ASSERT_PTR_EQUAL(cube_into(x, y), y);
    CU_ASSERT_TRUE(equals(y, 4, (const double[]){1, 8, 27, 64}) && equals(x, 4, value));
    CU_ASSERT_PTR_EQUAL(cube_into(wf_tensor_rows(x, 0, 1), wf_tensor_rows(y, 1, 1))->data,
                        (double *)y->data + 2);
    CU_ASSERT_TRUE(equals(y, 4, (const double[]){1, 8, 1, 8}));
    CU_ASSERT_PTR_EQUAL(cube_into(fake, fake), fake);
    CU_ASSERT_EQUAL(in_use(ctx), before);
    CU_ASSERT_PTR_NULL(cube_into(x, flat));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "cube: output 0 cannot go into f64 [4]"));
    CU_ASSERT_PTR_NULL(cube_into(x, fake));
    CU_ASSERT_TRUE(refused(ctx, WF_ESHAPE, "fake only where operands are"));
    tape = wf_tape_open(ctx);
    CU_ASSERT_PTR_NULL(cube_into(x, y));
    CU_ASSERT_TRUE(refused(ctx, WF_EINVAL, "while a tape records"));
    wf_tape_switch(ctx, NULL);
    CU_ASSERT_PTR_EQUAL(cube_into(x, x), x);
    CU_ASSERT_TRUE(equals(x, 4, (const double[]){1, 8, 27, 64}));
    wf_tape_close(tape);
    wf_context_close(ctx);
}

static void fakes_stay_fake(void)
{
    static const double value[] = {1, 2, 3, 4, 5, 6};
    wf_context *ctx = open_reference(0);
    wf_dim shape[] = {wf_dim_batch(2), wf_dim_width(3)}, heads = wf_dim_heads(3, 2);
    wf_tensor *real = make(ctx, 2, 3, value);
    wf_tensor *fake = wf_tensor_fake(ctx, WF_F64, 2, shape, NULL);
    wf_tensor *sum, *weight;
    size_t before = in_use(ctx);

    runs = 0;
    sum = wf_add(real, cube(fake));
    CU_ASSERT_FATAL(sum && wf_tensor_is_fake(sum));
    CU_ASSERT_TRUE(sum->ndim == 2 && sum->dim[1].size == 3 && sum->dtype == WF_F64);
    weight = wf_tensor_fake(ctx, WF_F64, 2, (wf_dim[]){heads, shape[1]}, NULL);
    sum = wf_split_heads(wf_linear(real, weight), 2);
    CU_ASSERT_FATAL(sum && wf_tensor_is_fake(sum));
    CU_ASSERT_TRUE(sum->ndim == 3 && sum->dim[1].size == 3 && sum->dim[2].size == 2);
    CU_ASSERT_EQUAL(wf_init_fill(fake, 1), WF_OK);
    CU_ASSERT_EQUAL(runs, 0);
    CU_ASSERT_EQUAL(in_use(ctx), before);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"an op of one's own", own_op},
                                    {"memory for an op of one's own", workspace_of_an_op},
                                    {"the first error stays", first_error_stays},
                                    {"wrong operands", wrong_operands},
                                    {"wrong shapes", wrong_shapes},
                                    {"wrong ops", wrong_ops},
                                    {"wrong types", wrong_types},
                                    {"into a given tensor", into_a_given_tensor},
                                    {"fakes stay fake", fakes_stay_fake},
                                    {NULL, NULL}};

    return wf_test_main("dispatch", tests);
}
