/*
 * kernels/tables.c - rows of tables, by token and by position.
 *
 *     embedding     y[b, .., d] = table[tokens[b, ..], d]
 *     embedding_dw  dtable[v, d] = sum of dy[b, .., d] where tokens[b, ..] = v, a chunk per
 *                   sequence; or a row of the result per sequence, dtable[b, v, d]
 *     rows          y[s, d] = table[s, d] for s < n
 *     rows_grad     dtable[p, d] = dy[p, d] for p < n, else 0
 *     position_add  y[b, s, d] = x[b, s, d] + rows[s, d]
 *
 * The CPU's kernels are in kernels/cpu/tables.c.
 */
#include "core/numerics/bf16.h"
#include "kernels/linear_rows.h"
#include "kernels/row_chunks_internal.h"
#include "kernels/shared_internal.h"
#include <inttypes.h>

typedef struct rows_attr {
    int64_t n;
} rows_attr;

wf_tensor *wf_embedding(wf_tensor *table, wf_tensor *tokens)
{
    return wf_apply(&wf_op_embedding, NULL, 0, 2, table, tokens);
}

wf_tensor *wf_embedding_dw(wf_tensor *table, wf_tensor *tokens, wf_tensor *dy)
{
    return wf_apply(&wf_op_embedding_dw, NULL, 0, 3, table, tokens, dy);
}

wf_tensor *wf_rows(wf_tensor *table, int64_t n)
{
    rows_attr attr = {n};

    return wf_apply(&wf_op_rows, &attr, sizeof attr, 1, table);
}

wf_tensor *wf_rows_grad(wf_tensor *table, wf_tensor *dy)
{
    return wf_apply(&wf_op_rows_grad, NULL, 0, 2, table, dy);
}

wf_tensor *wf_position_add(wf_tensor *x, wf_tensor *rows)
{
    return wf_apply(&wf_op_position_add, NULL, 0, 2, x, rows);
}

static void embedding_backward(wf_gradient *g)
{
    const wf_linear_attr attr = {.rows = !g->summed[0] && wf_comes_in_rows(g->dout[0])};

    if (g->want[0])
        g->din[0] = wf_apply(&wf_op_embedding_dw, &attr, sizeof attr, 3, g->in[0], g->in[1],
                             g->dout[0]);
}

static const char *embedding_dw_signature(const wf_call *call, char *text)
{
    (void)text;
    return wf_linear_in_rows(call) ? "vd,b...,b...d->bvd" : "vd,b...,b...d->vd";
}

static void rows_backward(wf_gradient *g)
{
    g->din[0] = wf_rows_grad(g->in[0], g->dout[0]);
}

static void position_add_backward(wf_gradient *g)
{
    if (g->want[0])
        g->din[0] = g->dout[0];
    if (g->want[1])
        g->din[1] = wf_batch_sum(g->dout[0]);
}

static wf_status rows_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *table = call->in[0];
    int64_t n = ((const rows_attr *)call->attr)->n;

    (void)out;
    if (n < 0 || n > table->dim[0].size)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "rows: %" PRId64 " rows of a table that has %" PRId64
                       "; use shorter sequences or a longer table",
                       n, table->dim[0].size);
    dims[0] = wf_dim_chunked(n);
    dims[1] = table->dim[1];
    *ndim = 2;
    return WF_OK;
}

/* Gives the gradient the dims of the table, whose rows it must not exceed. */
static wf_status rows_grad_shape(const wf_call *call, int out, int *ndim, wf_dim *dims)
{
    const wf_tensor *table = call->in[0], *dy = call->in[1];

    (void)out;
    if (dy->dim[0].size > table->dim[0].size)
        return wf_fail(call->ctx, WF_ESHAPE,
                       "rows_grad: %" PRId64 " rows of a table that has %" PRId64
                       "; use shorter sequences or a longer table",
                       dy->dim[0].size, table->dim[0].size);
    dims[0] = table->dim[0];
    dims[1] = table->dim[1];
    *ndim = 2;
    return WF_OK;
}

wf_status wf_check_tokens(const wf_call *call, const wf_tensor *tokens, int64_t least,
                          int64_t vocabulary)
{
    const int32_t *token = tokens->data;
    int64_t n = wf_tensor_local_count(tokens),
            per_sequence = wf_extent(tokens, 1, tokens->ndim);

    for (int64_t i = 0; i < n; i++)
        if (token[i] < least || token[i] >= vocabulary) {
            int64_t run, position = wf_global_index(tokens, 1, i % per_sequence, &run);
            int64_t row = tokens->start[0] + i / per_sequence;

            if (tokens->pieces) { /* a view of sequences in pieces */
                position += row % tokens->pieces * tokens->dim[1].size;
                row /= tokens->pieces;
            }

            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: token %" PRId32 " of sequence %" PRId64 ", position %" PRId64
                           ", is outside the vocabulary of %" PRId64,
                           call->op->name, token[i], row, position, vocabulary);
        }
    return WF_OK;
}

static double element(const wf_tensor *table, int64_t i)
{
    return table->dtype == WF_BF16 ? (double)wf_bf16_value(((const uint16_t *)table->data)[i])
                                   : ((const double *)table->data)[i];
}

static wf_status embedding_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *table = call->in[0], *tokens = call->in[1];
    const int32_t *token = tokens->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(tokens), d = table->local[1];

    (void)workspace;
    if (wf_check_tokens(call, tokens, 0, table->dim[0].size) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t i = 0; i < n; i++) {
        int64_t row = token[i] - table->start[0];

        for (int64_t j = 0; j < d; j++)
            y[i * d + j] = row >= 0 && row < table->local[0] ? element(table, row * d + j) : 0;
    }
    return WF_OK;
}

static wf_status embedding_dw_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *table = call->out[0], *tokens = call->in[1];
    const int32_t *token = tokens->data;
    const double *dy = call->in[2]->data;
    double *dtable = table->data;
    int64_t n = wf_tensor_local_count(tokens), d = table->local[1];

    if (wf_linear_in_rows(call))
        return wf_run_by_sequence(call, 1, embedding_dw_reference, workspace);
    if (wf_check_tokens(call, tokens, 0, table->dim[0].size) != WF_OK)
        return wf_context_status(call->ctx);
    for (int64_t i = 0; i < table->local[0] * d; i++)
        dtable[i] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = token[i] - table->start[0];

        for (int64_t j = 0; row >= 0 && row < table->local[0] && j < d; j++)
            dtable[row * d + j] += dy[i * d + j];
    }
    return WF_OK;
}

static wf_status rows_reference(const wf_call *call, void *workspace)
{
    const double *table = call->in[0]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < n; i++)
        y[i] = table[i];
    return WF_OK;
}

static wf_status rows_grad_reference(const wf_call *call, void *workspace)
{
    const double *dy = call->in[1]->data;
    double *dtable = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->in[1]);

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->out[0]); i++)
        dtable[i] = i < n ? dy[i] : 0;
    return WF_OK;
}

static wf_status position_add_reference(const wf_call *call, void *workspace)
{
    const double *x = call->in[0]->data, *rows = call->in[1]->data;
    double *y = call->out[0]->data;
    int64_t n = wf_tensor_local_count(call->in[1]), count = wf_tensor_local_count(call->out[0]);

    (void)workspace;
    for (int64_t i = 0; i < count; i++)
        y[i] = x[i] + rows[i % n];
    return WF_OK;
}

const wf_op wf_op_embedding = {WF_OP_ROW(embedding),
                               .save = WF_SAVE_IN(1),
                               .save_shape = WF_SAVE_IN(0),
                               .integers = 1 << 1,
                               .reference = {.run = embedding_reference, .mixed_ok = WF_IN(0)},
                               .backward = embedding_backward};
const wf_op wf_op_embedding_dw = {WF_OP_ROW(embedding_dw),
                                  .keep_fp32 = 1,
                                  .integers = 1 << 1,
                                  .shapes = 1 << 0,
                                  .write_signature = embedding_dw_signature,
                                  .reference = {.run = embedding_dw_reference}};
const wf_op wf_op_rows = {WF_OP_ROW(rows),
                          .keep_fp32 = 1,
                          .save_shape = WF_SAVE_IN(0),
                          .reference = {.run = rows_reference},
                          .backward = rows_backward,
                          .shape = rows_shape};
const wf_op wf_op_rows_grad = {WF_OP_ROW(rows_grad), .keep_fp32 = 1, .shapes = 1 << 0,
                               .reference = {.run = rows_grad_reference},
                               .shape = rows_grad_shape};
const wf_op wf_op_position_add = {WF_OP_ROW(position_add), .follows = 1,
                                  .reference = {.run = position_add_reference},
                                  .backward = position_add_backward};
