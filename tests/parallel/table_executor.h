/*
 * tests/parallel/table_executor.h - a pipeline table executed, not proved: ranks do what their rows say, with
 * numbers in place of tensors and a queue from each rank to each other one.
 */
#ifndef WF_TESTS_PARALLEL_TABLE_EXECUTOR_H
#define WF_TESTS_PARALLEL_TABLE_EXECUTOR_H

#include "parallel/pipeline/schedule.h"

typedef enum execution { ENDS_RIGHT, GOES_WRONG, STANDS_STILL } execution;

/* Executes a lowered table of at most 4 ranks, 8 stages and 6 micro-batches, whichever rank can go on next
   by chance. ENDS_RIGHT: each stage has the gradient that one rank alone would have, and every message
   has ended; GOES_WRONG: an action cannot be done, or the end is another one; STANDS_STILL: nobody can
   go on. */
execution execute_table(const wf_pipe_table *table, unsigned seed);

#endif
