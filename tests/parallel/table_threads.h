/*
 * tests/parallel/table_threads.h - a lowered pipeline table executed by threads: every rank is
 * one, with a machine of its own (table_executor.h), and the messages go over the transport
 * that training has.
 */
#ifndef WF_TESTS_PARALLEL_TABLE_THREADS_H
#define WF_TESTS_PARALLEL_TABLE_THREADS_H

#include "tests/parallel/table_executor.h"

/* STANDS_STILL: the transport says that there is a deadlock, or a rank has ended for which
   another waits. `text` gets what it or a rank says. */
ending execute_on_threads(const wf_pipe_table *table, char *text, size_t size);

#endif
