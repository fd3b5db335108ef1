/* core/sharing_internal.h - results that one of several ranks computes (core/sharing.h). */
#ifndef WF_CORE_SHARING_INTERNAL_H
#define WF_CORE_SHARING_INTERNAL_H

#include "core/op.h"
#include "core/sharing.h"
#include <pthread.h>

struct wf_result; /* core/shared_results.c */

struct wf_shared {
    wf_sharing *in;
    wf_shared *next; /* in the list of those that members are still to come for */
    uint64_t serial,
        number;        /* no other ever has this serial; its number among common tensors */
    int refs, to_come; /* refs counts members that are still to come, too */
    size_t bytes;
    void *data;
    struct wf_result *results; /* those of calls whose largest shared operand lies here */
};

struct wf_sharing {
    int members;
    bool compute_once;
    pthread_mutex_t lock; /* guards all of this and of what it shares */
    pthread_cond_t computed;
    int waiting;
    wf_pool *pool;
    wf_shared *open; /* those that members are still to come for */
    uint64_t serial;
    int refs; /* the group's, and one for each shared memory in use */
};

/* Makes memory with `parts` parts; NULL: there is none. Called under the lock, as those
   below. */
wf_shared *wf_shared_new(wf_sharing *s, size_t bytes, int parts, wf_error *error);
/* Drops `parts` parts of it, which are not needed any more. */
void wf_shared_drop(wf_shared *shared, int parts);
/* Drops a result that no rank takes any more. */
void wf_result_drop(struct wf_result *r);

/* A rank's part in making a call's outputs. */
typedef enum wf_share_role {
    WF_SHARE_NONE,    /* they are its own business */
    WF_SHARE_COMPUTE, /* compute them in shared memory, for all */
    WF_SHARE_TAKE     /* they are there */
} wf_share_role;

/* A call whose results are shared. */
typedef struct wf_share {
    wf_share_role role;
    int member;
    wf_sharing *sharing;
    struct wf_result *result;
    wf_shared *out[WF_MAX_OUTPUTS]; /* take: this rank's part of them, until a tensor has it */
} wf_share;

/* Finds the role; waits where another member is computing at this moment. Errors are the
   context's. */
wf_share wf_share_begin(const wf_call *call);

/* The memory of output o, this rank's part of it; NULL: there is none, which the context
   says. */
wf_shared *wf_share_output(wf_context *ctx, wf_share *share, int o, size_t bytes);

/* The outputs are computed, or, where not good, will never be: then the others do it
   themselves. */
void wf_share_end(wf_share *share, bool good);

void *wf_shared_data(const wf_shared *shared);

/* core/tensor_shared.c: memory of t's own, with its elements where they are kept. */
wf_status wf_tensor_own(wf_tensor *t, bool keep);

/* core/tensor_shared.c: gives t this other shared memory instead of what it has; t's storage
   has no other user. */
void wf_tensor_renew(wf_tensor *t, wf_shared *shared);

#endif
