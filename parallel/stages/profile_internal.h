/*
 * parallel/stages/profile_internal.h - the entries of a profile, how a row is walked to find
 * them, and what a rank's stages report to it. Not installed.
 */
#ifndef WF_PARALLEL_STAGES_PROFILE_INTERNAL_H
#define WF_PARALLEL_STAGES_PROFILE_INTERNAL_H

#include "core/context.h"
#include "parallel/stages/profile.h"

/* The way gradients of micro-batches are added, which decides how many of them are in
   memory, and actions are run. */
typedef struct wf_par_profile_sums {
    bool exact;
    bool reduced;  /* over ranks in each group of micro-steps */
    int64_t group; /* number of micro-steps in a group */
    bool beside;   /* two actions that alternate are one entry */
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

/* The kind of two actions that alternate, in a key. */
enum { WF_PAR_PROFILE_BOTH = WF_PIPE_KINDS };

/* Returns how many actions are the row's next entry: 2 that alternate, or 1. */
static inline int wf_par_profile_row_count(const wf_par_profile_row *row,
                                           const wf_pipe_action *action)
{
    return row->sums.beside && wf_pipe_runs_beside(action) ? 2 : 1;
}

/* Returns the key of the actions that are like the row's next ones, and does these. */
uint64_t wf_par_profile_row_key(wf_par_profile_row *row, const wf_pipe_action *action);

/* The same for the bucket that stage number k of the rank finishes after an action; 0: it has
   none under way. */
uint64_t wf_par_profile_row_bucket(wf_par_profile_row *row, int k);

/* Returns the key of the end of a step, after all actions, of the rank that begins with this
   stage. */
static inline uint64_t wf_par_profile_stored_key(int stage)
{
    return (uint64_t)stage << 44 | 1;
}

/* Bytes in use beyond those at a begin, of each kind. */
typedef struct wf_par_profile_bytes {
    int64_t total, kind[WF_MEMORY_KINDS];
} wf_par_profile_bytes;

/* An action's memory: the bytes it adds, its peak, and where; key 0: none. */
typedef struct wf_par_profile_entry {
    uint64_t key;
    wf_par_profile_bytes delta, peak;
    double flops, model_flops;
    char phase[WF_MEMORY_PHASE], module[WF_MEMORY_MODULE]; /* at the peak */
    bool varies; /* another action with this key took other bytes: the larger stand here */
} wf_par_profile_entry;

/* Steps of which a profile keeps entries: the first one, which finds things as they were made,
   and all later ones. */
enum { WF_PAR_PROFILE_STEPS = 2 };

/* The entries of a step: a hash table, never more than half full. */
typedef struct wf_par_profile_table {
    wf_par_profile_entry *at;
    size_t room, n;
} wf_par_profile_table;

/* A rank's memory before each step; `stage` is its first stage. */
typedef struct wf_par_profile_base {
    int stage;
    wf_memory_report before[WF_PAR_PROFILE_STEPS];
} wf_par_profile_base;

struct wf_par_profile {
    wf_par_profile_sums sums;
    wf_par_profile_table of[WF_PAR_PROFILE_STEPS];
    wf_par_profile_base *base; /* [ranks] */
    int ranks;
    int steps;                 /* counted on the last rank */
    double flops, model_flops; /* actions in its last step */
    wf_status failed;
    /* while it is written */
    wf_par_profile_row row;
    wf_context *ctx;
    wf_par_profile_entry now; /* bytes in use since an action began, and their peak */
    double before[2];         /* flops and model_flops at that begin */
    bool resting;
};

/* Returns the entry of a key, or the slot for it; there is room. */
wf_par_profile_entry *wf_par_profile_slot(const wf_par_profile_table *e, uint64_t key);

/* ---- recording: of stages.c and open.c. A NULL profile is nothing ---- */

void wf_par_profile_begin(wf_par_profile *p, const wf_pipe_table *table, int rank,
                          wf_par_profile_sums sums, wf_context *ctx);
void wf_par_profile_before(wf_par_profile *p);
void wf_par_profile_after(wf_par_profile *p, const wf_pipe_action *action);
void wf_par_profile_bucket(wf_par_profile *p, int k);
void wf_par_profile_stored(wf_par_profile *p);
void wf_par_profile_end(wf_par_profile *p);

#endif
