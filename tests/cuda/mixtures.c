/* tests/cuda/mixtures.c - operands of calls of experts; see the header. */
#include "tests/cuda/mixtures.h"
#include <stdlib.h>

static numbers drawn(int ndim, const wf_dim *dims, wf_dtype dtype)
{
    return random_numbers(ndim, dims, dtype);
}

void fill_mixture(const mixture *m, numbers *in)
{
    const wf_dim e = wf_dim_experts(m->experts), f = wf_dim_chunked(m->f),
                 d = wf_dim_width(m->d);
    const wf_dim b = wf_dim_batch(m->sequences), t = wf_dim_chunked(m->tokens);
    const wf_dim k = wf_dim_width(m->k);

    in[WF_MOE_GATE] = drawn(3, (wf_dim[]){e, f, d}, m->dtype);
    in[WF_MOE_UP] = drawn(3, (wf_dim[]){e, f, d}, m->dtype);
    in[WF_MOE_DOWN] = drawn(3, (wf_dim[]){e, d, f}, m->dtype);
    in[WF_MOE_X] = drawn(3, (wf_dim[]){b, t, d}, m->dtype);
    in[WF_MOE_WEIGHTS] = drawn(3, (wf_dim[]){b, t, k}, WF_F32);
    in[WF_MOE_INDEX] = numbers_of(3, (wf_dim[]){b, t, k}, WF_F32);
    in[WF_MOE_DY] = drawn(3, (wf_dim[]){b, t, d}, m->dtype);
    for (int64_t i = 0; i < m->sequences * m->tokens; i++)
        for (int64_t c = 0, at = i * i % (m->experts - m->k + 1); c < m->k; c++)
            ((float *)in[WF_MOE_INDEX].host)[i * m->k + c] =
                (float)(i % 5 == 3 && c == i % m->k ? m->experts : at + c);
}

void fill_factors(const mixture *m, numbers *in)
{
    const wf_dim e = wf_dim_experts(m->experts), f = wf_dim_chunked(m->f),
                 d = wf_dim_width(m->d);
    const wf_dim r = wf_dim_width(m->rank);

    in[WF_MOE_GATE_UP_A] = drawn(3, (wf_dim[]){e, r, d}, m->dtype);
    in[WF_MOE_GATE_B] = drawn(3, (wf_dim[]){e, f, r}, m->dtype);
    in[WF_MOE_UP_B] = drawn(3, (wf_dim[]){e, f, r}, m->dtype);
    in[WF_MOE_DOWN_A] = drawn(3, (wf_dim[]){e, r, f}, m->dtype);
    in[WF_MOE_DOWN_B] = drawn(3, (wf_dim[]){e, d, r}, m->dtype);
}

numbers result_like(const numbers *operand, wf_dtype dtype)
{
    return numbers_of(operand->t.ndim, operand->t.dim, dtype);
}

split split_of(const wf_call *call, const numbers *in, int dim, bool gradient)
{
    const bool experts = dim == WHOLE;
    const int weights = call->n_out - 2; /* gradients of matrices, of a gradient */
    split s = {.name = experts ? "over experts" : "over tokens",
               .parts = experts && in[0].t.dim[0].size == 8 ? TREE : 1u << 2};

    for (int i = 0; i < call->n_in; i++) {
        bool of_tokens = i >= WF_MOE_X && i < WF_MOE_DY + gradient;

        s.in[i] = of_tokens == experts ? WHOLE : experts ? 0 : dim;
    }
    for (int o = 0; o < call->n_out; o++)
        s.out[o] = gradient && o < weights ? (experts ? 0 : SUM) : experts ? SUM : dim;
    return s;
}

void free_all(numbers *n, int count)
{
    for (int i = 0; i < count; i++)
        free(n[i].host);
}
