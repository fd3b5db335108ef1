/*
 * tests/cuda/test_cuda_attention_alone.c - attention of packed documents on the emulated GPU: a
 * document has the bits that it has alone, forward and back, and so has a chunk.
 *
 * ctest: builds plain
 */
#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 150, FORWARD = 2, RESULTS = 5 }; /* y, lse; dq, dk, dv */

/* A packed call, and what it computes. */
typedef struct packed {
    wf_attention_attr attr;
    int64_t heads, groups, dim;
    wf_dtype dtype;
    numbers in[4], dy; /* q, k, v, first */
    numbers out[RESULTS];
} packed;

/* Tokens [begin, begin + n) of sequence b of operand or output t, in memory of their own */
static numbers tokens_of(const numbers *t, int64_t b, int64_t begin, int64_t n)
{
    wf_dim dims[WF_MAX_DIMS];
    numbers part;
    size_t row = bytes_of(&t->t) / (size_t)(t->t.dim[0].size * t->t.dim[1].size);

    memcpy(dims, t->t.dim, sizeof dims);
    dims[0].size = 1;
    dims[1].size = n;
    part = numbers_of(t->t.ndim, dims, t->t.dtype);
    memcpy(part.host, (char *)t->host + row * (size_t)(b * t->t.dim[1].size + begin),
           row * (size_t)n);
    return part;
}

/* Runs attention and its gradient; `first` NULL: of one document. */
static void attend(const wf_attention_attr *attr, const numbers *in, const numbers *dy,
                   const numbers *first, numbers *out)
{
    wf_call call = {.op = first ? &wf_op_attention_from : &wf_op_attention,
                    .n_in = first ? 4 : 3,
                    .n_out = FORWARD,
                    .attr = attr};
    numbers operand[7] = {in[0], in[1], in[2]};

    if (first)
        operand[3] = *first;
    run_on_device(&call, operand, out, false);
    operand[3] = out[0];
    operand[4] = out[1];
    operand[5] = *dy;
    if (first)
        operand[6] = *first;
    call.op = first ? &wf_op_attention_from_grad : &wf_op_attention_grad;
    call.n_in = first ? 7 : 6;
    call.n_out = RESULTS - FORWARD;
    run_on_device(&call, operand, out + FORWARD, false);
}

/* Returns how many results of the document at `begin` are those that it has alone. */
static int alone(const packed *p, int64_t b, int64_t begin, int64_t n)
{
    numbers part[3], dy = tokens_of(&p->dy, b, begin, n), out[RESULTS], want[RESULTS];
    int same = 0;

    for (int i = 0; i < 3; i++)
        part[i] = tokens_of(&p->in[i], b, begin, n);
    for (int o = 0; o < RESULTS; o++) {
        want[o] = tokens_of(&p->out[o], b, begin, n);
        out[o] = tokens_of(&p->out[o], b, begin, n);
        memset(out[o].host, 0xff, bytes_of(&out[o].t));
    }
    attend(&p->attr, part, &dy, NULL, out);
    for (int o = 0; o < RESULTS; o++) {
        same += memcmp(out[o].host, want[o].host, bytes_of(&out[o].t)) == 0;
        free(out[o].host);
        free(want[o].host);
    }
    for (int i = 0; i < 3; i++)
        free(part[i].host);
    free(dy.host);
    return same;
}

/* i32 [2, tokens]: documents of unequal length, with one of a single token */
static numbers documents(const wf_dim *dims)
{
    numbers n = numbers_of(2, dims, WF_I32);
    int32_t *at = n.host;

    for (int32_t i = 0; i < TOKENS; i++) {
        at[i] = i < 5 ? 0 : i == 5 ? 5 : i < TOKENS / 2 ? 6 : TOKENS / 2;
        at[TOKENS + i] = i < 3 ? 0 : i < 81 ? 3 : 81;
    }
    return n;
}

static numbers like(const numbers *n)
{
    return numbers_of(n->t.ndim, n->t.dim, n->t.dtype);
}

static void open_packed(packed *p)
{
    const wf_dim b = wf_dim_batch(2), t = wf_dim_chunked(TOKENS), d = wf_dim_width(p->dim);
    const wf_dim q_dims[] = {b, t, {p->heads, 1, WF_CHUNKS_8}, d};
    const wf_dim k_dims[] = {b, t, {p->groups, 1, WF_CHUNKS_8}, d};

    open_context(false);
    for (int i = 0; i < 3; i++)
        p->in[i] = random_numbers(4, i ? k_dims : q_dims, p->dtype);
    p->in[3] = documents(q_dims);
    p->dy = random_numbers(4, q_dims, p->dtype);
    p->out[0] = like(&p->in[0]);
    p->out[1] = numbers_of(3, q_dims, WF_F32);
    p->out[FORWARD] = like(&p->in[0]);
    for (int i = 1; i < 3; i++) /* floats, since bf16 would hide most other orders of a sum */
        p->out[FORWARD + i] = numbers_of(4, k_dims, WF_F32);
}

static void close_packed(packed *p)
{
    for (int i = 0; i < 4; i++)
        free(p->in[i].host);
    for (int o = 0; o < RESULTS; o++)
        free(p->out[o].host);
    free(p->dy.host);
    close_context();
}

/* A second run, whose threads take turns in another order, has the bits of the first. */
static bool runs_again(const packed *p)
{
    numbers again[RESULTS];
    bool same = true;

    for (int o = 0; o < RESULTS; o++)
        again[o] = like(&p->out[o]);
    attend(&p->attr, p->in, &p->dy, &p->in[3], again);
    for (int o = 0; o < RESULTS; o++) {
        same = same && memcmp(again[o].host, p->out[o].host, bytes_of(&again[o].t)) == 0;
        free(again[o].host);
    }
    return same;
}

/* Tiles of keys, and of queries for the gradient, count from where a document begins, or a
   chunk. */
static void are_alone(packed p)
{
    const bool chunks = p.attr.window < 0;

    open_packed(&p);
    attend(&p.attr, p.in, &p.dy, &p.in[3], p.out);
    CU_ASSERT(runs_again(&p));
    CU_ASSERT_EQUAL(alone(&p, 0, 0, 5), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 0, 5, 1), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 0, 6, 69), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 0, 75, 75), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 1, 3, 78), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 1, 81, 69), RESULTS);
    CU_ASSERT_EQUAL(alone(&p, 0, 108, 33) == RESULTS, chunks);
    CU_ASSERT_EQUAL(alone(&p, 1, 147, 3) == RESULTS, chunks);
    close_packed(&p);
}

static void of_floats(void)
{
    are_alone((packed){.attr = {.window = 40}, .heads = 3, .groups = 3, .dim = 10});
    are_alone((packed){.attr = {.window = -33}, .heads = 3, .groups = 1, .dim = 10});
}

static void of_bf16(void)
{
    are_alone(
        (packed){.attr = {.window = 40}, .heads = 3, .groups = 1, .dim = 8, .dtype = WF_BF16});
    are_alone((packed){
        .attr = {.window = -33}, .heads = 2, .groups = 2, .dim = 72, .dtype = WF_BF16});
    are_alone((packed){.heads = 1, .groups = 1, .dim = 136, .dtype = WF_BF16});
}

int main(void)
{
    static const wf_test tests[] = {
        {"documents and chunks of floats", of_floats},
        {"documents and chunks of bf16", of_bf16},
        {NULL, NULL},
    };

    return gpu_test_main("documents alone on the GPU", tests);
}
