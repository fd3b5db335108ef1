/* parallel/recovery/elastic_internal.h - what ranks note in the state that launches share. */
#ifndef WF_PARALLEL_RECOVERY_ELASTIC_INTERNAL_H
#define WF_PARALLEL_RECOVERY_ELASTIC_INTERNAL_H

#include "parallel/recovery/elastic.h"

/* A rank has a state to leave from now on, and no longer: where it does not return, it is left
   for it. */
void wf_elastic_hold(wf_elastic *elastic, wf_par_trainer *trainer);
void wf_elastic_release(wf_elastic *elastic, wf_par_trainer *trainer);

/* Returns seconds since ranks were lost; 0: none were. made: set to the last step that any rank
   here has made. */
double wf_elastic_ago(wf_elastic *elastic, int64_t *made);

/* Notes that a rank continues after this step. Returns seconds since ranks were lost, which the
   first rank ends the count of. */
double wf_elastic_began(wf_elastic *elastic, int64_t step, bool first);

/* Notes that the state that ranks left is not restored, since it has gaps or a checkpoint is
   newer. A rank of each process calls it, where another launch follows (`again`) or before this
   one continues. */
void wf_elastic_give_up(wf_elastic *elastic, bool restarts);

/* Notes that all ranks have ended. */
void wf_elastic_ended(wf_elastic *elastic);

#endif
