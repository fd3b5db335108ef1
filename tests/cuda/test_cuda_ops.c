/*
 * tests/cuda/test_cuda_ops.c - every row of kernels/ops.def that is neither test_cuda_math.c's nor in
 * place, on the emulated GPU: as f32 and as bf16, in sizes that do not divide, at addresses that are
 * not aligned, against the reference in double, and a part as the whole (device_parts.h).
 *
 * A case names its operands by their dims: a letter before the colon says how they are stored, those
 * behind it are dims of a shape. Dims that are split one after another follow from the letters.
 */
#include "core/numerics/bf16.h"
#include "core/numerics/random.h"
#include "kernels/attention_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/shared_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include <stdlib.h>
#include <string.h>

/*
 * a: an activation, f32 or bf16     v: a vector of a layer, stored like activations
 * w: the same, the other way        f: f32                    p: f32 above zero
 * i: i32 below the vocabulary
 */
typedef struct row {
    const char *op, *in, *out, *splits;
    const void *attr;
    size_t attr_size;
} row;

/* b sequences, s tokens, d width, n features that are split, h heads, e of a head, v words, p > s
   positions */
typedef struct shape {
    int64_t b, s, d, n, h, e, v;
} shape;

static const shape shapes[] = {{5, 1, 1, 1, 1, 2, 1},
                               {3, 21, 31, 33, 5, 6, 257},
                               {2, 9, 33, 64, 3, 8, 5},
                               {2, 3, 1000, 24, 2, 16, 300},
                               {8, 17, 64, 137, 4, 34, 96}};
enum { SHAPES = sizeof shapes / sizeof shapes[0] };

static wf_dim dim_of(const shape *s, char letter)
{
    switch (letter) {
    case 'b':
        return wf_dim_batch(s->b);
    case 's':
        return wf_dim_chunked(s->s);
    case 'd':
        return wf_dim_width(s->d);
    case 'n':
        return wf_dim_chunked(s->n);
    case 'h':
        return wf_dim_chunked(s->h);
    case 'e':
        return wf_dim_width(s->e);
    case 'v':
        return wf_dim_chunked(s->v);
    default:
        return wf_dim_width(s->s + 3);
    }
}

static wf_dtype dtype_of(char kind, bool bf16)
{
    return kind == 'i'                  ? WF_I32
           : kind == 'a' || kind == 'v' ? (bf16 ? WF_BF16 : WF_F32)
           : kind == 'w'                ? (bf16 ? WF_F32 : WF_BF16)
                                        : WF_F32;
}

/* One of the words of a description, without numbers; what follows it, or NULL. */
static const char *describe(const char *word, const shape *s, bool bf16, numbers *n)
{
    wf_dim dims[WF_MAX_DIMS];
    int ndim = 0;
    const char *at = word + 2;

    for (; *at && *at != ' '; at++)
        dims[ndim++] = dim_of(s, *at);
    *n = numbers_of(ndim, dims, dtype_of(word[0], bf16));
    return *at ? at + 1 : NULL;
}

static void draw(numbers *n, char kind, int64_t below)
{
    numbers r;

    if (kind == 'i') {
        for (int64_t i = 0; i < wf_tensor_local_count(&n->t); i++)
            ((int32_t *)n->host)[i] =
                (int32_t)wf_random_below(3, 1, (uint64_t)i, (uint64_t)below);
        return;
    }
    r = random_numbers(n->t.ndim, n->t.dim, n->t.dtype);
    memcpy(n->host, r.host, bytes_of(&r.t));
    free(r.host);
    for (int64_t i = 0; kind == 'p' && i < wf_tensor_local_count(&n->t); i++)
        ((float *)n->host)[i] = 0.25F + ((float *)n->host)[i] * ((float *)n->host)[i];
}

/* The dim of a word that has this letter, WHOLE where none has. */
static int place_of(const char *words, int index, char letter)
{
    for (; index > 0; index--)
        words = strchr(words, ' ') + 1;
    for (int d = 0; words[2 + d] && words[2 + d] != ' '; d++)
        if (words[2 + d] == letter)
            return d;
    return WHOLE;
}

/* Split over one letter; outputs without it are partial, which only floats can be. 8 ranks nest in
   the chunks, and have parts that are empty; 3 have parts that do not. */
static bool split_over(const row *r, char letter, const wf_call *call, const numbers *out,
                       split *s)
{
    bool partial = false;

    *s = (split){.name = r->op, .parts = 1u << 3};
    for (int i = 0; i < call->n_in; i++)
        s->in[i] = place_of(r->in, i, letter);
    for (int o = 0; o < call->n_out; o++) {
        s->out[o] = place_of(r->out, o, letter);
        if (s->out[o] == WHOLE) {
            s->out[o] = call->op->flags & WF_OP_MAX ? MAX : SUM;
            partial = true;
            if (out[o].t.dtype != WF_F32)
                return false;
        }
    }
    if (partial && !(call->op->flags & WF_OP_MAX))
        s->parts = 1u << 8;
    return true;
}

static bool same(const numbers *a, const numbers *b)
{
    return memcmp(a->host, b->host, bytes_of(&a->t)) == 0;
}

/* Neither another run nor another address shows in the bits. */
static void check_again(const wf_call *call, numbers *in, const numbers *out)
{
    for (size_t place = 0; place <= 1; place++) {
        numbers again[WF_MAX_OUTPUTS];

        for (int o = 0; o < call->n_out; o++)
            again[o] = numbers_of(out[o].t.ndim, out[o].t.dim, out[o].t.dtype);
        place_at(place);
        run_on_device(call, in, again, false);
        place_at(0);
        for (int o = 0; o < call->n_out; o++) {
            bool alike = same(&again[o], &out[o]);

            CU_ASSERT(alike);
            if (!alike)
                printf(
                    "\n%s: other bits of output %d at %zu elements from an aligned address\n",
                    call->op->name, o, place);
            free(again[o].host);
        }
    }
}

static bool tried[WF_ID_count];

static void try_row(const row *r, const shape *s, bool bf16, bool parts_too)
{
    wf_call call = {.op = wf_op_find(r->op), .attr = r->attr, .attr_size = r->attr_size};
    numbers in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    split parts;

    CU_ASSERT_PTR_NOT_NULL_FATAL(call.op);
    tried[call.op->id] = true;
    for (const char *at = r->in; at; call.n_in++) {
        char kind = at[0];

        at = describe(at, s, bf16, &in[call.n_in]);
        draw(&in[call.n_in], kind, s->v);
    }
    for (const char *at = r->out; at; call.n_out++)
        at = describe(at, s, bf16, &out[call.n_out]);
    check(&call, in, out, &(split){.name = r->op}, false);
    check_again(&call, in, out);
    for (const char *letter = r->splits; *letter && parts_too; letter++)
        if (split_over(r, *letter, &call, out, &parts))
            check(&call, in, out, &parts, true);
    for (int i = 0; i < call.n_in; i++)
        free(in[i].host);
    for (int o = 0; o < call.n_out; o++)
        free(out[o].host);
}

static void try_rows(const row *rows)
{
    open_context(false);
    for (const row *r = rows; r->op; r++)
        for (int s = 0; s < SHAPES; s++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                try_row(r, &shapes[s], bf16, s % 2 == bf16);
    close_context();
}

#define WITH(attr) &attr, sizeof attr

static void elements(void)
{
    static const wf_scale_attr factor = {-1.7F};
    static const row rows[] = {
        {"add", "a:bsn a:bsn", "a:bsn", "bsn", NULL, 0},
        {"sub", "a:bsn a:bsn", "a:bsn", "sn", NULL, 0},
        {"mul", "a:bsn a:bsn", "a:bsn", "sn", NULL, 0},
        {"scale", "a:bsn", "a:bsn", "n", WITH(factor)},
        {"silu", "a:bsn", "a:bsn", "n", NULL, 0},
        {"silu_grad", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"gelu", "a:bsn", "a:bsn", "n", NULL, 0},
        {"gelu_grad", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"swiglu", "a:bsn a:bsn", "a:bsn", "n", NULL, 0},
        {"swiglu_grad", "a:bsn a:bsn a:bsn", "a:bsn a:bsn", "n", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void dropouts(void)
{
    static const wf_dropout_attr attr = {
        .p = 0.3F, .site = 2, .step = 9, .sequences = {.first = 4}, .key = 1};
    static const row rows[] = {{"dropout", "a:bsn", "a:bsn", "sn", WITH(attr)},
                               {"dropout", "a:bshe", "a:bshe", "h", WITH(attr)},
                               {"dropout_add", "a:bsn a:bsn", "a:bsn", "sn", WITH(attr)},
                               {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void sums(void)
{
    static const row rows[] = {
        {"bias_add", "a:bsn v:n", "a:bsn", "sn", NULL, 0},
        {"bias_add", "a:bsn w:n", "a:bsn", "", NULL, 0},
        {"bias_gelu", "a:bsn v:n", "a:bsn", "sn", NULL, 0},
        {"bias_grad", "a:bsn", "f:bn", "bsn", NULL, 0},
        {"bias_grad", "a:bshe", "f:be", "h", NULL, 0},
        {"bias_grad", "a:bsde", "f:be", "s", NULL, 0},
        {"bias_gelu_grad", "a:bsn v:n a:bsn", "a:bsn f:bn", "bsn", NULL, 0},
        {"bias_gelu_grad", "a:bshe v:e a:bshe", "a:bshe f:be", "h", NULL, 0},
        {"batch_sum", "a:bsn", "f:sn", "bsn", NULL, 0},
        {"batch_sum", "a:bn", "f:n", "b", NULL, 0},
        {"batch_expand", "v:sn a:bsn", "a:bsn", "bsn", NULL, 0},
        {"token_sum", "a:bs", "f:b", "bs", NULL, 0},
        {"token_sum", "a:bsn", "f:b", "n", NULL, 0},
        {"token_sum", "a:bsd", "f:b", "s", NULL, 0},
        {"token_expand", "v:b a:bsn", "a:bsn", "bs", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void named_dims(void)
{
    static const wf_permute_attr turn = {{0, 2, 1}}, far = {{3, 0, 2, 1}};
    static const wf_slice_attr third = {.dim = 1, .first = 3};
    static const wf_dim_attr first = {0}, second = {1}, last = {2};
    static const row rows[] = {{"permute", "a:bsn", "a:bns", "bsn", WITH(turn)},
                               {"permute", "a:bshe", "a:ebhs", "bsh", WITH(far)},
                               {"slice", "a:bpd", "a:bsd", "b", WITH(third)},
                               {"slice_grad", "a:bpd a:bsd", "a:bpd", "b", WITH(third)},
                               {"sum", "a:bsn", "f:bn", "bsn", WITH(second)},
                               {"sum", "a:bsn", "f:bs", "bsn", WITH(last)},
                               {"sum", "a:bsn", "f:sn", "bsn", WITH(first)},
                               {"sum_expand", "a:bn a:bsn", "a:bsn", "bsn", WITH(second)},
                               {"softmax", "a:bsd", "a:bsd", "bs", NULL, 0},
                               {"softmax_grad", "a:bsd a:bsd", "a:bsd", "bs", NULL, 0},
                               {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static const float eps = 1e-5F;
static const wf_add_norm_attr dropped = {
    .dropout = {.p = 0.3F, .site = 2, .step = 9, .sequences = {.first = 4}, .key = 1},
    .eps = 1e-5F};
static const wf_add_norm_attr plain = {.eps = 1e-5F};

static void norms(void)
{
    static const row rows[] = {
        {"layernorm", "a:bsd v:d w:d", "a:bsd f:bs f:bs", "bs", WITH(eps)},
        {"layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd", "a:bsd", "s", NULL, 0},
        {"layernorm_dw", "a:bsd f:bs p:bs a:bsd", "f:bd f:bd", "bs", NULL, 0},
        {"rmsnorm", "a:bsd w:d", "a:bsd f:bs", "bs", WITH(eps)},
        {"rmsnorm_dx", "a:bsd v:d p:bs a:bsd", "a:bsd", "s", NULL, 0},
        {"rmsnorm_dw", "a:bsd p:bs a:bsd", "f:bd", "bs", NULL, 0},
        {"layernorm_dw", "a:bshe f:bsh p:bsh a:bshe", "f:be f:be", "h", NULL, 0},
        {"rmsnorm_dw", "a:bshe p:bsh a:bshe", "f:be", "bh", NULL, 0},
        {"add_layernorm", "a:bsd a:bsd v:d v:d", "a:bsd a:bsd f:bs f:bs", "s", WITH(dropped)},
        {"add_layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd a:bsd", "a:bsd", "s", NULL, 0},
        {"add_rmsnorm", "a:bsd a:bsd v:d", "a:bsd a:bsd f:bs", "bs", WITH(plain)},
        {"add_rmsnorm_dx", "a:bsd v:d p:bs a:bsd a:bsd", "a:bsd", "s", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* Products that underflow to -0: an empty part adds +0, and no zero may tell. */
static void vanishing(void)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(8), wf_dim_width(4)};
    const split parts = {"gradients of -0", {1, 1, 1, 1}, {SUM, SUM}, TREE};
    const wf_call layer = {.op = &wf_op_layernorm_dw, .n_in = 4, .n_out = 2};
    const wf_call rms = {.op = &wf_op_rmsnorm_dw, .n_in = 3, .n_out = 1};
    numbers in[4], out[2];

    open_context(false);
    for (int i = 0; i < 4; i++) { /* x, mean, rstd, dy */
        in[i] = numbers_of(i == 1 || i == 2 ? 2 : 3, dims, WF_F32);
        for (int64_t k = 0; k < wf_tensor_local_count(&in[i].t); k++)
            ((float *)in[i].host)[k] = i == 0 ? 1e-25F : i == 3 ? -1e-25F : (float)(i - 1);
    }
    for (int o = 0; o < 2; o++)
        out[o] = numbers_of(2, (const wf_dim[]){dims[0], dims[2]}, WF_F32);
    check(&layer, in, out, &parts, true);
    check(&rms, (numbers[]){in[0], in[2], in[3]}, out, &parts, true);
    for (int i = 0; i < 4; i++)
        free(in[i].host);
    for (int o = 0; o < 2; o++)
        free(out[o].host);
    close_context();
}

/* Rows that no block holds in its registers. */
static void long_rows(void)
{
    static const row rows[] = {
        {"layernorm", "a:bsd v:d v:d", "a:bsd f:bs f:bs", "", WITH(eps)},
        {"layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd", "a:bsd", "", NULL, 0},
        {"add_rmsnorm", "a:bsd a:bsd v:d", "a:bsd a:bsd f:bs", "", WITH(plain)},
        {"add_rmsnorm_dx", "a:bsd v:d p:bs a:bsd a:bsd", "a:bsd", "", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};
    const shape wide = {1, 1, 18001, 1, 1, 2, 1}, even = {1, 2, 16640, 1, 1, 2, 1};

    open_context(false);
    for (const row *r = rows; r->op; r++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            try_row(r, &wide, bf16, false);
            try_row(r, &even, bf16, false);
        }
    close_context();
}

static void tables(void)
{
    static const row rows[] = {{"embedding", "v:vd i:bs", "a:bsd", "vds", NULL, 0},
                               {"embedding", "w:vd i:bs", "a:bsd", "", NULL, 0},
                               {"embedding_dw", "f:vd i:bs a:bsd", "f:vd", "vdb", NULL, 0},
                               {"rows_grad", "f:pd f:sd", "f:pd", "d", NULL, 0},
                               {"position_add", "a:bsd v:sd", "a:bsd", "bsd", NULL, 0},
                               {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
    open_context(false);
    for (int s = 0; s < SHAPES; s++) {
        const int64_t n = shapes[s].s;
        const row first = {"rows", "v:pd", "a:sd", "d", &n, sizeof n};

        for (int bf16 = 0; bf16 < 2; bf16++)
            try_row(&first, &shapes[s], bf16, true);
    }
    close_context();
}

static void ropes(void)
{
    static const wf_rope_attr there = {.base = 10000}, back = {.base = 500000, .inverse = true};
    static const row rows[] = {{"rope", "a:bshe", "a:bshe", "sh", WITH(there)},
                               {"rope", "a:bshe", "a:bshe", "", WITH(back)},
                               {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void losses(void)
{
    static const row rows[] = {
        {"logit_max", "a:bsv", "f:bs", "vs", NULL, 0},
        {"logit_sum", "a:bsv f:bs i:bs", "f:bs f:bs", "vs", NULL, 0},
        {"logit_sum_grad", "a:bsv f:bs i:bs f:bs f:bs", "a:bsv", "vs", NULL, 0},
        {"cross_entropy", "p:bs f:bs f:bs", "f:bs", "s", NULL, 0},
        {"cross_entropy_grad", "p:bs f:bs", "f:bs f:bs", "s", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* core/numerics/bf16.h: what is stored as bf16 is no denormal, also where a kernel rounds by itself. */
static void denormals(void)
{
    enum { N = 21 };
    static const wf_scale_attr small = {1e-20F};
    const wf_dim dim = wf_dim_width(N);
    wf_call call = {
        .op = &wf_op_scale, .n_in = 1, .n_out = 1, .attr = &small, .attr_size = sizeof small};
    numbers x, y;

    open_context(false);
    x = numbers_of(1, &dim, WF_BF16);
    y = numbers_of(1, &dim, WF_BF16);
    for (int i = 0; i < N; i++)
        ((uint16_t *)x.host)[i] = wf_bf16_of(i % 3 == 0 ? -1e-19F : i % 3 == 1 ? 1e-19F : 1);
    run_on_device(&call, &x, &y, false);
    for (int i = 0; i < N; i++)
        CU_ASSERT_EQUAL(((uint16_t *)y.host)[i], i % 3 == 0   ? 0x8000
                                                 : i % 3 == 1 ? 0
                                                              : wf_bf16_of(1e-20F));
    free(x.host);
    free(y.host);
    close_context();
}

/* Runs last: no row goes without a case. */
static void every_row(void)
{
    for (int id = 1; id < WF_ID_count; id++) {
        const wf_op *op = wf_op_at(id);
        bool elsewhere =
            op->flags & (WF_OP_VIEW | WF_OP_IN_PLACE) || strncmp(op->name, "linear", 6) == 0 ||
            strcmp(op->name, "matmul") == 0 || strncmp(op->name, "attention", 9) == 0;

        CU_ASSERT(tried[id] || elsewhere);
        if (!tried[id] && !elsewhere)
            printf("\nrow %s of ops.def has no case\n", op->name);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"element by element", elements},
                                    {"dropout", dropouts},
                                    {"sums", sums},
                                    {"dims that are named", named_dims},
                                    {"norms", norms},
                                    {"norms of products that underflow", vanishing},
                                    {"norms of long rows", long_rows},
                                    {"tables", tables},
                                    {"rope", ropes},
                                    {"loss", losses},
                                    {"denormals", denormals},
                                    {"every row has a case", every_row},
                                    {NULL, NULL}};

    return gpu_test_main("cuda_ops", tests);
}
