/*
 * tests/kernels/test_attention_packed.c - documents that share a sequence have the bits that
 * each has alone, forward and backward, wherever they begin, with windows, chunks, sinks and
 * without, on one rank and on ranks that split tokens: random packings, on every instruction
 * set, in fp32 and bf16. By hand: test_attention_packed PACKINGS [SEED].
 *
 * ctest: builds plain address
 */
#include "core/numerics/bf16.h"
#include "core/tape.h"
#include "kernels/attention_internal.h"
#include "kernels/cpu/isa_internal.h"
#include "tests/kernels/op_parts.h"
#include "tests/sanitizer.h"

enum { OPERANDS = 4, RESULTS = 4, BATCH = 2, MOST_TOKENS = 320 };

static int packings = UNDER_SANITIZER ? 3 : 12;
static uint64_t seed = 1;

/* A packing of two sequences; of each token the first one of its document. */
typedef struct packing {
    int64_t tokens, heads, groups, dim, window, chunk;
    wf_dtype dtype;
    bool sinks;
    int32_t first[BATCH * MOST_TOKENS];
} packing;

static int64_t draw(int64_t below)
{
    seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (int64_t)((seed >> 33) % (uint64_t)below);
}

static packing draw_packing(wf_dtype dtype)
{
    packing p = {.tokens = 1 + draw(MOST_TOKENS), .dim = 1 + draw(40), .dtype = dtype};

    p.groups = 1 + draw(2);
    p.heads = p.groups * (1 + draw(3));
    p.window = draw(3) == 0 ? 1 + draw(150) : 0;
    p.chunk = !p.window && draw(3) == 0 ? 1 + draw(150) : 0;
    p.sinks = draw(3) == 0;
    for (int64_t b = 0; b < BATCH; b++) {
        int64_t longest = 1 + draw(p.tokens);

        for (int64_t begin = 0, n; begin < p.tokens; begin += n) {
            n = 1 + draw(longest);
            n = n < p.tokens - begin ? n : p.tokens - begin;
            for (int64_t i = 0; i < n; i++)
                p.first[b * p.tokens + begin + i] = (int32_t)begin;
        }
    }
    return p;
}

static int64_t heads_of(const packing *p, int operand)
{
    return operand == 0 || operand == 3 ? p->heads : p->groups;
}

/* Random numbers of an operand: of all its tokens, or of some of one sequence. */
static wf_tensor *operand(const packing *p, int which, int64_t b, int64_t begin, int64_t n)
{
    int64_t row = heads_of(p, which) * p->dim, batch = n < p->tokens ? 1 : BATCH;
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(n),
                           wf_dim_chunked(heads_of(p, which)), wf_dim_width(p->dim)};
    wf_tensor *t = wf_tensor_new(ctx, p->dtype, 4, dims, NULL, WF_MEMORY_ACTIVATION);
    int64_t count = batch * n * row, first = (b * p->tokens + begin) * row;
    float *x = malloc((size_t)count * sizeof *x);

    CU_ASSERT_FATAL(t && x);
    wf_random_fill_normal(x, count, 5, (uint64_t)which, (uint64_t)first);
    for (int64_t i = 0; i < count; i++) {
        if (p->dtype == WF_BF16)
            ((uint16_t *)t->data)[i] = wf_bf16_of(x[i]);
        else
            ((float *)t->data)[i] = x[i];
    }
    free(x);
    return t;
}

/* Sinks below scores and above them. */
static wf_tensor *sinks_of(const packing *p)
{
    const wf_dim heads = wf_dim_chunked(p->heads);
    wf_tensor *t = wf_tensor_new(ctx, WF_F32, 1, &heads, NULL, WF_MEMORY_PARAMETER);

    CU_ASSERT_FATAL(t != NULL);
    for (int64_t h = 0; h < p->heads; h++)
        ((float *)t->data)[h] = (float)(h % 3) * 2 - 2;
    return wf_leaf(t);
}

static wf_tensor *first_of(const packing *p)
{
    const wf_dim tokens[] = {wf_dim_batch(BATCH), wf_dim_chunked(p->tokens)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, tokens, NULL, WF_MEMORY_ACTIVATION);

    CU_ASSERT_FATAL(t != NULL);
    memcpy(t->data, p->first, wf_tensor_bytes(t));
    return t;
}

/* Attends to the tokens [begin, begin + n) of a sequence, or to those of all of them. */
static void attend(const packing *p, int64_t b, int64_t begin, int64_t n,
                   wf_tensor *result[RESULTS])
{
    wf_attention_options how = {.causal = true, .window = p->window, .chunk = p->chunk};
    wf_tensor *in[OPERANDS];

    for (int i = 0; i < OPERANDS; i++)
        in[i] = operand(p, i, b, begin, n);
    for (int i = 0; i < 3; i++)
        in[i] = wf_leaf(in[i]);
    how.sinks = p->sinks ? sinks_of(p) : NULL;
    how.first = n == p->tokens ? first_of(p) : NULL;
    result[0] = wf_attention(in[0], in[1], in[2], &how);
    wf_backward(result[0], in[3], false);
    for (int i = 0; i < 3; i++)
        result[1 + i] = in[i]->grad;
}

/* Returns true where chunks give what documents that begin where they do would. */
static bool chunks_are_documents(const packing *p)
{
    packing apart = *p;
    wf_tensor *chunks[RESULTS], *documents[RESULTS];
    bool same = true;

    if (!p->chunk)
        return true;
    for (int64_t i = 0; i < BATCH * p->tokens; i++) {
        int64_t at = i % p->tokens;

        apart.first[i] = (int32_t)(at - (at - p->first[i]) % p->chunk);
    }
    apart.chunk = 0;
    attend(p, 0, 0, p->tokens, chunks);
    attend(&apart, 0, 0, p->tokens, documents);
    for (int r = 0; r < RESULTS; r++)
        same = same &&
               memcmp(chunks[r]->data, documents[r]->data, wf_tensor_bytes(chunks[r])) == 0;
    return same;
}

/* Returns true where the document that begins at a token has the numbers that it has alone. */
static bool is_alone(const packing *p, int64_t b, int64_t begin, int64_t n,
                     wf_tensor *const whole[RESULTS])
{
    wf_tensor *alone[RESULTS];
    bool same = true;

    attend(p, b, begin, n, alone);
    for (int r = 0; r < RESULTS; r++) {
        size_t bytes = wf_tensor_bytes(alone[r]), row = bytes / (size_t)n;
        const char *part = (const char *)whole[r]->data;

        part += row * (size_t)(b * p->tokens + begin);
        same = same && memcmp(part, alone[r]->data, bytes) == 0;
    }
    return same;
}

/* Checks that ranks which split tokens, and gather keys and values, have their rows of all
   that, and the gradients of their tokens. */
static void check_ranks(const packing *p, wf_tensor *const whole[RESULTS])
{
    enum { SINKS = 3, OWN = 6 };
    const unsigned ranks = 1u << (2 + draw(MOST_PARTS - 1));
    const split forward = {"ranks", {1, WHOLE, WHOLE, WHOLE, WHOLE}, {1, 1}, ranks};
    const split back = {
        "ranks", {WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, WHOLE, 1, WHOLE}, {1, 1, 1}, ranks};
    const wf_attention_attr a = {.window = (int32_t)(p->chunk ? -p->chunk : p->window),
                                 .part = true};
    wf_call call = {.op = p->sinks ? &wf_op_attention_part_sinks : &wf_op_attention_part,
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};
    wf_tensor *in[OPERANDS], *first = first_of(p);

    for (int i = 0; i < OPERANDS; i++)
        call.in[i] = in[i] = operand(p, i, 0, 0, p->tokens);
    if (p->sinks)
        call.in[SINKS] = wf_detach(sinks_of(p));
    call.n_in = SINKS + p->sinks;
    call.in[call.n_in++] = first;
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    CU_ASSERT(alike(call.out[0], whole[0]));
    check(call, &forward);
    memcpy(call.in + SINKS, (wf_tensor *[]){call.out[0], call.out[1], in[3], in[0], first},
           5 * sizeof *call.in);
    call.op = &wf_op_attention_part_grad;
    call.n_in = OWN + 2;
    call.n_out = 3;
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&call), WF_OK);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(alike(call.out[i], whole[1 + i]));
    check(call, &back);
}

/* Returns the number of documents whose bits differ from those alone. */
static int check_packing(const packing *p)
{
    wf_tensor *whole[RESULTS];
    wf_tape *tape = wf_tape_open(ctx);
    int differ = 0;

    wf_scope_open(ctx);
    attend(p, 0, 0, p->tokens, whole);
    differ += !chunks_are_documents(p);
    if (draw(3) == 0)
        check_ranks(p, whole);
    for (int64_t b = 0; b < BATCH; b++)
        for (int64_t begin = 0, end; begin < p->tokens; begin = end) {
            const int32_t *first = p->first + b * p->tokens;

            for (end = begin; end < p->tokens && first[end] == begin; end++)
                ;
            if (end - begin < p->tokens)
                differ += !is_alone(p, b, begin, end - begin, whole);
        }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_scope_close(ctx);
    wf_tape_close(tape);
    return differ;
}

static void packed_as_alone(void)
{
    static const char *const isas[] = {WF_CPU_ISAS, "amx"};
    static const wf_dtype dtypes[] = {WF_F32, WF_BF16};

    for (size_t i = 0; i < sizeof isas / sizeof *isas * 2; i++) {
        const wf_simd *simd = wf_cpu_simd_named(isas[i / 2], NULL);
        int differ = 0;

        open_context(1 + (int)i % 2);
        wf_context_storage(ctx, dtypes[i % 2]);
        if (simd)
            ((wf_cpu *)wf_context_device(ctx)->self)->simd = simd;
        for (int n = 0; simd && n < packings; n++) {
            packing p = draw_packing(dtypes[i % 2]);

            differ += check_packing(&p);
        }
        CU_ASSERT_EQUAL(differ, 0);
        if (packings > 1000 && simd)
            printf("\n    %s, %s: %d packings, %d documents differ", isas[i / 2],
                   i % 2 ? "bf16" : "fp32", packings, differ);
        close_context();
    }
}

int main(int argc, char **argv)
{
    static const wf_test tests[] = {{"packed as alone", packed_as_alone}, {NULL, NULL}};

    packings = argc > 1 ? atoi(argv[1]) : packings;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    return wf_test_main("packed documents", tests);
}
