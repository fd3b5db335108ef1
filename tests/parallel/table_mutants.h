/* tests/parallel/table_mutants.h - small pipeline tables, and mistakes that can be made in
   them. */
#ifndef WF_TESTS_PARALLEL_TABLE_MUTANTS_H
#define WF_TESTS_PARALLEL_TABLE_MUTANTS_H

#include "parallel/pipeline/schedule.h"

/* A mistake; it may change nothing where a table has nothing of the kind. */
typedef struct mutation {
    const char *name;
    void (*change)(wf_pipe_table *table);
} mutation;

/* All of them; the name after the last one is NULL. */
extern const mutation table_mutations[];

/* A number from 0 to n - 1, by chance. */
int table_chance(int64_t n);
void table_chance_seed(unsigned seed);

/* A table of some schedule for at most 4 ranks, 2 stages of each and 6 micro-batches: of
   compute actions, or lowered somehow, with messages that may be too few. The caller's. */
wf_pipe_table *table_by_chance(void);

/* Returns another table of the same actions, ranks of stages and facts, the caller's; and
   whether two are. */
wf_pipe_table *table_copy(const wf_pipe_table *table);
bool table_same(const wf_pipe_table *a, const wf_pipe_table *b);

#endif
