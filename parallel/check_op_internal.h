/* parallel/check_op_internal.h - one run of an op that is checked, for parallel/check_op*.c.
   Not installed. */
#ifndef WF_PARALLEL_CHECK_OP_INTERNAL_H
#define WF_PARALLEL_CHECK_OP_INTERNAL_H

#include "core/context.h"
#include "core/tape.h"
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
    int numbers;       /* selects the random numbers of the operands */
    unsigned bf16;     /* bit i: operand i has numbers that bf16 holds */
    bool stored;       /* the operands of bf16 are stored so, and the outputs */
    bool some_outputs; /* an operand that no output depends on has zeros for a gradient */
    bool deferred;     /* one of several passes, whose gradient of `operand` comes later */
} wf_op_run;

/* Run the op, and keep what it makes; the caller forgets it, whatever is returned. Collective
   where there is a mesh. */
wf_status wf_op_run_once(const wf_op_run *run, wf_op_results *results);
void wf_op_results_forget(wf_op_results *results);

/* Runs the op, and leaves the gradient of run->operand, *leaf, to wf_backward_weights. Returns
   the tape, which the caller closes. */
wf_tape *wf_op_pass(const wf_op_run *run, wf_tensor **leaf);

/* Applies the op; WF_EINVAL in the context where it is not called, or does not recompute its
   output. */
wf_status wf_op_apply(const wf_op_run *run, wf_tensor *const *in, wf_tensor **out);

/* The weight of an output's element in the number that is differentiated. */
double wf_op_weight(int output, int64_t index);

/* "output 0", "the gradient of operand 2". */
const char *wf_op_result_name(int result, char text[48]);

/* |a - b| of a result, relative to |b|, or to a tenth of the largest among its fellows: some
   gradients vanish, as that of a query with one key. */
double wf_op_distance(const wf_op_results *a, const wf_op_results *b, int result);

/* A question about a distance of NaN, else `usual`. */
const char *wf_op_doubt(double distance, const char *usual);

/* Adds a line to the notes of a report. */
void wf_op_note(wf_op_check_report *report, const char *format, ...) WF_PRINTF(2, 3);

/* Compares results with those of the reference loop, and puts the largest distance into
   `most`; `where` is the end of the sentence on results that are further away than `bound`. */
wf_status wf_op_near(const wf_op_check *check, const wf_op_results *results,
                     const wf_op_results *reference, double bound, const char *where,
                     double *most, wf_error *error);

/* Runs once on a device, which is NULL after an error, and copies the error of its context. */
wf_status wf_op_run_on(wf_device *device, const wf_op_run *run, wf_op_results *results,
                       wf_error *error);

/* Runs once by the reference loops, and compares the gradients with differences; bound,
   distance and error as of wf_check_op. `results`: gets those of the run; NULL: not wanted */
wf_status wf_op_differentiate(const wf_op_run *run, wf_op_results *results,
                              wf_op_check_report *report, wf_error *error);

/* The parts of steps 1 and 2 in which less is asked for, or other numbers. `reference`: the
   results of the reference loops. */
wf_status wf_check_op_parts(const wf_op_check *check, const wf_op_results *reference,
                            wf_op_check_report *report, wf_error *error);

/* The part of step 2 that compares the op's backward_joined with backward of each pass. */
wf_status wf_check_op_joined(const wf_op_check *check, wf_error *error);

/* Step 3 of wf_check_op; `one` are the results of the CPU on one rank. */
wf_status wf_check_op_layouts(const wf_op_check *check, const wf_op_results *one,
                              wf_op_check_report *report, wf_error *error);

#endif
