/*
 * tests/cuda/test_cuda_ops.c - every row of kernels/ops.def that is neither in place nor of
 * test_cuda_math.c, test_cuda_attention.c or test_cuda_moe.c, on the emulated GPU: as f32 and
 * as bf16, in sizes that do not divide, at addresses that are not aligned, against the
 * reference in double, and a part as the whole (op_rows.h, which tries fewer shapes
 * UNDER_SANITIZER).
 */
#include "core/numerics/bf16.h"
#include "kernels/attention_internal.h"
#include "kernels/conv_internal.h"
#include "kernels/dims_internal.h"
#include "kernels/row_ops_internal.h"
#include "kernels/shared_internal.h"
#include "tests/cuda/device_parts.h"
#include "tests/cuda/gpu_main.h"
#include "tests/cuda/op_rows.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WITH(attr) &attr, sizeof attr

static void dropouts(void)
{
    static const wf_dropout_attr attr = {
        .p = 0.3F, .site = 2, .step = 9, .sequences = {.first = 4}, .key = 1};
    static const op_row rows[] = {{"dropout", "a:bsn", "a:bsn", "sn", WITH(attr)},
                                  {"dropout", "a:bshe", "a:bshe", "h", WITH(attr)},
                                  {"dropout_add", "a:bsn a:bsn", "a:bsn", "sn", WITH(attr)},
                                  {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void sums(void)
{
    static const op_row rows[] = {
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
    static const wf_patch_attr taps = {{1, 3}, {1, 1}, {0, 1}, {1, 1}};
    static const wf_dim_attr first = {0}, second = {1}, last = {2};
    static const op_row rows[] = {{"permute", "a:bsn", "a:bns", "bsn", WITH(turn)},
                                  {"permute", "a:bshe", "a:ebhs", "bsh", WITH(far)},
                                  {"slice", "a:bpd", "a:bsd", "b", WITH(third)},
                                  {"slice_grad", "a:bpd a:bsd", "a:bpd", "b", WITH(third)},
                                  {"sum", "a:bsn", "f:bn", "bsn", WITH(second)},
                                  {"sum", "a:bsn", "f:bs", "bsn", WITH(last)},
                                  {"sum", "a:bsn", "f:sn", "bsn", WITH(first)},
                                  {"sum_expand", "a:bn a:bsn", "a:bsn", "bsn", WITH(second)},
                                  {"patches", "a:bsd", "a:bsd3", "bd", WITH(taps)},
                                  {"patches_grad", "a:bsd a:bsd3", "a:bsd", "bd", WITH(taps)},
                                  {"broadcast", "a:sn a:bsn", "a:bsn", "bsn", NULL, 0},
                                  {"broadcast", "a:s1 a:bsn", "a:bsn", "bsn", NULL, 0},
                                  {"softmax", "a:bsd", "a:bsd", "bs", NULL, 0},
                                  {"softmax_grad", "a:bsd a:bsd", "a:bsd", "bs", NULL, 0},
                                  {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* Dispatch widens what is stored as bf16. */
static void rows_of_dims(void)
{
    static const wf_row_attr one = {.count = 1}, back = {.reverse = true},
                             above = {.first = 1, .reverse = true}, along = {.dim = 1},
                             more = {.dim = 1, .count = 3, .value = 0.5F};
    static const op_row rows[] = {{"topk", "f:bsd", "f:bs1 f:bs1", "bs", WITH(one)},
                                  {"cumsum", "f:bsd", "f:bsd", "bs", WITH(back)},
                                  {"triangle", "f:bsd", "f:bsd", "bsd", WITH(above)},
                                  {"concat", "f:bpd f:bpd", "f:bqd", "bd", WITH(along)},
                                  {"pad", "f:bsd", "f:bpd", "bd", WITH(more)},
                                  {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* Gathers and scatters by an index; one that is out of range gives NaN, or nothing. */
static void indices(void)
{
    enum { N = 5, K = 4 };
    static const wf_row_attr classes = {.count = N};
    const wf_dim dims[] = {wf_dim_batch(2), wf_dim_width(N), wf_dim_width(K)};
    const wf_call gather = {.op = &wf_op_gather, .n_in = 2, .n_out = 1};
    const wf_call scatter = {.op = &wf_op_scatter, .n_in = 3, .n_out = 1};
    const wf_call one_hot = {.op = &wf_op_one_hot,
                             .n_in = 1,
                             .n_out = 1,
                             .attr = &classes,
                             .attr_size = sizeof classes};
    numbers in[3], out[3];

    open_context(false);
    in[0] = random_numbers(2, dims, WF_F32);
    in[1] = numbers_of(2, (const wf_dim[]){dims[0], dims[2]}, WF_F32);
    in[2] = random_numbers(2, (const wf_dim[]){dims[0], dims[2]}, WF_F32);
    out[0] = numbers_of(2, (const wf_dim[]){dims[0], dims[2]}, WF_F32);
    out[1] = numbers_of(2, dims, WF_F32);
    out[2] = numbers_of(3, (const wf_dim[]){dims[0], dims[2], dims[1]}, WF_F32);
    for (int i = 0; i < 2 * K; i++)
        ((float *)in[1].host)[i] = (float)(i * 3 % N);
    check(&gather, in, &out[0], &(split){.name = "gather"}, false);
    check(&scatter, in, &out[1], &(split){.name = "scatter"}, false);
    check(&one_hot, &in[1], &out[2], &(split){.name = "one_hot"}, false);
    row_is_tried(WF_ID_gather);
    row_is_tried(WF_ID_scatter);
    row_is_tried(WF_ID_one_hot);
    for (int i = 0; i < 3; i++) {
        free(in[i].host);
        free(out[i].host);
    }
    close_context();
}

static const float eps = 1e-5F;
static const wf_add_norm_attr dropped = {
    .dropout = {.p = 0.3F, .site = 2, .step = 9, .sequences = {.first = 4}, .key = 1},
    .eps = 1e-5F};
static const wf_add_norm_attr plain = {.eps = 1e-5F};

static void norms(void)
{
    static const op_row rows[] = {
        {"layernorm", "a:bsd v:d w:d", "a:bsd f:bs f:bs", "bs", WITH(eps)},
        {"layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd", "a:bsd", "s", NULL, 0},
        {"layernorm_dw", "a:bsd f:bs p:bs a:bsd", "f:bd f:bd", "bs", NULL, 0},
        {"rmsnorm", "a:bsd w:d", "a:bsd f:bs", "bs", WITH(eps)},
        {"rmsnorm_dx", "a:bsd v:d p:bs a:bsd", "a:bsd", "s", NULL, 0},
        {"rmsnorm_dw", "a:bsd p:bs a:bsd", "f:bd", "bs", NULL, 0},
        {"layernorm_dw", "a:bshe f:bsh p:bsh a:bshe", "f:be f:be", "h", NULL, 0},
        {"rmsnorm_dw", "a:bshe p:bsh a:bshe", "f:be", "bh", NULL, 0},
        {"layernorm_grad", "a:bsd v:d f:bs p:bs a:bsd", "a:bsd f:bd f:bd", "bs", NULL, 0},
        {"rmsnorm_grad", "a:bsd w:d p:bs a:bsd", "a:bsd f:bd", "bs", NULL, 0},
        {"rmsnorm_grad", "a:bshe v:e p:bsh a:bshe", "a:bshe f:be", "bh", NULL, 0},
        {"add_layernorm", "a:bsd a:bsd v:d v:d", "a:bsd a:bsd f:bs f:bs", "s", WITH(dropped)},
        {"add_layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd a:bsd", "a:bsd", "s", NULL, 0},
        {"add_layernorm_grad", "a:bsd v:d f:bs p:bs a:bsd a:bsd", "a:bsd f:bd f:bd", "b", NULL,
         0},
        {"add_rmsnorm", "a:bsd a:bsd v:d", "a:bsd a:bsd f:bs", "bs", WITH(plain)},
        {"add_rmsnorm_dx", "a:bsd v:d p:bs a:bsd a:bsd", "a:bsd", "s", NULL, 0},
        {"add_rmsnorm_grad", "a:bsd v:d p:bs a:bsd a:bsd", "a:bsd f:bd", "b", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* Products that underflow to -0: an empty part adds +0, and no zero may differ. */
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
    static const op_row rows[] = {
        {"layernorm", "a:bsd v:d v:d", "a:bsd f:bs f:bs", "", WITH(eps)},
        {"layernorm_dx", "a:bsd v:d f:bs p:bs a:bsd", "a:bsd", "", NULL, 0},
        {"add_rmsnorm", "a:bsd a:bsd v:d", "a:bsd a:bsd f:bs", "", WITH(plain)},
        {"add_rmsnorm_dx", "a:bsd v:d p:bs a:bsd a:bsd", "a:bsd", "", NULL, 0},
        {NULL, NULL, NULL, NULL, NULL, 0}};
    const row_shape wide = {1, 1, 18001, 1, 1, 2, 1}, even = {1, 2, 16640, 1, 1, 2, 1};

    open_context(false);
    for (const op_row *r = rows; r->op; r++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            try_row(r, &wide, bf16, false);
            try_row(r, &even, bf16, false);
        }
    close_context();
}

static void tables(void)
{
    static const op_row rows[] = {{"embedding", "v:vd i:bs", "a:bsd", "vds", NULL, 0},
                                  {"embedding", "w:vd i:bs", "a:bsd", "", NULL, 0},
                                  {"embedding_dw", "f:vd i:bs a:bsd", "f:vd", "vdb", NULL, 0},
                                  {"rows_grad", "f:pd f:sd", "f:pd", "d", NULL, 0},
                                  {"position_add", "a:bsd v:sd", "a:bsd", "bsd", NULL, 0},
                                  {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
    open_context(false);
    for (int s = 0; s < ROW_SHAPES; s++) {
        const int64_t n = row_shapes[s].s;
        const op_row first = {"rows", "v:pd", "a:sd", "d", &n, sizeof n};

        for (int bf16 = 0; bf16 < 2; bf16++)
            try_row(&first, &row_shapes[s], bf16, true);
    }
    close_context();
}

static void ropes(void)
{
    static const wf_rope_attr there = {.options = {.base = 10000}},
                              back = {.options = {.base = 500000}, .inverse = true},
                              far = {.options = {.base = 500,
                                                 .scaling = {.kind = WF_ROPE_LLAMA3,
                                                             .factor = 8,
                                                             .low_freq_factor = 1,
                                                             .high_freq_factor = 4,
                                                             .original_positions = 16}}},
                              farther = {.options = {.base = 500,
                                                     .scaling = {.kind = WF_ROPE_YARN,
                                                                 .factor = 4,
                                                                 .original_positions = 40}}};
    static const wf_rope_attr longer = {.options = {.base = 500,
                                                    .scaling = {.kind = WF_ROPE_DYNAMIC,
                                                                .factor = 4,
                                                                .length = 24,
                                                                .original_positions = 2}}};
    static const wf_rope_factors factors = {1, {1.5f}, {3}};
    const wf_rope_options half = {
        .base = 500,
        .scaling = {.kind = WF_ROPE_LONG, .factor = 2, .original_positions = 16},
        .features = 2,
        .factors = &factors};
    const wf_rope_attr part = {.options = half}, part_long = {.options = half, .is_long = true};
    static const wf_rope_attr warm = {
        .options = {
            .base = 1,
            .scaling = {.kind = WF_ROPE_TEMPERATURE, .factor = 0.5, .original_positions = 3}}};
    const op_row rows[] = {
        {"rope", "a:bshe", "a:bshe", "sh", WITH(there)},
        {"rope", "a:bshe", "a:bshe", "sh", WITH(warm)},
        {"rope_at", "a:bshe i:bs", "a:bshe", "", WITH(warm)},
        {"rope", "a:bshe", "a:bshe", "", WITH(back)},
        {"rope", "a:bshe", "a:bshe", "", WITH(far)},
        {"rope", "a:bshe", "a:bshe", "", WITH(farther)},
        {"rope", "a:bshe", "a:bshe", "", WITH(longer)},
        {"rope_at", "a:bshe i:bs", "a:bshe", "", WITH(longer)},
        {"rope", "a:bshe", "a:bshe", "sh", WITH(part)},
        {"rope_at", "a:bshe i:bs", "a:bshe", "", WITH(part_long)},
        {"rope_at", "a:bshe i:bs", "a:bshe", "bsh", WITH(far)},
        {"rope_pair", "a:bshe a:bshe", "a:bshe a:bshe", "sh", WITH(back)},
        {"rope_pair", "a:bshe a:bsne", "a:bshe a:bsne", "s", WITH(part)},
        {"rope_pair_at", "a:bshe a:bsne i:bs", "a:bshe a:bsne", "bs", WITH(part_long)},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

static void losses(void)
{
    static const float smoothing[] = {0.25F};
    static const op_row rows[] = {
        {"logit_max", "a:bsv", "f:bs", "vs", NULL, 0},
        {"logit_sum", "a:bsv f:bs t:bs", "f:bs f:bs", "vs", WITH(smoothing)},
        {"logit_sum_grad", "a:bsv f:bs t:bs f:bs f:bs", "a:bsv", "vs", NULL, 0},
        {"logit_sum_grad", "a:bsv f:bs t:bs f:bs f:bs", "a:bsv", "vs", WITH(smoothing)},
        {"cross_entropy", "z:bs f:bs f:bs", "f:bs", "s", NULL, 0},
        {"cross_entropy_grad", "z:bs f:bs", "f:bs f:bs", "s", NULL, 0},
        {"logit_loss", "a:bsv t:bs f:bs", "a:bsv f:bs", "s", NULL, 0},
        {"logit_loss", "a:bsv t:bs f:bs", "a:bsv f:bs", "s", WITH(smoothing)},
        {NULL, NULL, NULL, NULL, NULL, 0}};

    try_rows(rows);
}

/* core/numerics/bf16.h: what is stored as bf16 is no denormal, also where a kernel rounds by
   itself. */
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
            strcmp(op->name, "matmul") == 0 || strncmp(op->name, "attention", 9) == 0 ||
            strncmp(op->name, "route", 5) == 0 || strncmp(op->name, "experts", 7) == 0;

        CU_ASSERT(row_was_tried(id) || elsewhere);
        if (!row_was_tried(id) && !elsewhere)
            printf("\nrow %s of ops.def has no case\n", op->name);
    }
}

int main(void)
{
    static const wf_test tests[] = {{"element by element", try_elements},
                                    {"elements by expression", try_expressions},
                                    {"expressions of one operand", try_expressions_of_one},
                                    {"rows", rows_of_dims},
                                    {"indices of rows", indices},
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
