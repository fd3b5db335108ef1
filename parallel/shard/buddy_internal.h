/*
 * parallel/shard/buddy_internal.h - redundancy of what is sharded: each rank also keeps the
 * shard of the rank before it on the axis that shards, its buddy's: values, moments, everything
 * that would be lost with that rank. Not installed.
 *
 * Moments are never sent. A buddy receives the reduced gradient of the shard that it copies, 4
 * bytes a parameter of it, and runs the same update; an update is element by element, so the
 * copy has the bits of the original (after Gemini, Wang et al. 2023, which sends all state to a
 * peer's memory instead of recomputing it).
 *
 * The rank before is the one whose process is another one, for all ranks, where there is such a
 * distance: a host that is lost takes no shard and its copy along.
 *
 * What other data-parallel ranks hold anyway (DDP, HSDP) has no buddies.
 */
#ifndef WF_PARALLEL_SHARD_BUDDY_INTERNAL_H
#define WF_PARALLEL_SHARD_BUDDY_INTERNAL_H

#include "nn/optim/optimizer.h"
#include "parallel/parallel_internal.h"

typedef struct wf_par_buddies wf_par_buddies;

/* The kinds of state of a parameter: its value, what an optimizer keeps of it, and between
   reduction and update its gradient. */
enum { WF_PAR_BUDDY_GRADIENT = 1 + WF_NN_KEPT, WF_PAR_BUDDY_KINDS };

/* A copied shard: of parameter i elements [start, start + local) of each dim, as tensors of
   that shape alone. */
typedef struct wf_par_buddy {
    int64_t i;
    int axis; /* over which it came */
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];
    wf_tensor *tensor[WF_PAR_BUDDY_KINDS]; /* NULL: there is none */
} wf_par_buddy;

/*
 * Memory for the copies, without values yet. Collective over the world. Owner: caller,
 * wf_par_buddies_close (NULL is allowed). Errors: in the context, NULL then: WF_EUNSUPPORTED
 * where an update has to be made as a whole (Muon, zero1)
 */
wf_par_buddies *wf_par_buddies_open(wf_par *par, wf_nn_optimizer *optimizer, int64_t count,
                                    wf_nn_parameter *const *parameter);
void wf_par_buddies_close(wf_par_buddies *buddies);

/* Values and moments of the rank before, as they are. Collective over the axes that shard. */
wf_status wf_par_buddies_fill(wf_par_buddies *buddies);

/* The reduced gradients of the rank before. Collective over the axes that shard. */
wf_status wf_par_buddies_gradients(wf_par_buddies *buddies, wf_tensor *const *grad);

/* The update that wf_nn_optimizer_begin has begun, of the copies; their gradients are gone
   then. */
wf_status wf_par_buddies_update(wf_par_buddies *buddies);

/* Forget the gradients of a step that failed. */
void wf_par_buddies_drop(wf_par_buddies *buddies);

/* A tensor of a shard's shape alone, of `local` elements of each dim of a parameter's; contents
   undefined. Owner: the innermost open scope. */
wf_tensor *wf_par_shard_tensor(const wf_tensor *whole, const int64_t *local, wf_dtype dtype,
                               wf_memory_kind kind);

/* Returns true where a moment's rows are cut, whose blocks of 8 bits an update of a shard would
   need whole. */
bool wf_par_shard_cuts_blocks(const wf_tensor *moment);

/* `bytes` bytes from each rank to its buddy on an axis. Collective over it. */
wf_status wf_par_buddies_pass(wf_par_buddies *buddies, int axis, const void *mine, void *before,
                              size_t bytes);

/* The world's number of the rank before, on an axis. */
int wf_par_buddies_before(const wf_par_buddies *buddies, int axis);

/* The copies that this rank has. */
const wf_par_buddy *wf_par_buddies_list(const wf_par_buddies *buddies, int64_t *n);

#endif
