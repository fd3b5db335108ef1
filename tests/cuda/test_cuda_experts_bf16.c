/*
 * tests/cuda/test_cuda_experts_bf16.c - experts of bf16 on the emulated GPU, whose products are
 * those of tensor cores (kernels/cuda/moe_tensor_internal.h), by both kernels: an element has
 * the same bits by both, whatever other rows, experts, leaves and ranks there are, and however
 * its operands lie in memory. A real GPU that is no Hopper has the one kernel twice.
 *
 * ctest: builds plain
 */
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/mixtures.h"
#include <stdlib.h>
#include <string.h>

enum { FEW_ROWS = 37 };

/* Chooses the expert c of token i. */
typedef int64_t chooser(int64_t i, int64_t c);

/* All tokens choose the expert 3; all but one expert 1, and that one expert 0: so of 4 experts
   one has all rows, one has one, one none, and two have more than a tile of them. */
static int64_t uneven(int64_t i, int64_t c)
{
    return c == 1 ? 3 : i == FEW_ROWS ? 0 : 1;
}

/* Few have each of 40 experts, and the last ones none: more than a warp looks at together. */
static int64_t of_many(int64_t i, int64_t c)
{
    return i * 7 % 37 + c;
}

static int64_t in_turns(int64_t i, int64_t c)
{
    return (i + c) % 2;
}

/* A call of experts and its operands; the caller frees them by close_call. */
typedef struct trial {
    mixture m;
    wf_moe_attr attr;
    wf_call call;
    numbers in[OPERANDS], out[RESULTS];
    int matrices;
} trial;

/* Prepares forward, or gradients; y and dx are floats, so that parts of experts can be
   summed. */
static void open_call(trial *t, const mixture *m, chooser *choose, bool gradient)
{
    const int adapted = m->rank ? WF_MOE_FACTORS : 0, first = WF_MOE_DY + gradient;

    open_context(false);
    t->m = *m;
    t->attr = (wf_moe_attr){.scale = 0.75F};
    t->matrices = !gradient ? 0 : adapted ? (int)WF_MOE_FACTORS : (int)WEIGHTS;
    fill_mixture(m, t->in);
    for (int64_t i = 0; choose && i < m->sequences * m->tokens * m->k; i++)
        ((float *)t->in[WF_MOE_INDEX].host)[i] = (float)choose(i / m->k, i % m->k);
    if (!gradient)
        free(t->in[WF_MOE_DY].host);
    if (adapted)
        fill_factors(m, t->in + first);
    t->call =
        (wf_call){.op = gradient ? (adapted ? &wf_op_experts_adapted_grad : &wf_op_experts_grad)
                                 : (adapted ? &wf_op_experts_adapted : &wf_op_experts),
                  .n_in = first + adapted,
                  .n_out = gradient ? t->matrices + 2 : 1,
                  .attr = &t->attr,
                  .attr_size = sizeof t->attr};
    for (int o = 0; o < t->matrices; o++)
        t->out[o] = result_like(&t->in[adapted ? first + o : o], WF_F32);
    t->out[t->matrices] = result_like(&t->in[WF_MOE_X], WF_F32);
    if (gradient)
        t->out[t->matrices + 1] = result_like(&t->in[WF_MOE_WEIGHTS], WF_F32);
}

static void close_call(trial *t)
{
    free_all(t->in, t->call.n_in);
    free_all(t->out, t->call.n_out);
    close_context();
}

/* The same bits where every operand lies an element behind an aligned address: its loads, and
   the stores of results, go element by element. */
static void check_unaligned(trial *t)
{
    numbers other[RESULTS];

    for (int o = 0; o < t->call.n_out; o++)
        other[o] = result_like(&t->out[o], WF_F32);
    shift_to(1);
    run_on_device(&t->call, t->in, other, false);
    shift_to(0);
    for (int o = 0; o < t->call.n_out; o++)
        CU_ASSERT(memcmp(other[o].host, t->out[o].host, bytes_of(&t->out[o].t)) == 0);
    free_all(other, t->call.n_out);
}

/* Has contexts that are opened from now on use mma.sync, or on a Hopper wgmma. */
static void use_kernels(bool hopper)
{
    setenv("WEFT_EMULATOR_CAPABILITY", hopper ? "90" : "80", 1);
    setenv("WEFT_TENSOR_CORES", hopper ? "wgmma" : "mma", 1);
}

/* Keeps the results of the first kernel; the second one has the same bits. */
static void keep_or_compare(const trial *t, bool second, void *kept[RESULTS])
{
    for (int o = 0; o < t->call.n_out; o++) {
        const size_t bytes = bytes_of(&t->out[o].t);

        if (second) {
            CU_ASSERT(memcmp(kept[o], t->out[o].host, bytes) == 0);
            free(kept[o]);
            continue;
        }
        kept[o] = malloc(bytes + 1);
        CU_ASSERT_PTR_NOT_NULL_FATAL(kept[o]);
        memcpy(kept[o], t->out[o].host, bytes);
    }
}

/* Forward and gradients against the reference, in parts of experts and of sequences, and
   unaligned; with Hopper's kernel in parts of sequences alone, which loads as the other. */
static void try_mixture(const mixture *m, chooser *choose)
{
    void *kept[RESULTS];

    for (int i = 0; i < 4; i++) {
        const bool gradient = i / 2, hopper = i % 2;
        split sequences, experts;
        trial t;

        use_kernels(hopper);
        open_call(&t, m, choose, gradient);
        sequences = split_of(&t.call, t.in, 0, gradient);
        experts = split_of(&t.call, t.in, WHOLE, gradient);
        sequences.parts = m->sequences > 1 ? sequences.parts : 0;
        check(&t.call, t.in, t.out, &sequences, false);
        if (!hopper) {
            check(&t.call, t.in, t.out, &experts, true);
            check_unaligned(&t);
        }
        keep_or_compare(&t, hopper, kept);
        close_call(&t);
    }
}

static void no_one_and_all_rows(void)
{
    try_mixture(&(mixture){4, 2, 2, 70, 72, 64, 0, WF_BF16}, uneven);
}

static void many_experts(void)
{
    try_mixture(&(mixture){40, 3, 2, 15, 8, 8, 0, WF_BF16}, of_many);
}

/* In the first one all rows are aligned, but chunks of features are not. */
static void adapters(void)
{
    try_mixture(&(mixture){4, 2, 2, 17, 72, 72, 8, WF_BF16}, NULL);
    try_mixture(&(mixture){4, 2, 2, 9, 11, 20, 3, WF_BF16}, NULL);
}

/* More leaves than sums wait for in registers, and a tree that is not even. */
static void many_leaves(void)
{
    try_mixture(&(mixture){2, 1, 19, 3, 8, 8, 0, WF_BF16}, in_turns);
    try_mixture(&(mixture){2, 1, 40, 2, 8, 8, 0, WF_BF16}, in_turns);
    try_mixture(&(mixture){2, 1, 1, 2048, 8, 2, 0, WF_BF16}, NULL);
}

/* An expert's gradient is +0 where it has no rows, and what it gives for a token is that of the
   token alone. */
static void nothing_of_others(void)
{
    const mixture m = {4, 2, 2, 70, 72, 64, 0, WF_BF16};
    trial t;
    split tokens;

    use_kernels(false);
    open_call(&t, &m, uneven, true);
    run_on_device(&t.call, t.in, t.out, false);
    for (int o = 0; o < WEIGHTS; o++) {
        const size_t bytes = bytes_of(&t.out[o].t) / 4;
        const char *of = (const char *)t.out[o].host + 2 * bytes;

        for (size_t i = 0; i < bytes; i++)
            CU_ASSERT_FATAL(of[i] == 0);
    }
    close_call(&t);
    open_call(&t, &m, uneven, false);
    tokens = split_of(&t.call, t.in, 1, false);
    tokens.parts = ANY;
    check(&t.call, t.in, t.out, &tokens, true);
    close_call(&t);
}

int main(void)
{
    static const wf_test tests[] = {
        {"no rows, one, and all", no_one_and_all_rows},
        {"many experts", many_experts},
        {"adapters", adapters},
        {"many leaves", many_leaves},
        {"nothing of others", nothing_of_others},
        {NULL, NULL},
    };

    return gpu_test_main("experts of bf16 on the GPU", tests);
}
