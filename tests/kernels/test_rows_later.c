/*
 * tests/kernels/test_rows_later.c - ops that take rows block by block (WF_OP_ROWS) compute each
 * block as it comes, and have the bits of rows that are there at once.
 */
#include "core/later.h"
#include "core/oplog.h"
#include "kernels/devices.h"
#include "kernels/op_table_internal.h"
#include "tests/harness.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, BLOCKS = 3, TOKENS = 5 * BLOCKS, WIDTH = 37 };

/* Rows [batch, tokens, width] that come in blocks: a part of the tokens of each sequence. */
typedef struct coming {
    wf_later later;
    wf_tensor *x;
} coming;

static wf_row_runs runs_of(const wf_later *self, int i)
{
    const wf_tensor *x = ((const coming *)self)->x;
    const int64_t rows = x->local[1] / self->blocks;

    return (wf_row_runs){
        .first = rows * i, .rows = rows, .step = x->local[1], .parts = (int)x->local[0]};
}

static wf_tensor *bring(wf_later *self, int i)
{
    const wf_tensor *x = ((const coming *)self)->x;
    const wf_row_runs runs = runs_of(self, i);
    const size_t row = (size_t)x->local[2], block = (size_t)runs.rows * row;
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(runs.parts * runs.rows), x->dim[2]};
    wf_tensor *rows = wf_tensor_new(x->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_ACTIVATION);

    for (int p = 0; rows && p < runs.parts; p++)
        memcpy((float *)rows->data + (size_t)p * block,
               (const float *)x->data + (size_t)(runs.first + p * runs.step) * row,
               block * sizeof(float));
    return rows;
}

static wf_tensor *all_rows(wf_later *self)
{
    return wf_scale(((coming *)self)->x, 1);
}

static void end(wf_later *self)
{
    free(self);
}

/* Returns x as a tensor whose rows come later. */
static wf_tensor *later_of(wf_tensor *x)
{
    coming *c = malloc(sizeof *c);

    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    *c = (coming){{BLOCKS, runs_of, bring, all_rows, end}, x};
    return wf_later_tensor(x->ctx, WF_F32, 3, x->dim, NULL, &c->later);
}

/* Makes the operand that a signature has at `at`: rows [batch, tokens, width], a matrix or a
   vector; moves on to the next one. */
static wf_tensor *operand(wf_context *ctx, const char **at, uint64_t stream)
{
    const bool rows = strncmp(*at, "b...", 4) == 0;
    wf_dim dims[3] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS)};
    int ndim = rows ? 2 : 0;
    wf_tensor *t;

    for (*at += rows ? 4 : 0; isalpha(**at) || **at == '!'; ++*at)
        if (**at != '!')
            dims[ndim++] = wf_dim_width(WIDTH);
    *at += **at == ',';
    t = wf_tensor_new(ctx, WF_F32, ndim, dims, NULL, WF_MEMORY_ACTIVATION);
    CU_ASSERT_EQUAL_FATAL(wf_init_normal(t, 0, 1, stream), WF_OK);
    return t;
}

/* Makes a call of an op with operands of its own. */
static wf_call call_of(wf_context *ctx, const wf_op *op)
{
    wf_call call = {.op = op, .ctx = ctx, .n_out = 1};
    const char *at = op->signature;

    while (*at != '-') {
        call.in[call.n_in] = operand(ctx, &at, (uint64_t)call.n_in);
        call.n_in++;
    }
    for (; *at; at++)
        call.n_out += *at == ',';
    return call;
}

/* Kernels that have run of an op. */
typedef struct runs {
    const wf_op *op;
    int n;
} runs;

static void count_run(void *self, const wf_call *call)
{
    runs *r = self;

    r->n += call->op == r->op;
}

static void run_both(wf_context *ctx, const wf_op *op)
{
    wf_call there = call_of(ctx, op), came = there;
    runs of = {op, 0};
    const wf_oplog log = {.op = count_run, .self = &of};

    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&there), WF_OK);
    came.in[0] = later_of(there.in[0]);
    wf_context_oplog(ctx, &log);
    CU_ASSERT_EQUAL_FATAL(wf_dispatch(&came), WF_OK);
    wf_context_oplog(ctx, NULL);
    CU_ASSERT_EQUAL(of.n, BLOCKS);
    for (int o = 0; o < came.n_out; o++)
        CU_ASSERT(memcmp(came.out[o]->data, there.out[o]->data,
                         (size_t)wf_tensor_count(came.out[o]) * sizeof(float)) == 0);
}

/* Products take them, whatever they are joined with, but for rotations, which depend on the
   position, and a router's logits. */
static void products_take_blocks(void)
{
    const wf_context_options options = {.seed = 7};
    wf_error error = {WF_OK, ""};
    wf_context *ctx = wf_context_open(wf_cpu_device(2, &error), &options, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    for (int id = 1; id <= wf_op_count(); id++) {
        const wf_op *op = wf_op_at(id);
        const bool product = strncmp(op->name, "linear", 6) == 0 && isdigit(op->name[6]);
        const bool other = strstr(op->name, "_rope") || strstr(op->name, "_fp32");

        CU_ASSERT_EQUAL(!!(op->flags & WF_OP_ROWS), product && !other);
        if (!(op->flags & WF_OP_ROWS))
            continue;
        wf_scope_open(ctx);
        run_both(ctx, op);
        wf_scope_close(ctx);
    }
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_context_close(ctx);
}

int main(void)
{
    static const wf_test tests[] = {{"products take blocks", products_take_blocks},
                                    {NULL, NULL}};

    return wf_test_main("rows that come later", tests);
}
