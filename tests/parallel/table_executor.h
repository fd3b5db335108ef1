/*
 * tests/parallel/table_executor.h - a pipeline table executed, not proved: ranks do what their
 * rows say, with numbers instead of tensors and a queue from each rank to each other one. It
 * knows schedule.h alone.
 */
#ifndef WF_TESTS_PARALLEL_TABLE_EXECUTOR_H
#define WF_TESTS_PARALLEL_TABLE_EXECUTOR_H

#include "parallel/pipeline/schedule.h"

enum { EXECUTOR_RANKS = 4, EXECUTOR_STAGES = 8, EXECUTOR_MICRO = 40 };

/* ENDS_RIGHT: each stage has the gradients, or in a lowered table is updated by them, as one
   rank alone would, and every message and gather has ended. GOES_WRONG: an action cannot be
   done, or the end is another one. STANDS_STILL: no rank can continue. */
typedef enum ending { ENDS_RIGHT, GOES_WRONG, STANDS_STILL } ending;

typedef struct execution {
    ending ending;
    int64_t messages; /* begun in all */
    int in_flight;    /* most from one rank to another that were begun and not ended */
    int peak;         /* most (stage, micro-batch) of a rank that were forward without W */
} execution;

/* Executes a table of at most EXECUTOR_RANKS ranks and so on. It does one action at a time, of
   a rank that the seed chooses. A send ends when it has been received. */
execution execute_table(const wf_pipe_table *table, unsigned seed);

#endif
