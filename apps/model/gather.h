/* apps/model/gather.h - what ranks of several processes have comes to the one that prints. */
#ifndef WF_APPS_MODEL_GATHER_H
#define WF_APPS_MODEL_GATHER_H

#include <weft/weft.h>

/* What a rank has handed over, in the order of ranks; called by rank 0. Failures go to the context of par. */
typedef void app_gather_take(void *arg, wf_par *par, int from, const char *data, size_t bytes);

/*
 * Bytes of every rank, of any number, to rank 0, a slab of each at a time. Collective over the world. Errors: those of
 * communication, WF_ENOMEM, in the context.
 */
wf_status app_gather(wf_rank *rank, wf_par *par, const void *mine, size_t bytes,
                     app_gather_take *take, void *arg);

/* Whether the world has several processes, so that there is something to hand over; whether rank 0 is in another one
   than this rank, and what this rank has goes there. */
bool app_gather_needed(const wf_rank *rank);
bool app_gather_from(const wf_rank *rank);

#endif
