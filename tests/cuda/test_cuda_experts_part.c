/*
 * tests/cuda/test_cuda_experts_part.c - experts of a part of their features on the emulated GPU
 * (kernels/experts_part.h), with adapters and without: the CPU's bits in f32, and sums over
 * features that parts of them are nodes of.
 *
 * ctest: builds plain
 */
#include "kernels/moe_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

enum { EXPERTS = 8, CHOSEN = 3, ROUNDED = 1 << 12 };

static bool aligned; /* rows and chunks begin at multiples of 16 bytes */

static wf_dim dim_of(char letter)
{
    switch (letter) {
    case 'b':
        return wf_dim_batch(2);
    case '.':
        return wf_dim_chunked(9);
    case 'e':
        return wf_dim_experts(EXPERTS);
    case 'm':
        return wf_dim_chunked(aligned ? 64 : 24);
    case 'k':
        return wf_dim_width(CHOSEN);
    case 'r':
        return wf_dim_width(aligned ? 8 : 4);
    default:
        return wf_dim_width(aligned ? 72 : 18);
    }
}

/* Reads the next operand or output of a signature, and which of its dims a letter is. */
static const char *next_tensor(const char *s, char letter, int *ndim, wf_dim *dims, int *at)
{
    *ndim = 0;
    *at = WHOLE;
    for (; *s && *s != ',' && *s != '-'; s++) {
        if (*s == '!')
            continue;
        if (*s == letter)
            *at = *ndim;
        dims[(*ndim)++] = dim_of(*s);
        if (*s == '.')
            s += 2;
    }
    return *s == '-' ? s + 2 : *s ? s + 1 : s;
}

/* Indices ascend; the last experts are left out at times. */
static void choose(numbers *index)
{
    float *to = index->host;

    for (int64_t i = 0; i < wf_tensor_count(&index->t) / CHOSEN; i++)
        for (int64_t c = 0; c < CHOSEN; c++)
            to[i * CHOSEN + c] = (float)(i * i % (EXPERTS - CHOSEN + 1) + c);
}

/* An op over random operands, those that `types` names of bf16 where `half`; by parts of
   `letter`, over which outputs that lack it are sums. References round no rows. */
static void try_op(const wf_op *op, const void *attr, size_t size, int index, char letter,
                   unsigned types, bool half)
{
    wf_call call = {.op = op, .attr = attr, .attr_size = size};
    split s = {.name = op->name, .parts = letter ? TREE : 0};
    numbers in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    const char *results = strchr(op->signature, '>') + 1;

    open_context(false);
    for (const char *at = op->signature; *at;) {
        const bool output = at >= results;
        int i = output ? call.n_out++ : call.n_in++, ndim, dim;
        wf_dim dims[WF_MAX_DIMS];

        at = next_tensor(at, letter, &ndim, dims, &dim);
        if (output) {
            out[i] = numbers_of(ndim, dims, WF_F32);
            s.out[i] = letter && dim == WHOLE ? SUM : dim;
        } else {
            in[i] = i == index
                        ? numbers_of(ndim, dims, WF_F32)
                        : random_numbers(ndim, dims, half && types >> i & 1 ? WF_BF16 : WF_F32);
            s.in[i] = dim;
        }
    }
    choose(&in[index]);
    check(&call, in, out, &s, types & ROUNDED);
    if (!half)
        check_cpu(&call, in, out);
    for (int i = 0; i < call.n_in; i++)
        free(in[i].host);
    for (int o = 0; o < call.n_out; o++)
        free(out[o].host);
    close_context();
}

static void parts(void)
{
    const wf_moe_attr attr = {.scale = 0.75F};

    for (int half = 0; half < 3; half++) {
        aligned = half == 2;
        try_op(&wf_op_experts_part, &attr, sizeof attr, 5, 'm', WF_MOE_FORWARD, half);
        try_op(&wf_op_experts_part_dx, &attr, sizeof attr, 5, 'm', WF_MOE_GRAD, half);
        try_op(&wf_op_experts_part_grad, &attr, sizeof attr, 5, 'm', WF_MOE_GRAD, half);
    }
}

static void halves(void)
{
    const wf_moe_attr attr = {.scale = 0.75F};

    for (int half = 0; half < 3; half++) {
        aligned = half == 2;
        try_op(&wf_op_experts_part_u, &attr, sizeof attr, 3, 'm', WF_MOE_TYPES_U, half);
        try_op(&wf_op_experts_part_y, &attr, sizeof attr, 3, 'm', WF_MOE_TYPES_Y, half);
        try_op(&wf_op_experts_part_v, &attr, sizeof attr, 5, 'm', WF_MOE_TYPES_V, half);
        try_op(&wf_op_experts_part_factors, &attr, sizeof attr, 4, 'm', WF_MOE_TYPES_FACTORS,
               half);
        try_op(&wf_op_experts_part_whole, &attr, sizeof attr, 4, 0, WF_MOE_TYPES_WHOLE, half);
    }
}

static void sums(void)
{
    aligned = false;
    for (int i = 0; i < 4; i++) {
        const wf_experts_sum_attr attr = {
            .experts = EXPERTS, .unweighted = i & 1, .rounds = i >> 1};

        try_op(&wf_op_experts_sum, &attr, sizeof attr, 1, 0, attr.rounds ? ROUNDED : 0, false);
    }
    try_op(&wf_op_experts_dot, NULL, 0, 1, 0, 0, false);
}

int main(void)
{
    static const wf_test tests[] = {{"parts", parts},
                                    {"halves, with adapters", halves},
                                    {"sums of complete rows", sums},
                                    {NULL, NULL}};

    return gpu_test_main("parts of experts on the GPU", tests);
}
