/* tests/core/test_warning.c - what is legal and seldom meant is reported once: an op through
 * which no gradient passes; and texts of errors have whole characters and one rank. */
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

static void whole_characters(void)
{
    for (int shift = 0; shift < 5; shift++)
        for (int width = 1; width <= 4; width++) {
            static const char *const character[] = {"a", "\u00e9", "\u20ac", "\U0001f600"};
            char text[2 * WF_ERROR_TEXT] = "";
            wf_error error = {WF_OK, ""};
            size_t length;

            for (int i = 0; i < shift; i++)
                strcat(text, "x");
            for (int i = 0; i < WF_ERROR_TEXT / width; i++)
                strcat(text, character[width - 1]);
            wf_error_set(&error, WF_EDATA, "%s!!!!!", text);
            length = strlen(error.text);
            CU_ASSERT_EQUAL((length - (size_t)shift) % (size_t)width, 0);
            CU_ASSERT(length + 4 >= sizeof error.text - 1);
            CU_ASSERT_EQUAL(strncmp(error.text, text, length), 0);
        }
}

static void one_rank(void)
{
    static const char *const says[][2] = {
        {"no file", "rank 2: no file"},
        {"rank 2: no file", "rank 2: no file"},
        {"rank 0: no file", "rank 0: no file"}, /* it failed there */
        {"rank 0, in a.b: no file", "rank 0, in a.b: no file"},
        {"rank 3 is lost", "rank 2: rank 3 is lost"},
    };
    wf_error error = {WF_OK, ""};
    wf_context *ctx =
        wf_context_open(wf_cpu_device(1, &error), &(wf_context_options){.rank = 2}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    for (size_t i = 0; i < sizeof says / sizeof *says; i++) {
        wf_fail(ctx, WF_EDATA, "%s", says[i][0]);
        CU_ASSERT_STRING_EQUAL(wf_context_error(ctx)->text, says[i][1]);
        wf_context_clear(ctx);
    }
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"an op without backward", op_without_backward},
                                    {"whole characters", whole_characters},
                                    {"one rank", one_rank},
                                    {NULL, NULL}};

    return wf_test_main("warning", tests);
}
