/*
 * tests/cuda/test_cuda_attention_hopper.c - attention of bf16 by wgmma on an (emulated) Hopper:
 * every element of y, the logarithms of sums and all gradients has the bits that it has by
 * mma.sync, of every kind of attention and of every head that tensor cores take.
 *
 * ctest: builds plain
 */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, OPERANDS = 8, RESULTS = 6 };

/* Kinds of attention, each an op of its own. */
typedef enum kind { PLAIN, DOCUMENTS, SINKS, GENERAL, PART } kind;

typedef struct attention {
    const char *name;
    kind of;
    int64_t heads, groups, tokens, dim;
    int64_t keys; /* for GENERAL; 0: as many as tokens */
    wf_attention_attr attr;
    wf_dtype dk; /* dk's and dv's */
} attention;

static const attention calls[] = {
    {"the second warpgroup has three rows", PLAIN, 1, 1, 67, 8, .dk = WF_BF16},
    {"two blocks", PLAIN, 1, 1, 131, 64, .dk = WF_F32},
    {"heads that share keys, of 96 dims", PLAIN, 2, 1, 70, 96, .dk = WF_F32},
    {"128 dims, dropped, in a window", PLAIN, 1, 1, 98, 128, /* 96 sees 63 as its first */
     .attr = {.key = 9, .dropout = 0.2F, .site = 3, .window = 34}},
    {"136 dims to all", PLAIN, 1, 1, 66, 136, .attr = {.bidirectional = true}},
    {"256 dims", PLAIN, 1, 1, 67, 256, .dk = WF_BF16},
    {"documents in a window", DOCUMENTS, 1, 1, 150, 56, .attr = {.window = 40}},
    {"documents and chunks", DOCUMENTS, 1, 1, 140, 72, .attr = {.window = -33}},
    {"sinks and a cap", SINKS, 2, 2, 70, 16, .attr = {.cap = 0.5F}},
    {"a mask, a bias and fewer keys", GENERAL, 1, 1, 131, 24, .keys = 37,
     .attr =
         {.key = 9, .dropout = 0.1F, .bidirectional = true, .masked = true, .bias_dims = 4}},
    {"a bias and a cap", GENERAL, 2, 1, 66, 8, .attr = {.cap = 0.7F, .bias_dims = 3}},
    {"the second half of the tokens", PART, 1, 1, 150, 8, .attr = {.part = true}},
};

/* Returns how many groups of wgmma's instructions the emulated GPU has made; -1: it is a real
   one. */
static long groups(void)
{
    void *emulator = dlopen("libcuda_emulator.so", RTLD_LAZY | RTLD_NOLOAD), *found;
    long (*count)(void);

    if (!emulator)
        return -1;
    found = dlsym(emulator, "emulator_wgmma_groups");
    dlclose(emulator);
    CU_ASSERT_PTR_NOT_NULL_FATAL(found);
    memcpy(&count, &found, sizeof count);
    return count();
}

/* i32 [BATCH, tokens]: documents of other lengths in each sequence, one of a single token. */
static numbers documents(const wf_dim *dims)
{
    numbers n = numbers_of(2, dims, WF_I32);
    int32_t *at = n.host, tokens = (int32_t)dims[1].size;

    for (int32_t i = 0; i < tokens; i++) {
        at[i] = i < 5 ? 0 : i == 5 ? 5 : i < tokens / 2 ? 6 : tokens / 2;
        at[tokens + i] = i < 81 ? 0 : 81;
    }
    return n;
}

/* A third of all keys, of the second sequence all. */
static numbers mask_of(const wf_dim *dims)
{
    numbers mask = numbers_of(2, dims, WF_F32);

    for (int64_t j = 0; j < BATCH * dims[1].size; j++)
        ((float *)mask.host)[j] = j < dims[1].size && j % 3 != 1 ? 1.0F : 0.0F;
    return mask;
}

/* Makes the operands beside q, k and v; returns how many. */
static int extras(const attention *a, const numbers *q, const numbers *k, numbers *extra)
{
    const wf_dim *d = q->t.dim;
    const wf_dim scores[] = {d[0], d[2], d[1], k->t.dim[1]};
    const int n = a->attr.bias_dims;
    int count = 0;

    if (a->of == DOCUMENTS)
        extra[count++] = documents(d);
    if (a->of == SINKS)
        extra[count++] = random_numbers(1, &d[2], WF_F32);
    if (a->attr.masked)
        extra[count++] = mask_of(k->t.dim);
    if (n)
        extra[count++] = random_numbers(n, scores + 4 - n, WF_F32);
    return count;
}

typedef struct ops {
    const wf_op *forward, *backward;
} ops;

static const ops of_kind[] = {
    [PLAIN] = {&wf_op_attention, &wf_op_attention_grad},
    [DOCUMENTS] = {&wf_op_attention_from, &wf_op_attention_from_grad},
    [SINKS] = {&wf_op_attention_sinks, &wf_op_attention_grad},
    [GENERAL] = {&wf_op_attention_general, &wf_op_attention_general_grad},
    [PART] = {&wf_op_attention_part, &wf_op_attention_part_grad},
};

/* Runs a call whose products are of wgmma, or none is. */
static void run_by(const wf_call *call, numbers *in, numbers *out, bool wgmma)
{
    const long before = groups();

    run_on_device(call, in, out, false);
    if (before >= 0)
        CU_ASSERT_EQUAL(groups() > before, wgmma);
}

/* Runs both directions of operands q, k, v, dy and some more; out: y, lse, dq, dk, dv and,
   with a bias, its gradient. */
static void run(const attention *a, const numbers *in, const numbers *extra, int n_extra,
                numbers *out, bool wgmma)
{
    const bool part = a->of == PART;
    numbers own = part_of(&in[0], part ? 1 : WHOLE, part ? 2 : 1, part ? 1 : 0);
    numbers operand[OPERANDS] = {own, in[1], in[2]};
    wf_call call = {
        .op = of_kind[a->of].forward, .n_in = 3 + n_extra, .n_out = 2, .attr = &a->attr};

    for (int i = 0; i < n_extra; i++)
        operand[3 + i] = extra[i];
    run_by(&call, operand, out, wgmma);
    /* the gradient of a part is that of all queries, to the part's; y and lse of all are needed
       for it, and whichever they are they serve here */
    operand[0] = in[0];
    operand[3] = part ? in[4] : out[0];
    operand[4] = part ? in[5] : out[1];
    operand[5] = in[3];
    call.n_in = a->of == SINKS ? 6 : 6 + n_extra;
    for (int i = 6; i < call.n_in; i++)
        operand[i] = extra[i - 6];
    if (part) {
        operand[6] = own;
        call.n_in = 7;
    }
    call.op = of_kind[a->of].backward;
    call.n_out = a->attr.bias_dims ? 4 : 3;
    run_by(&call, operand, out + 2, wgmma);
    free(own.host);
}

/* Makes the results' room: every byte 0xff. */
static int results(const attention *a, const numbers *in, numbers *out)
{
    const wf_dim *q = in[0].t.dim, *k = in[1].t.dim;
    const int half = a->of == PART ? 1 : WHOLE, n = a->attr.bias_dims ? RESULTS : RESULTS - 1;

    out[0] = numbers_of(4, q, WF_BF16);
    out[1] = numbers_of(3, q, WF_F32);
    out[2] = numbers_of(4, q, WF_BF16);
    out[3] = numbers_of(4, k, a->dk);
    out[4] = numbers_of(4, k, a->dk);
    if (n == RESULTS)
        out[5] = numbers_of(4, (wf_dim[]){q[0], q[2], q[1], k[1]}, WF_F32);
    for (int o = 0; o < n; o++) {
        numbers whole = out[o];

        memset(whole.host, 0xff, bytes_of(&whole.t));
        if (half == 1) {
            out[o] = part_of(&whole, 1, 2, 1);
            free(whole.host);
        }
    }
    return n;
}

static bool has_the_bits_of_mma(const attention *a)
{
    const wf_dim b = wf_dim_batch(BATCH), h = {a->heads, 1, WF_CHUNKS_8};
    const wf_dim q[] = {b, wf_dim_chunked(a->tokens), h, wf_dim_width(a->dim)};
    const wf_dim k[] = {
        b, wf_dim_chunked(a->keys ? a->keys : a->tokens), {a->groups, 1, WF_CHUNKS_8}, q[3]};
    numbers in[OPERANDS], extra[2], out[2][RESULTS];
    bool same = true;
    int n_extra, n = 0;

    open_context(false);
    for (int i = 0; i < 5; i++) /* q, k, v, dy and, for a part's gradient, y and lse */
        in[i] = random_numbers(4, i == 1 || i == 2 ? k : q, WF_BF16);
    in[5] = random_numbers(3, q, WF_F32);
    n_extra = extras(a, &in[0], &in[1], extra);
    for (int by = 0; by < 2; by++) {
        n = results(a, in, out[by]);
        if (by == 0)
            setenv("WEFT_TENSOR_CORES", "mma", 1);
        run(a, in, extra, n_extra, out[by], by == 1);
        unsetenv("WEFT_TENSOR_CORES");
    }
    for (int o = 0; o < n; o++) {
        same = same && memcmp(out[0][o].host, out[1][o].host, bytes_of(&out[0][o].t)) == 0;
        free(out[0][o].host);
        free(out[1][o].host);
    }
    for (int i = 0; i < 6; i++)
        free(in[i].host);
    for (int i = 0; i < n_extra; i++)
        free(extra[i].host);
    close_context();
    return same;
}

static void bits(void)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const bool same = has_the_bits_of_mma(&calls[i]);

        CU_ASSERT(same);
        if (!same)
            printf("\n%s: not the bits of mma.sync\n", calls[i].name);
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"attention by wgmma has the bits of mma.sync", bits},
        {NULL, NULL},
    };

    setenv("WEFT_EMULATOR_CAPABILITY", "90", 1);
    setenv("WEFT_CUDNN", "off", 1); /* a real GPU may have one */
    return gpu_test_main("attention on a Hopper", tests);
}
