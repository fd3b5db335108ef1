/*
 * tests/cuda/emulator/cudnn_program.c - runs a graph of cuDNN's operations on the CPU, one
 * after the other, in float, each result rounded to the type of its tensor.
 */
#include "cudnn_program.h"
#include "emulator.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Names an element of a tensor by its indices. A tensor that is smaller in a dim has each of
   its indices for as many neighbours. */
typedef struct position {
    int64_t i[DIMS];
} position;

int64_t program_count(const graph_tensor *t)
{
    return t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
}

static position position_of(const graph_tensor *t, int64_t n)
{
    position p;

    for (int d = DIMS - 1; d >= 0; d--) {
        p.i[d] = n % t->dim[d];
        n /= t->dim[d];
    }
    return p;
}

static int64_t packed_at(const graph_tensor *t, const position *p, const graph_tensor *like)
{
    int64_t at = 0;

    for (int d = 0; d < DIMS; d++)
        at = at * t->dim[d] + p->i[d] / (like->dim[d] / t->dim[d]);
    return at;
}

static float rounded(float x, cudnnDataType_t type)
{
    uint32_t bits;

    if (type != CUDNN_DATA_BFLOAT16 || isnan(x))
        return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The offset of element n of a tensor in memory. */
static int64_t offset_of(const graph_tensor *t, int64_t n)
{
    position p = position_of(t, n);
    int64_t at = 0;

    for (int d = 0; d < DIMS; d++)
        at += p.i[d] * t->stride[d];
    return at;
}

static float element(const graph_tensor *t, int64_t n)
{
    int64_t at = offset_of(t, n);
    uint32_t bits = t->value;
    float x;

    if (t->by_value && t->type == CUDNN_DATA_INT32)
        return (float)(int32_t)bits;
    if (!t->by_value && t->type == CUDNN_DATA_BFLOAT16)
        bits = (uint32_t)((const uint16_t *)t->at)[at] << 16;
    else if (!t->by_value)
        return ((const float *)t->at)[at];
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void put_element(const graph_tensor *t, int64_t n, float x)
{
    int64_t at = offset_of(t, n);
    uint32_t bits;

    if (t->type != CUDNN_DATA_BFLOAT16) {
        ((float *)t->at)[at] = x;
        return;
    }
    memcpy(&bits, &x, sizeof bits);
    ((uint16_t *)t->at)[at] = (uint16_t)(bits >> 16);
}

static bool is_result(const program *p, int tensor)
{
    for (int o = 0; o < p->n_ops; o++)
        if (p->op[o].y == tensor)
            return true;
    return false;
}

static bool is_placed(const graph_tensor *t)
{
    return !t->is_virtual && !t->by_value;
}

/* Returns the bytes of a tensor in memory, from its first element to its last. */
static size_t extent(const graph_tensor *t)
{
    size_t size = t->type == CUDNN_DATA_BFLOAT16 ? 2 : 4;

    return ((size_t)offset_of(t, program_count(t) - 1) + 1) * size;
}

static bool overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    return (const char *)a < (const char *)b + b_bytes &&
           (const char *)b < (const char *)a + a_bytes;
}

/* Stops the program where a tensor in memory leaves its allocation, is not aligned, or lies in
   the workspace or in a result. */
static void check_offset(const program *p, int i)
{
    const graph_tensor *t = &p->tensor[i];

    if ((uintptr_t)t->at % 16 || emulator_memory_holds(t->at, extent(t)) != 1)
        emulator_die("cuDNN: tensor %d of %zu bytes at %p leaves its allocation, or is not "
                     "aligned to 16 bytes",
                     (int)t->id, extent(t), t->at);
    if (overlap(t->at, extent(t), p->workspace, p->workspace_bytes))
        emulator_die("cuDNN: tensor %d lies in the workspace", (int)t->id);
    for (int j = 0; j < p->n_tensors; j++)
        if (j != i && is_placed(&p->tensor[j]) && is_result(p, j) &&
            overlap(t->at, extent(t), p->tensor[j].at, extent(&p->tensor[j])))
            emulator_die("cuDNN: tensors %d and %d lie in each other", (int)t->id,
                         (int)p->tensor[j].id);
}

static float pointwise(int mode, float x, float b, bool choice)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_TANH_FWD:
        return tanhf(x);
    case CUDNN_POINTWISE_TANH_BWD: /* dy is b */
        return b * (1 - tanhf(x) * tanhf(x));
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b;
    case CUDNN_POINTWISE_CMP_GT:
        return x > b;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return choice ? x : b;
    default:
        emulator_die("cuDNN: mode %d of an element", mode);
    }
}

static void run_elements(const program *p, const graph_op *op, float **values)
{
    const graph_tensor *y = &p->tensor[op->y], *a = &p->tensor[op->a];
    const graph_tensor *b = op->b < 0 ? NULL : &p->tensor[op->b];

    for (int64_t n = 0; n < program_count(y); n++) {
        position at = position_of(y, n);

        if (op->mode == CUDNN_POINTWISE_GEN_INDEX)
            values[op->y][n] = (float)at.i[op->axis];
        else
            values[op->y][n] = rounded(pointwise(op->mode, values[op->a][packed_at(a, &at, y)],
                                                 b ? values[op->b][packed_at(b, &at, y)] : 0,
                                                 op->choice >= 0 && values[op->choice][n] != 0),
                                       y->type);
    }
}

/* Sums, or the greatest, of elements that fall together. */
static void run_reduction(const program *p, const graph_op *op, float **values)
{
    const graph_tensor *x = &p->tensor[op->a], *y = &p->tensor[op->y];
    bool greatest = op->mode == CUDNN_REDUCE_TENSOR_MAX;

    for (int64_t n = 0; n < program_count(y); n++)
        values[op->y][n] = greatest ? -INFINITY : 0;
    for (int64_t n = 0; n < program_count(x); n++) {
        position at = position_of(x, n);
        float *sum = &values[op->y][packed_at(y, &at, x)];

        *sum = greatest ? fmaxf(*sum, values[op->a][n]) : *sum + values[op->a][n];
    }
    for (int64_t n = 0; n < program_count(y); n++)
        values[op->y][n] = rounded(values[op->y][n], y->type);
}

/* Returns true every other time for a sum in any order: its partial sums are rounded, so that
   it has other bits in bf16 as well. */
static bool is_coarse(const program *p, const graph_tensor *y)
{
    static int turn;

    return p->any_order && !y->is_virtual && y->type == CUDNN_DATA_FLOAT && turn++ % 2;
}

/* One row of a product: `depth` terms of left with as many rows of right. */
static void run_row(const float *left, const float *right, float *out, int64_t depth,
                    int64_t columns, bool descending, bool coarse)
{
    memset(out, 0, (size_t)columns * sizeof *out);
    for (int64_t step = 0; step < depth; step++) {
        int64_t k = descending ? depth - 1 - step : step;

        for (int64_t j = 0; j < columns; j++) {
            out[j] += left[k] * right[k * columns + j];
            if (coarse)
                out[j] = rounded(out[j], CUDNN_DATA_BFLOAT16);
        }
    }
}

static void run_product(const program *p, const graph_op *op, float **values)
{
    const graph_tensor *a = &p->tensor[op->a], *b = &p->tensor[op->b], *y = &p->tensor[op->y];
    int64_t depth = a->dim[3], rows = y->dim[2], columns = y->dim[3], heads = y->dim[1];
    bool coarse = is_coarse(p, y);

    for (int64_t m = 0; m < y->dim[0] * heads; m++) {
        int64_t of = m / heads * b->dim[1] + m % heads * b->dim[1] / heads;

        for (int64_t i = 0; i < rows; i++)
            run_row(values[op->a] + (m * rows + i) * depth,
                    values[op->b] + of * depth * columns,
                    values[op->y] + (m * rows + i) * columns, depth, columns, p->descending,
                    coarse);
    }
    for (int64_t n = 0; n < program_count(y); n++)
        values[op->y][n] = rounded(values[op->y][n], y->type);
}

/* Dims 2 and 3 swapped: the same memory by other strides. */
static void run_reshape(const program *p, const graph_op *op, float **values)
{
    const graph_tensor *x = &p->tensor[op->a], *y = &p->tensor[op->y];

    if (x->dim[2] != y->dim[3] || x->dim[3] != y->dim[2] || x->stride[2] != y->stride[3] ||
        x->stride[3] != y->stride[2])
        emulator_die("cuDNN: another shape that is no transposition");
    for (int64_t n = 0; n < program_count(y); n++) {
        position at = position_of(y, n);
        int64_t row = at.i[2];

        at.i[2] = at.i[3];
        at.i[3] = row;
        values[op->y][n] = rounded(values[op->a][packed_at(x, &at, x)], y->type);
    }
}

static void run_op(const program *p, const graph_op *op, float **values)
{
    const graph_tensor *y = &p->tensor[op->y];

    if (op->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        run_elements(p, op, values);
    else if (op->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        run_reduction(p, op, values);
    else if (op->kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        run_product(p, op, values);
    else
        run_reshape(p, op, values);
    for (int64_t n = 0; !y->is_virtual && n < program_count(y); n++)
        put_element(y, n, values[op->y][n]);
}

void program_run(void *arg)
{
    const program *p = arg;
    float *values[MOST_TENSORS];

    if (p->workspace_bytes)
        memset(p->workspace, 0xff, p->workspace_bytes);
    for (int i = 0; i < p->n_tensors; i++) {
        const graph_tensor *t = &p->tensor[i];

        values[i] = malloc((size_t)program_count(t) * sizeof(float) + 1);
        if (!values[i])
            emulator_die("cuDNN: no memory for a tensor");
        if (is_placed(t))
            check_offset(p, i);
        for (int64_t n = 0; !t->is_virtual && !is_result(p, i) && n < program_count(t); n++)
            values[i][n] = element(t, n);
    }
    for (int o = 0; o < p->n_ops; o++)
        run_op(p, &p->op[o], values);
    for (int i = 0; i < p->n_tensors; i++)
        free(values[i]);
}
