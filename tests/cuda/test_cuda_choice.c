/*
 * tests/cuda/test_cuda_choice.c - which kernel makes a product of bf16 on an (emulated) Hopper:
 * a kind of product is timed when it is first asked for, and never again; what is asked for in
 * the environment serves, or is refused by name; and whatever serves, the bits are the same.
 *
 * ctest: builds plain
 */
#include "core/graph.h"
#include "core/host_data.h"
#include "kernels/now.h"
#include "kernels/ops.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 20, DEPTH = 40, WIDE = 264, NARROW = 128, MOST = 2 * TOKENS * WIDE };

static wf_tensor *matrix(wf_context *ctx, int64_t rows, int64_t columns, bool tokens,
                         int member)
{
    const wf_dim dims[] = {wf_dim_batch(2), tokens ? wf_dim_chunked(rows) : wf_dim_width(rows),
                           wf_dim_width(columns)};

    return gpu_filled(
        wf_tensor_new(ctx, WF_F32, tokens ? 3 : 2, dims + !tokens, NULL, WF_MEMORY_ACTIVATION),
        member);
}

/* x[2, TOKENS, DEPTH] W[columns, DEPTH]^T */
static wf_tensor *product(wf_context *ctx, int64_t columns)
{
    return wf_linear(wf_cast(matrix(ctx, TOKENS, DEPTH, true, 1), WF_BF16),
                     wf_cast(matrix(ctx, columns, DEPTH, false, 2), WF_BF16));
}

/* A gradient of W that is added to an older one; a sum of one chunk. */
static wf_tensor *added(wf_context *ctx)
{
    return wf_linear_dw_add(wf_cast(matrix(ctx, TOKENS, WIDE, false, 3), WF_BF16),
                            wf_cast(matrix(ctx, TOKENS, DEPTH, false, 4), WF_BF16),
                            matrix(ctx, WIDE, DEPTH, false, 5));
}

static wf_device_counts counts_of(wf_context *ctx)
{
    return wf_context_device(ctx)->counts();
}

/* The launches of a product of so many columns beyond those of its operands, and its waits. */
static wf_device_counts cost_of(wf_context *ctx, int64_t columns)
{
    wf_tensor *x = wf_cast(matrix(ctx, TOKENS, DEPTH, true, 1), WF_BF16);
    wf_tensor *w = wf_cast(matrix(ctx, columns, DEPTH, false, 2), WF_BF16);
    wf_device_counts before = counts_of(ctx), after;

    wf_linear(x, w);
    after = counts_of(ctx);
    return (wf_device_counts){.launches = after.launches - before.launches,
                              .syncs = after.syncs - before.syncs};
}

static void numbers_of(const wf_tensor *t, float *to)
{
    memset(to, 0, MOST * sizeof *to);
    CU_ASSERT_EQUAL(wf_data_get(t, 0, wf_tensor_local_count(t), to), WF_OK);
}

static wf_context *open_with(const char *kernel)
{
    if (kernel)
        setenv("WEFT_TENSOR_CORES", kernel, 1);
    else
        unsetenv("WEFT_TENSOR_CORES");
    return gpu_context();
}

/* Every kernel, and the first and second time of a free choice. */
static void every_kernel(void)
{
    static const char *const kernels[] = {"mma", "wgmma", "persistent", NULL};
    static float want[2][MOST], got[MOST];

    for (int k = 0; k < 4; k++) {
        wf_context *ctx = open_with(kernels[k]);

        for (int again = 0; again < 2; again++)
            for (int what = 0; what < 2; what++) {
                wf_scope_open(ctx);
                numbers_of(what ? added(ctx) : product(ctx, WIDE), got);
                if (k == 0)
                    memcpy(want[what], got, sizeof got);
                CU_ASSERT(memcmp(got, want[what], sizeof got) == 0);
                wf_scope_close(ctx);
            }
        if (kernels[k])
            CU_ASSERT_EQUAL(cost_of(ctx, WIDE + 8).launches, 1);
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
        wf_context_close(ctx);
    }
}

/* Products of one job a cluster are not timed, nor those with rows of no whole units. */
static void timed_once(void)
{
    wf_context *ctx = open_with(NULL);

    for (int kind = 0; kind < 2; kind++) {
        wf_device_counts first = cost_of(ctx, WIDE + 8 * kind),
                         second = cost_of(ctx, WIDE + 8 * kind);

        CU_ASSERT(first.launches > 2 && first.syncs > 0);
        CU_ASSERT_EQUAL(second.launches, 1);
        CU_ASSERT_EQUAL(second.syncs, 0);
    }
    CU_ASSERT_EQUAL(cost_of(ctx, WIDE).launches, 1);
    CU_ASSERT_EQUAL(cost_of(ctx, NARROW).launches, 1);
    CU_ASSERT_EQUAL(cost_of(ctx, WIDE + 1).launches, 1);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

/* A capture waits for nothing; its kind of product is timed when that is asked for later. */
static void not_in_a_capture(void)
{
    wf_context *ctx = open_with(NULL);
    wf_tensor *x = wf_cast(matrix(ctx, TOKENS, DEPTH, true, 1), WF_BF16);
    wf_tensor *w = wf_cast(matrix(ctx, WIDE, DEPTH, false, 2), WF_BF16), *y;
    static float got[MOST], want[MOST];
    wf_device_counts before;
    wf_graph *graph;

    CU_ASSERT_EQUAL_FATAL(wf_graph_begin(ctx), WF_OK);
    before = counts_of(ctx);
    y = wf_linear(x, w);
    CU_ASSERT_EQUAL(counts_of(ctx).launches, before.launches + 1);
    graph = wf_graph_end(ctx);
    CU_ASSERT_PTR_NOT_NULL_FATAL(graph);
    CU_ASSERT_EQUAL(wf_graph_run(graph, &(wf_now){.step = 1}, sizeof(wf_now)), WF_OK);
    numbers_of(y, got);
    before = counts_of(ctx);
    numbers_of(wf_linear(x, w), want);
    CU_ASSERT(counts_of(ctx).launches > before.launches + 2);
    CU_ASSERT(memcmp(got, want, sizeof got) == 0);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_graph_free(graph);
    wf_context_close(ctx);
}

static void refused(const char *kernel, wf_status status, const char *says)
{
    wf_context *ctx = open_with(kernel);

    product(ctx, WIDE);
    CU_ASSERT_EQUAL(wf_context_status(ctx), status);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, says));
    wf_context_close(ctx);
}

static void refusals(void)
{
    refused("fast", WF_EINVAL, "WEFT_TENSOR_CORES=fast is none of mma, wgmma and persistent");
    setenv("WEFT_EMULATOR_CAPABILITY", "80", 1);
    refused("persistent", WF_EUNSUPPORTED,
            "WEFT_TENSOR_CORES=persistent is for GPUs of compute capability 9.0, and this one "
            "has 8.0");
    setenv("WEFT_EMULATOR_CAPABILITY", "90", 1);
}

static void attention_refused(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(8), wf_dim_chunked(2),
                           wf_dim_width(8)};
    wf_context *ctx;
    wf_tensor *q;

    setenv("WEFT_CUDNN", "no", 1);
    ctx = open_with(NULL);
    q = wf_tensor_new(ctx, WF_BF16, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_attention(q, q, q, &(wf_attention_options){.causal = true});
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(wf_context_error(ctx)->text, "WEFT_CUDNN=no is neither on nor off"));
    wf_context_close(ctx);
    unsetenv("WEFT_CUDNN");
}

int main(void)
{
    static const wf_test tests[] = {
        {"every kernel has the same bits", every_kernel},
        {"a kind of product is timed once", timed_once},
        {"nothing is timed in a capture", not_in_a_capture},
        {"what is refused", refusals},
        {"what is refused of attention", attention_refused},
        {NULL, NULL},
    };

    setenv("WEFT_EMULATOR_CAPABILITY", "90", 1);
    return gpu_test_main("the choice of kernels", tests);
}
