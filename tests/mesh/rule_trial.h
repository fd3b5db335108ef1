/*
 * tests/mesh/rule_trial.h - one row of ops.def on trial, and the lists of what is known of rows: for
 * test_rule.c alone.
 */
#ifndef WF_TESTS_MESH_RULE_TRIAL_H
#define WF_TESTS_MESH_RULE_TRIAL_H

#include "tests/mesh/op_operands.h"

enum {
    TOKENS = 26, /* the one letter that "..." stands for where there is a 'b', after 'z' */
    MANY = 4     /* operands: of more, not every combination is tried */
};

typedef struct trial {
    wf_rank *rank;
    wf_mesh *mesh;
    const wf_op *op;
    int n_in, n_out;
    wf_signature sig; /* of the whole operands */
    op_operand operand[WF_MAX_INPUTS];
    wf_tensor *option[WF_MAX_INPUTS][MAX_LAYOUTS];
    int n_options[WF_MAX_INPUTS];
    wf_tensor *want[WF_MAX_OUTPUTS];
    op_attr attr;
    bool heads; /* behind the tokens of "..." */
    int64_t accepted, refused, unclaimed, told_inexact;
    uint64_t told; /* what this rank was told, in one number */
} trial;

/* Splits of a letter that would be right and that no row claims. */
static const struct {
    const char *op;
    char letter;
    const char *why;
} unclaimed[] = {
    {"layernorm_dw", 'd',
     "the norm's own width was whole, and so is all that its gradients read"},
    {"rmsnorm_dw", 'd', "alike"},
    {NULL, 0, NULL},
};

/*
 * Sums that 2, 4 or 8 ranks of one axis may tell to be other than those of one rank: of these ops,
 * where one of these operand dims is split. Weights' gradients have a chunk for each sequence, and not
 * for pieces of one; a sum over tokens and heads has its chunks where the heads are.
 */
static const struct {
    const char *op;
    int operand, dim;
    bool heads; /* only where there are heads behind the tokens */
} inexact[] = {
    {"linear_dw", 0, 1, false},   {"linear_dw", 0, 2, true},    {"embedding_dw", 1, 1, false},
    {"embedding_dw", 1, 2, true}, {"bias_grad", 0, 1, true},    {"bias_gelu_grad", 0, 1, true},
    {"token_sum", 0, 1, true},    {"layernorm_dw", 0, 1, true}, {"rmsnorm_dw", 0, 1, true},
    {NULL, 0, 0, false},
};

#endif
