/*
 * parallel/stages/profile_internal.h - the entries of a profile, how a row is walked to find
 * them, and what a rank's stages report to it. Not installed.
 */
#ifndef WF_PARALLEL_STAGES_PROFILE_INTERNAL_H
#define WF_PARALLEL_STAGES_PROFILE_INTERNAL_H

#include "core/memory/memory.h"
#include "parallel/stages/profile.h"

/* The way gradients of micro-batches are added, which decides how many of them are in
   memory. */
typedef struct wf_par_profile_sums {
    bool exact;
    bool reduced;  /* over ranks in each group of micro-steps */
    int64_t group; /* number of micro-steps in a group */
} wf_par_profile_sums;

/* A row up to an action: what the next one finds. */
typedef struct wf_par_profile_row {
    const wf_pipe_table *table;
    const int *like;
    wf_par_profile_sums sums;
    int rank, stages; /* this rank's */
    int *stage;       /* [stages] their numbers */
    int *of;          /* [stages of the table] the index in `stage`; -1: another rank's */
    struct wf_par_profile_stage *state;
    uint16_t *flag; /* [stages * micro] */
} wf_par_profile_row;

wf_status wf_par_profile_row_open(wf_par_profile_row *row, const wf_pipe_table *table, int rank,
                                  const int *like, wf_par_profile_sums sums, wf_error *error);
void wf_par_profile_row_close(wf_par_profile_row *row);

/* Forget the step: the next action is the row's first. */
void wf_par_profile_row_restart(wf_par_profile_row *row);

/* Returns the key of the actions that are like the row's next one, and does that one. */
uint64_t wf_par_profile_row_key(wf_par_profile_row *row, const wf_pipe_action *action);

/* The same for the bucket that stage number k of the rank finishes after an action; 0: it has
   none under way. */
uint64_t wf_par_profile_row_bucket(wf_par_profile_row *row, int k);

/* Returns the key of the end of a step, after all actions, of the rank that begins with this
   stage. */
static inline uint64_t wf_par_profile_rest_key(int stage)
{
    return (uint64_t)stage << 44 | 1;
}

/* ---- recording: of stages.c and open.c. A NULL profile is nothing ---- */

void wf_par_profile_begin(wf_par_profile *p, const wf_pipe_table *table, int rank,
                          wf_par_profile_sums sums, wf_pool *pool);
void wf_par_profile_before(wf_par_profile *p);
void wf_par_profile_after(wf_par_profile *p, const wf_pipe_action *action);
void wf_par_profile_bucket(wf_par_profile *p, int k);
void wf_par_profile_rest(wf_par_profile *p);
void wf_par_profile_end(wf_par_profile *p);

#endif
