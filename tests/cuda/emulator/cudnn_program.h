/*
 * tests/cuda/emulator/cudnn_program.h - a graph of operations as a plan of the emulated cuDNN
 * keeps it: cudnn.c makes it of descriptors, cudnn_program.c runs it.
 */
#ifndef WF_TESTS_EMULATOR_CUDNN_PROGRAM_H
#define WF_TESTS_EMULATOR_CUDNN_PROGRAM_H

#include "cudnn.h"
#include <stdbool.h>

enum { MOST_TENSORS = 64, MOST_OPS = 48, DIMS = 4 };

typedef struct graph_tensor {
    int64_t id, dim[DIMS], stride[DIMS];
    cudnnDataType_t type;
    bool is_virtual, by_value;
    void *at;       /* memory, if it has some */
    uint32_t value; /* bits, if it is by value */
} graph_tensor;

/* Operands are indices of tensors, -1: none. */
typedef struct graph_op {
    cudnnBackendDescriptorType_t kind;
    int mode; /* elements and reductions have one */
    int axis, a, b, choice, y;
} graph_op;

typedef struct program {
    int n_tensors, n_ops;
    graph_tensor tensor[MOST_TENSORS];
    graph_op op[MOST_OPS];
    bool descending; /* sums of products go from the last term to the first */
    bool any_order;  /* sums of floats in memory are in another order every time */
    char *workspace;
    size_t workspace_bytes;
} program;

int64_t program_count(const graph_tensor *t);

/* Work of a stream: arg is a program whose tensors have their places. */
void program_run(void *arg);

#endif
