/* tests/core/test_warning.c - what is legal and seldom meant is reported once: an op through which no gradient passes. */
#include "core/tape.h"
#include "kernels/devices.h"
#include "kernels/ops.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

static wf_status nothing(const wf_call *call, void *workspace)
{
    (void)call, (void)workspace;
    return WF_OK;
}

static const wf_kernel kernel = {.run = nothing};
static const wf_op silent = {
    .name = "silent", .signature = "n->n", .kernels = WF_KERNELS({"cpu", &kernel})};

typedef struct heard {
    int n;
    char text[512];
} heard;

static void hear(void *self, const char *text)
{
    heard *h = self;

    h->n++;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void op_without_backward(void)
{
    const wf_dim dim = wf_dim_width(3);
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(1, &error), NULL, &error);
    heard h = {.n = 0};
    wf_tensor *x, *leaf;
    wf_tape *tape;

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    wf_context_on_warning(ctx, hear, &h);
    x = wf_tensor_new(ctx, WF_F32, 1, &dim, NULL, WF_MEMORY_ACTIVATION);
    leaf = wf_leaf(x);
    wf_apply(&silent, NULL, 0, 1, leaf); /* no tape records */
    tape = wf_tape_open(ctx);
    wf_apply(&silent, NULL, 0, 1, x);
    wf_apply(&silent, NULL, 0, 1, wf_detach(leaf));
    wf_scale(leaf, 2);
    CU_ASSERT_EQUAL(h.n, 0);
    for (int i = 0; i < 3; i++)
        wf_apply(&silent, NULL, 0, 1, leaf);
    CU_ASSERT_EQUAL(h.n, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(h.text, "silent has no backward (wf_op.backward)"));
    for (int i = 0; i < 100; i++)
        wf_context_warn(ctx, &h.text[i], "number %d", i);
    CU_ASSERT(h.n > 20 && h.n < 100);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_tape_close(tape);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"an op without backward", op_without_backward},
                                    {NULL, NULL}};

    return wf_test_main("warning", tests);
}
