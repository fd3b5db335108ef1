/*
 * parallel/stages/profile.h - unit profiles: the memory that each kind of action adds on a rank
 * and takes at most while it runs, recorded in a plan of a few micro-batches, and added up as
 * integers for any table.
 *
 *     profile = wf_par_profile_new();
 *     train.profile = profile;   // beside train.pipeline, in a plan
 *     .. two steps, or one ..
 *     wf_par_profile_replay(profile, table, rank, NULL, &memory, &error);
 *
 * Two actions are alike where the same is done to the same: kind and stage, how many
 * micro-batches it joins, how many sums over micro-steps it completes, whether it is the first
 * of its kind in the step, which messages and neighbours still hold the memory that it frees.
 * An action of which the profile has none alike is counted, and then the result is an estimate.
 */
#ifndef WF_PARALLEL_STAGES_PROFILE_H
#define WF_PARALLEL_STAGES_PROFILE_H

#include "core/memory/memory.h"
#include "parallel/pipeline/schedule.h"

WF_BEGIN_DECLS

/** wf_par_profile - the profile of a rank, written by its trainer, or of several, one after the
 * other, that have different stages: rows may then have any of these, and the memory of ranks
 * of several stages outside of actions is a sum, an estimate. */
typedef struct wf_par_profile wf_par_profile;

/** wf_par_profile_new - makes an empty profile; NULL where there is no memory. Owner: caller,
 * wf_par_profile_free */
WF_API wf_par_profile *wf_par_profile_new(void);
WF_API void wf_par_profile_free(wf_par_profile *profile);

/** wf_par_profile_entries - returns the number of kinds of actions that are known. */
WF_API int64_t wf_par_profile_entries(const wf_par_profile *profile);

/** wf_par_profile_memory - the result of replaying a row. */
typedef struct wf_par_profile_memory {
    size_t peak;    /* bytes, as a plan of as many steps says them, two at most */
    int64_t action; /* index in the row; -1: before or after all of them */
    /* actions of which the profile has none alike, and such whose like took now this and now
       that: both 0 where the peak is exact */
    int64_t unknown, varied;
    size_t at_peak[WF_MEMORY_KINDS]; /* by kind */
    /* then; the module is the profile's (wf_memory_report) */
    char phase[WF_MEMORY_PHASE], module[WF_MEMORY_MODULE];
    /* operations of the row's actions beyond those of the profile's last row, in its last
       step */
    double flops, model_flops;
} wf_par_profile_memory;

/**
 * wf_par_profile_replay - computes the peak of a rank's row: a sum of integers for each action
 *
 * @param table   lowered; its sizes need not be those of the profile's
 * @param like    [stages] the stage of the profile that each one is like; NULL: of the same
 *                number
 * @param memory  filled in
 * Collective:    no
 * Errors:        WF_EINVAL: the profile is empty, or the table is not lowered; WF_ENOMEM
 */
WF_API wf_status wf_par_profile_replay(const wf_par_profile *profile,
                                       const wf_pipe_table *table, int rank, const int *like,
                                       wf_par_profile_memory *memory, wf_error *error);

WF_END_DECLS

#endif
