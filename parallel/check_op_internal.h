/* parallel/check_op_internal.h - one run of an op that is checked, for parallel/check_op*.c.
   Not installed. */
#ifndef WF_PARALLEL_CHECK_OP_INTERNAL_H
#define WF_PARALLEL_CHECK_OP_INTERNAL_H

#include "core/context.h"
#include "parallel/check_op.h"

/* Outputs first, then gradients of operands. */
enum { WF_CHECK_RESULTS = WF_MAX_OUTPUTS + WF_MAX_INPUTS };

/* Whole results as doubles; NULL where there is none. */
typedef struct wf_op_results {
    double *x[WF_CHECK_RESULTS];
    int64_t n[WF_CHECK_RESULTS];
    int n_outputs; /* number of outputs made before gradients were computed */
} wf_op_results;

/* The way a run is made. */
typedef struct wf_op_run {
    const wf_op_check *check;
    wf_context *ctx;
    bool gradients;
    const wf_layout *layout[WF_MAX_INPUTS]; /* the operands'; NULL: whole */
    /* an element that is moved, for differences; by 0: none is */
    int operand;
    int64_t element;
    double by;
} wf_op_run;

/* Run the op, and keep what it makes; the caller forgets it, whatever is returned. Collective
   where there is a mesh. */
wf_status wf_op_run_once(const wf_op_run *run, wf_op_results *results);
void wf_op_results_forget(wf_op_results *results);

/* The weight of an output's element in the number that is differentiated. */
double wf_op_weight(int output, int64_t index);

/* "output 0", "the gradient of operand 2". */
const char *wf_op_result_name(int result, char text[48]);

/* |a - b| of a result, relative to |b|, or to a tenth of the largest among its fellows: some
   gradients vanish, as that of a query with one key. */
double wf_op_distance(const wf_op_results *a, const wf_op_results *b, int result);

/* Step 3 of wf_check_op; `one` are the results of the CPU on one rank. */
wf_status wf_check_op_layouts(const wf_op_check *check, const wf_op_results *one,
                              wf_op_check_report *report, wf_error *error);

#endif
