/*
 * kernels/row_ops_internal.h - the ops of kernels/row_ops.c as loops over rows: what a call's
 * rows are, and the loop over one row of each op, written once (kernels/row_loops_internal.h)
 * for the reference in double, the CPU and the GPU. A row of the outputs is made of the same
 * row of the operands.
 */
#ifndef WF_KERNELS_ROW_OPS_INTERNAL_H
#define WF_KERNELS_ROW_OPS_INTERNAL_H

#include "kernels/op_table_internal.h"

/* Numbers of a call; what is not the op's is 0. */
typedef struct wf_row_attr {
    int8_t dim;    /* concat, pad */
    bool reverse;  /* topk: the least ones; cumsum: from the end; triangle: the upper one */
    int64_t first; /* pad: how many before; triangle: its diagonal */
    int64_t count; /* topk: how many; one_hot: classes; pad: how many after */
    float value;   /* pad */
} wf_row_attr;

typedef struct wf_row_job {
    wf_row_attr attr;
    int64_t rows, width_in[3], width_out[2];
    int64_t first; /* pad: elements before those of a row */
    int64_t m, first_row,
        first_column; /* triangle: rows of a matrix, where they begin in the whole */
    int n_in, n_out;
    const void *in[3];
    void *out[2];
} wf_row_job;

static inline wf_row_job wf_row_job_of(const wf_call *call)
{
    const wf_tensor *y = call->out[0];
    wf_row_job j = {.attr = {0},
                    .rows = wf_extent(y, 0, y->ndim - 1),
                    .n_in = call->n_in,
                    .n_out = call->n_out};

    if (call->attr)
        memcpy(&j.attr, call->attr, sizeof j.attr);
    if (call->op->id == WF_ID_concat || call->op->id == WF_ID_pad) {
        j.rows = wf_extent(y, 0, j.attr.dim);
        j.first = j.attr.first * wf_extent(y, j.attr.dim + 1, y->ndim);
    }
    if (call->op->id == WF_ID_triangle) {
        j.m = y->local[y->ndim - 2];
        j.first_row = y->start[y->ndim - 2];
        j.first_column = y->start[y->ndim - 1];
    }
    for (int i = 0; i < call->n_in; i++) {
        j.in[i] = call->in[i]->data;
        j.width_in[i] = j.rows > 0 ? wf_extent(call->in[i], 0, call->in[i]->ndim) / j.rows : 0;
    }
    for (int o = 0; o < call->n_out; o++) {
        j.out[o] = call->out[o]->data;
        j.width_out[o] =
            j.rows > 0 ? wf_extent(call->out[o], 0, call->out[o]->ndim) / j.rows : 0;
    }
    return j;
}

/* Checks indices: WF_EINVAL, naming it, where one of a row (operand 1 of gather and scatter,
   operand 0 of one_hot), is no whole number of [0, size). `at` gives index e of the operand. */
wf_status wf_check_indices(const wf_call *call, double (*at)(const void *data, int64_t e));

#endif
