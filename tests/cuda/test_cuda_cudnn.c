/*
 * tests/cuda/test_cuda_cudnn.c - attention that cuDNN serves, in exact mode: its graphs against
 * the reference, keys and values copied to each query head, dk and dv summed in our tree, one
 * engine for all layouts, and what it refuses. The emulated cuDNN runs graphs operation by
 * operation (tests/cuda/emulator/cudnn.c); with the plugin for GPUs it is cuDNN itself.
 *
 * ctest: builds plain
 */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct heads {
    int64_t heads, groups, tokens, dim;
    int32_t window;
    float cap, dropout;
    wf_dtype dk; /* WF_F32 where ranks add theirs */
    bool sinks;
} heads;

enum { OPERANDS = 6, RESULTS = 3 };

static char reported[8][512];
static int n_reported;

/* Returns how many plans the emulated cuDNN has run; -1: it is a real one. */
static long runs(void)
{
    void *emulator = dlopen("libcuda_emulator.so", RTLD_LAZY | RTLD_NOLOAD), *found;
    long (*count)(void);

    if (!emulator)
        return -1;
    found = dlsym(emulator, "emulator_cudnn_runs");
    dlclose(emulator);
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    memcpy(&count, &found, sizeof count);
    return count();
}

static void set_version(const char *version)
{
    setenv("WEFT_EMULATOR_CUDNN", version, 1);
}

static void keep_warning(void *self, const char *text)
{
    (void)self;
    if (n_reported < 8)
        snprintf(reported[n_reported], sizeof reported[0], "%s", text);
    n_reported++;
}

/* Forward and back, whole against the reference, then the parts of both; returns whether cuDNN
   served. */
static bool attention(const heads *h, const split *forward, const split *backward)
{
    const wf_dim b = wf_dim_batch(3), t = wf_dim_chunked(h->tokens), d = wf_dim_width(h->dim);
    const wf_dim q_dims[] = {b, t, {h->heads, 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {b, t, {h->groups, 1, WF_CHUNKS_8}, d};
    const wf_attention_attr attr = {
        .key = 9, .dropout = h->dropout, .site = 3, .window = h->window, .cap = h->cap};
    const wf_call forward_call = {.op = h->sinks ? &wf_op_attention_sinks : &wf_op_attention,
                                  .n_in = h->sinks ? 4 : 3,
                                  .n_out = 2,
                                  .attr = &attr};
    const wf_call backward_call = {
        .op = &wf_op_attention_grad, .n_in = 6, .n_out = 3, .attr = &attr};
    const long before = runs();
    numbers in[OPERANDS], out[RESULTS], sinks;
    bool served;

    open_context(false);
    for (int i = 0; i < 3; i++)
        in[i] = random_numbers(4, i ? k_dims : q_dims, WF_BF16);
    wf_context_on_warning(in[0].t.ctx, keep_warning, NULL);
    in[3] = numbers_of(4, q_dims, WF_BF16);
    in[4] = numbers_of(3, q_dims, WF_F32);
    in[5] = random_numbers(4, q_dims, WF_BF16);
    sinks = random_numbers(1, &q_dims[2], WF_F32);
    check(&forward_call, (numbers[]){in[0], in[1], in[2], sinks}, &in[3], forward, false);
    free(sinks.host);
    served = before < 0 || runs() > before;
    for (int o = 0; o < 3; o++)
        out[o] = numbers_of(4, o ? k_dims : q_dims, o ? h->dk : WF_BF16);
    check(&backward_call, in, out, backward, false);
    served = served && (before < 0 || runs() > before);
    for (int i = 0; i < OPERANDS; i++)
        free(in[i].host);
    for (int o = 0; o < RESULTS; o++)
        free(out[o].host);
    close_context();
    return served;
}

/* k and v whole: dk and dv are partial sums of the tree over query heads. */
static const split over_heads = {"cuDNN over heads", {2, WHOLE, WHOLE}, {2, 2}, ANY | TREE};
static const split over_heads_grad = {
    "cuDNN, gradient over heads", {2, WHOLE, WHOLE, 2, 2, 2}, {2, SUM, SUM}, TREE};
/* k and v split like q: each rank has all of its groups. */
static const split over_groups = {"cuDNN over groups", {2, 2, 2}, {2, 2}, 1u << 2};
static const split over_groups_grad = {
    "cuDNN, gradient over groups", {2, 2, 2, 2, 2, 2}, {2, 2, 2}, 1u << 2};
static const split over_batch = {"cuDNN over batch", {0, 0, 0}, {0, 0}, 1u << 3};
static const split over_batch_grad = {
    "cuDNN, gradient over batch", {0, 0, 0, 0, 0, 0}, {0, 0, 0}, 1u << 3};

static void own_keys(void)
{
    CU_ASSERT(
        attention(&(heads){.heads = 4, .groups = 4, .tokens = 37, .dim = 16, .dk = WF_BF16},
                  &over_groups, &over_groups_grad));
    CU_ASSERT(attention(&(heads){.heads = 5, .groups = 5, .tokens = 18, .dim = 8}, &over_heads,
                        &over_heads_grad));
}

static void groups(void)
{
    CU_ASSERT(attention(&(heads){.heads = 8, .groups = 2, .tokens = 21, .dim = 8}, &over_heads,
                        &over_heads_grad));
    CU_ASSERT(attention(&(heads){.heads = 6, .groups = 1, .tokens = 19, .dim = 16}, &over_heads,
                        &over_heads_grad));
    CU_ASSERT(
        attention(&(heads){.heads = 8, .groups = 4, .tokens = 40, .dim = 8, .dk = WF_BF16},
                  &over_groups, &over_groups_grad));
    CU_ASSERT(
        attention(&(heads){.heads = 3, .groups = 1, .tokens = 40, .dim = 8, .dk = WF_BF16},
                  &over_batch, &over_batch_grad));
}

static void windows_and_caps(void)
{
    CU_ASSERT(attention(&(heads){.heads = 4, .groups = 2, .tokens = 33, .dim = 8, .window = 7},
                        &over_heads, &over_heads_grad));
    CU_ASSERT(attention(&(heads){.heads = 4, .groups = 2, .tokens = 33, .dim = 8, .cap = 0.7F},
                        &over_heads, &over_heads_grad));
    CU_ASSERT(attention(&(heads){.heads = 3,
                                 .groups = 3,
                                 .tokens = 20,
                                 .dim = 8,
                                 .window = 1,
                                 .cap = 2,
                                 .dk = WF_BF16},
                        &over_batch, &over_batch_grad));
}

/* Sinks are added behind cuDNN, and its gradient takes logarithms of sums with them. */
static void sinks(void)
{
    const split over_heads_too = {
        "cuDNN, sinks over heads", {2, WHOLE, WHOLE, 0}, {2, 2}, ANY | TREE};
    const split over_batch_too = {"cuDNN, sinks over batch", {0, 0, 0, WHOLE}, {0, 0}, 1u << 3};

    CU_ASSERT(attention(
        &(heads){.heads = 8, .groups = 2, .tokens = 21, .dim = 8, .window = 7, .sinks = true},
        &over_heads_too, &over_heads_grad));
    CU_ASSERT(attention(
        &(heads){
            .heads = 3, .groups = 3, .tokens = 40, .dim = 24, .dk = WF_BF16, .sinks = true},
        &over_batch_too, &over_batch_grad));
}

/* From cuDNN 9.25 on long sequences have an engine that adds tiles in one order: any other has
   other bits every time here. */
static void tiles_in_order(void)
{
    const heads h = {.heads = 4, .groups = 2, .tokens = 97, .dim = 8, .window = 50, .cap = 3};

    set_version("92500");
    CU_ASSERT(attention(&h, &over_heads, &over_heads_grad));
    set_version("91900");
}

/* A call that it never serves, and what is said of it once; NULL: nothing, tensor cores do. */
static void refused(const heads *h, const char *why)
{
    const int reports = why ? 1 : 0;

    n_reported = 0;
    CU_ASSERT(runs() < 0 || !attention(h, &over_batch, &over_batch_grad));
    CU_ASSERT(runs() < 0 || (n_reported == reports && (!why || strstr(reported[0], why))));
    if (runs() >= 0 && (n_reported != reports || (why && !strstr(reported[0], why))))
        printf("\n%d warnings: %s\n", n_reported, n_reported ? reported[0] : "");
}

static void refusals(void)
{
    refused(&(heads){.heads = 2, .groups = 1, .tokens = 9, .dim = 8, .dropout = 0.1F}, NULL);
    refused(&(heads){.heads = 2, .groups = 1, .tokens = 9, .dim = 12}, "no multiple of 8");
}

/* The environment may leave cuDNN out. */
static void left_out(void)
{
    const heads h = {.heads = 2, .groups = 1, .tokens = 9, .dim = 8};

    setenv("WEFT_CUDNN", "off", 1);
    CU_ASSERT(runs() < 0 || !attention(&h, &over_batch, &over_batch_grad));
    setenv("WEFT_CUDNN", "on", 1);
    CU_ASSERT(attention(&h, &over_batch, &over_batch_grad));
    unsetenv("WEFT_CUDNN");
}

int main(void)
{
    static const wf_test tests[] = {
        {"heads with keys of their own", own_keys},
        {"heads that share keys", groups},
        {"windows and caps", windows_and_caps},
        {"sinks", sinks},
        {"tiles in one order", tiles_in_order},
        {"the environment leaves it out", left_out},
        {"what is on multiply-adds is reported once", refusals},
        {NULL, NULL},
    };

    set_version("91900");
    return gpu_test_main("cuDNN's attention on the GPU", tests);
}
