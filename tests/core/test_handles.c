/*
 * tests/core/test_handles.c - the mode that finds uses of tensors after their scope, and
 * kernels that write outside of what is theirs: errors name the scope, memory that was given
 * back is not another tensor's.
 */
#include "core/tensor.h"
#include "core/host_data.h"
#include "core/numerics/squares.h"
#include "core/op.h"
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"
#include "tests/harness.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static wf_context *open_context(void)
{
    wf_error error = {WF_OK, ""};
    wf_context_options options = {.debug_handles = true};

    return wf_context_open(wf_cpu_device(1, &error), &options, &error);
}

static wf_tensor *three(wf_context *ctx, float value)
{
    const wf_dim dim = wf_dim_width(3);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);

    wf_init_fill(t, value);
    return t;
}

static bool refused(wf_context *ctx, const char *words, const char *more)
{
    const char *text = wf_context_error(ctx)->text;
    bool good =
        wf_context_status(ctx) == WF_EINVAL && strstr(text, words) && strstr(text, more);

    if (!good)
        printf("    %s\n", text);
    wf_context_clear(ctx);
    return good;
}

static void after_a_scope(void)
{
    static const char ended[] =
        "f32 [3], which ended when scope 2 of my.module closed, opened by ";
    wf_context *ctx = open_context();
    wf_tensor *stale, *other, *kept;
    wf_host_data view;
    wf_tape *tape;

    wf_scope_open(ctx);
    stale = wf_scale(three(ctx, 3), 1);
    kept = wf_tensor_retain(three(ctx, 5));
    wf_context_enter(ctx, "my.module");
    wf_scope_close(ctx);
    wf_context_enter(ctx, NULL);
    for (int i = 0; i < 100; i++)
        other = three(ctx, 6);
    CU_ASSERT_EQUAL(((const float *)other->data)[0], 6);
    CU_ASSERT_PTR_NULL(wf_scale(stale, 2));
    CU_ASSERT_TRUE(refused(ctx, "scale: operand 0 is ", ended));
    CU_ASSERT_PTR_NULL(wf_add(other, stale));
    CU_ASSERT_TRUE(refused(ctx, "add: operand 1 is ", ended));
    CU_ASSERT_PTR_NULL(wf_data_read(stale, &view));
    wf_data_close(&view);
    CU_ASSERT_TRUE(refused(ctx, "the tensor whose data are asked for is ", ended));
    CU_ASSERT_PTR_NULL(wf_tensor_alias(stale));
    CU_ASSERT_TRUE(refused(ctx, "wf_tensor_view", ended));
    CU_ASSERT_PTR_NULL(wf_tensor_retain(stale));
    CU_ASSERT_TRUE(refused(ctx, "wf_tensor_retain", ended));
    wf_tensor_release(stale);
    CU_ASSERT_TRUE(refused(ctx, "wf_tensor_release", ended));
    CU_ASSERT_PTR_NULL(wf_cast(stale, WF_BF16));
    CU_ASSERT_TRUE(refused(ctx, "wf_cast", ended));
    tape = wf_tape_open(ctx);
    CU_ASSERT_EQUAL(wf_backward(stale, other, false), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, "wf_backward: the tensor to start from is ", ended));
    wf_tape_close(tape);
    CU_ASSERT_TRUE(isnan(*(const float *)stale->data)); /* no other tensor's number */
    CU_ASSERT_EQUAL(*(const float *)kept->data, 5);
    wf_tensor_release(kept);
    CU_ASSERT_PTR_NULL(wf_scale(kept, 1));
    CU_ASSERT_TRUE(refused(ctx, "scale: operand 0", "released for the last time"));
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* Calls that are no op: each gave WF_OK for a tensor that has ended, and no number of it or
   NaN. */
static void read_after_a_scope(void)
{
    wf_context *ctx = open_context();
    wf_tensor *stale, *sum = wf_tensor_retain(three(ctx, 1));
    wf_squares squares;
    wf_exact_sum total;
    float one = 5;

    wf_scope_open(ctx);
    stale = three(ctx, 3);
    wf_scope_close(ctx);
    CU_ASSERT_EQUAL(wf_data_get(stale, 0, 1, &one), WF_EINVAL);
    CU_ASSERT_TRUE(one == 5 && refused(ctx, "wf_data_get: the tensor is ", "which ended when"));
    CU_ASSERT_PTR_NULL(wf_tensor_like(stale, WF_MEMORY_ACTIVATION));
    CU_ASSERT_TRUE(refused(ctx, "wf_tensor_like: the tensor is ", "which ended when"));
    CU_ASSERT_EQUAL(wf_partial_add(&sum, stale), WF_EINVAL);
    CU_ASSERT_TRUE(!wf_tensor_is_fake(sum) && refused(ctx, "the second is ", "which ended"));
    CU_ASSERT_PTR_NULL(wf_partial_add_to(stale, sum));
    CU_ASSERT_TRUE(refused(ctx, "a sum of two: the first is ", "which ended when"));
    wf_squares_begin(&squares, ctx);
    wf_squares_add(&squares, 1, &stale);
    CU_ASSERT_EQUAL(wf_squares_end(&squares, &total), WF_EINVAL);
    CU_ASSERT_TRUE(refused(ctx, "a sum of squares: the tensor is ", "which ended when"));
    wf_tensor_release(sum);
    wf_context_close(ctx);
}

/* One element more than the output has, after it or before it; or an operand's memory after the
   call. */
static wf_status writes_outside(const wf_call *call, void *workspace)
{
    float *y = call->out[0]->data;

    (void)workspace;
    y[*(const int *)call->attr] = 1;
    return WF_OK;
}

static const wf_kernel outside_kernel = {.run = writes_outside};
static const wf_op outside = {
    .name = "outside", .signature = "n->n", .kernels = WF_KERNELS({"cpu", &outside_kernel})};

static void outside_of_an_output(void)
{
    wf_context *ctx = open_context();
    wf_tensor *x = three(ctx, 1);

    for (int at = -1; at < 5; at++) {
        wf_tensor *y = wf_apply(&outside, &at, sizeof at, 1, x);
        bool inside = at >= 0 && at < 3;

        CU_ASSERT_EQUAL(y != NULL, inside);
        CU_ASSERT_TRUE(inside ||
                       refused(ctx, "outside: its kernel has written before", "output 0"));
    }
    wf_context_close(ctx);
}

/* Memory comes into use again, after a while, and stays counted as without the mode. */
static void memory_comes_again(void)
{
    const wf_dim dims[] = {wf_dim_width(1 << 18)};
    wf_error error = {WF_OK, ""};
    wf_context *ctx[] = {open_context(),
                         wf_context_open(wf_cpu_device(1, &error), NULL, &error)};
    wf_memory_report report[2];

    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 200; k++) {
            wf_scope_open(ctx[i]);
            wf_init_fill(wf_tensor_new(ctx[i], WF_F32, 1, dims, NULL, WF_MEMORY_ACTIVATION), 1);
            wf_scope_close(ctx[i]);
        }
        wf_pool_report(wf_context_pool(ctx[i]), &report[i]);
        CU_ASSERT_EQUAL(wf_context_status(ctx[i]), WF_OK);
        wf_context_close(ctx[i]);
    }
    CU_ASSERT(report[0].peak == report[1].peak && report[0].in_use == report[1].in_use);
    CU_ASSERT(report[0].cached > report[1].cached && report[0].cached < (size_t)100 << 20);
}

static void words_of_the_environment(void)
{
    wf_error error = {WF_OK, ""};
    wf_context *ctx;
    wf_tensor *stale;

    setenv("WEFT_DEBUG", "handels", 1);
    CU_ASSERT_PTR_NULL(wf_context_open(wf_cpu_device(1, &error), NULL, &error));
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "WEFT_DEBUG is handels: the one word"));
    setenv("WEFT_DEBUG", "handles", 1);
    ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    unsetenv("WEFT_DEBUG");
    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_scope_open(ctx);
    stale = three(ctx, 1);
    wf_scope_close(ctx);
    CU_ASSERT_PTR_NULL(wf_scale(stale, 1));
    CU_ASSERT_TRUE(refused(ctx, "scale: operand 0", "scope 2"));
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"after a scope", after_a_scope},
                                    {"read after a scope", read_after_a_scope},
                                    {"outside of an output", outside_of_an_output},
                                    {"memory comes again", memory_comes_again},
                                    {"words of the environment", words_of_the_environment},
                                    {NULL, NULL}};

    return wf_test_main("handles", tests);
}
