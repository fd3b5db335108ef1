/*
 * tests/mesh/rule_trial.h - one row of ops.def on trial, and what is known of rows: for
 * test_rule.c alone.
 */
#ifndef WF_TESTS_MESH_RULE_TRIAL_H
#define WF_TESTS_MESH_RULE_TRIAL_H

#include "tests/mesh/op_operands.h"

enum {
    TOKENS = 26, /* the one letter of "..." where there is a 'b', after 'z' */
    MANY = 4,    /* operands: of more, not every combination is tried */
    /* operands: of more, none is; experts with adapters, whose letters are those of experts,
       are compared whole by tests of expert parallelism */
    MOST = 8
};

typedef struct trial {
    wf_rank *rank;
    wf_mesh *mesh;
    const wf_op *op;
    int n_in, n_out;
    wf_signature sig; /* the whole operands' */
    op_operand operand[WF_MAX_INPUTS];
    wf_tensor *option[WF_MAX_INPUTS][MAX_LAYOUTS];
    int n_options[WF_MAX_INPUTS];
    wf_tensor *want[WF_MAX_OUTPUTS];
    op_attr attr;
    bool heads; /* after the tokens of "..." */
    int64_t accepted, refused, unclaimed, reported_inexact;
    uint64_t reported; /* a hash of this rank's reports */
} trial;

/* Returns one of two ops of an application, 0 and 1. */
const wf_op *trial_op(int i);

/* Splits after which a kernel would look for what another rank has: it is not run. */
bool reads_beyond(const trial *t, const wf_call *call, uint32_t split);

/* The letters that a combination splits along the first axis; false where one letter is split
   here and whole there, or an operand is partial. */
bool splits(const trial *t, const wf_call *call, uint32_t *split);

/* Returns true where the list, or the order of axes, or their sizes, allow the context's
   report. */
bool may_be_inexact(const trial *t, const wf_call *call);

/* Exactly, a function of sums is no sum of the function's results, but where it copies the last
   operand; without, sums may be added to sums. */
bool may_be_partial(const trial *t, const wf_call *call);

/* Members of a group that are split differently would be right, but the gradient of what they
   share would not: its sum is over the letters of all outputs that the first operand lacks. */
bool splits_members(const trial *t, uint32_t split);

/* Returns true where a split of one letter is on the list of those that would be right and that
   no row claims. */
bool is_unclaimed(const trial *t, uint32_t split);

/* Checks that rows on lists have needed them, once all combinations are tried. */
wf_status check_lists(trial *t);

#endif
