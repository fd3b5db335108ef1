/* apps/gpt_train/rank_parts.h - the part of one rank in --log-digests, --replay and --flip-bit. */
#ifndef WF_APPS_RANK_PARTS_H
#define WF_APPS_RANK_PARTS_H

#include "parallel/recovery/parts_log.h"
#include "apps/options/options.h"
#include <weft/weft.h>

typedef struct rank_parts {
    wf_rank *rank;
    wf_par *par;
    const app_options *options;
    const char *numerics;
    const wf_replay *replay; /* NULL: there is none */
    wf_flip flip;            /* step 0: no bit is turned */
    wf_parts_log log;
    bool unwritten; /* a row of it found no room, which was reported */
} rank_parts;

/* What the ranks of a process share: the files of --replay, and the bit of --flip-bit. */
wf_status rank_parts_read(const app_options *options, const char *numerics, wf_replay **replay,
                          wf_flip *flip, wf_error *error);

/* The last step of the loop: a replay ends with what was logged, or before. */
int64_t rank_parts_last(const rank_parts *p);

/* Opens the log, and changes nothing in it. Errors: in the context. */
wf_status rank_parts_open(rank_parts *p);

/* Refuses rows of another run where this one does not go on. Errors: in the context. */
wf_status rank_parts_begin(rank_parts *p, bool continues);

/* After a step: the bit is turned; what the rank holds is written down, or is what it was in the run whose
   step this is. Collective. Errors: in the context. */
wf_status rank_parts_step(rank_parts *p, wf_par_trainer *trainer, int64_t step);

/* Rank 0 says what was made again, after steps `first` to `last`. Errors: in the context, if there were none. */
wf_status rank_parts_tell(const rank_parts *p, int64_t first, int64_t last);

void rank_parts_close(rank_parts *p);

#endif
