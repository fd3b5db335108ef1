/* parallel/recovery/snapshot_internal.h - the shards that are kept. Not installed. */
#ifndef WF_PARALLEL_RECOVERY_SNAPSHOT_INTERNAL_H
#define WF_PARALLEL_RECOVERY_SNAPSHOT_INTERNAL_H

#include "parallel/files/part_internal.h"
#include "parallel/recovery/snapshot.h"
#include "parallel/shard/buddy_internal.h"
#include "parallel/train/train_internal.h"
#include <pthread.h>
#include <stdatomic.h>

/* How far a shard is, of a rank whose next step failed. */
typedef enum kept_state {
    KEPT_SETTLED, /* as it is after its step */
    KEPT_PENDING, /* the gradient of the next step is there as well */
    KEPT_UNTOUCHED /* the next step changes nothing of it: no module has used it, or it is frozen */
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
    _Atomic int64_t
        next_pending; /* the next shard to be looked at by ranks that finish updates */
};

#endif
