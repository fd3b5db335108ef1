/* parallel/recovery/snapshot_internal.h - the shards that are kept. Not installed. */
#ifndef WF_PARALLEL_RECOVERY_SNAPSHOT_INTERNAL_H
#define WF_PARALLEL_RECOVERY_SNAPSHOT_INTERNAL_H

#include "core/files/part_internal.h"
#include "parallel/recovery/snapshot.h"
#include "parallel/shard/buddy_internal.h"
#include "parallel/train/train_internal.h"
#include <pthread.h>
#include <stdatomic.h>

/* The progress of a shard, of a rank whose next step failed. */
typedef enum kept_state {
    KEPT_SETTLED, /* as it is after its step */
    KEPT_PENDING, /* the gradient of the next step is there as well */
    /* the next step changes nothing of it: no module has used it, or it is frozen */
    KEPT_UNTOUCHED
} kept_state;

/* Elements of a parameter and its moments, as f32. */
typedef struct wf_kept {
    char *path;
    wf_part part;
    int64_t step; /* steps that are done */
    kept_state state;
    float *data[WF_PAR_BUDDY_KINDS]; /* value, moments, gradient; NULL: none */
} wf_kept;

struct wf_par_snapshot {
    pthread_mutex_t lock;
    bool sealed, failed; /* failed: memory did not suffice, and something is missing */
    int ranks;
    int64_t count, room, bytes;
    wf_kept *kept;         /* [count]; sorted by path when it is sealed */
    wf_par_committed last; /* the last update that any rank has made */
    /* the next shard to be looked at by ranks that finish updates */
    _Atomic int64_t next_pending;
};

/* Take a shard over, of one that is not sealed; false: there is no memory, and it is the
   caller's still. */
bool wf_par_snapshot_append(wf_par_snapshot *snapshot, const wf_kept *kept);

/* Put shards in the order in which they are found. */
void wf_par_snapshot_sort(wf_par_snapshot *snapshot);

/* Returns the first shard of a path, in sorted order; count where there is none. */
int64_t wf_par_snapshot_first(const wf_par_snapshot *snapshot, const char *path);

/* Returns true where a shard is as it is after the snapshot's last update. */
bool wf_kept_is_last(const wf_par_snapshot *snapshot, const wf_kept *kept);

/* Free what it has. */
void wf_kept_clear(wf_kept *kept);

/* Parts of a tensor that have not been found. Owner: caller, free(part). */
typedef struct wf_missing {
    int64_t n, room;
    wf_part *part;
} wf_missing;

/* One more part is missing; false: there is no memory. */
bool wf_missing_add(wf_missing *missing, const wf_part *part);

/* `found` is there. *wanted: some of it was missing. False: there is no memory. */
bool wf_missing_found(wf_missing *missing, const wf_part *found, bool *wanted);

/*
 * Bring what ranks of this process need, and other processes have, to its snapshot: once the
 * last update is that of all shards. Nothing where all ranks are in one process. Collective
 * over the world. Errors: in `error`, of this rank alone, or in the context
 */
wf_status wf_par_snapshot_exchange(wf_par_snapshot *snapshot, wf_par_trainer *trainer,
                                   wf_error *error);

#endif
