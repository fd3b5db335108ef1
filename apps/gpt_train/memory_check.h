/* apps/gpt_train/memory_check.h - whether a run fits, before it takes anything. */
#ifndef WF_APPS_MEMORY_CHECK_H
#define WF_APPS_MEMORY_CHECK_H

#include "apps/options/options.h"
#include <weft/weft.h>

/*
 * Compare what the plan says of all ranks of this process, and what they take beside tensors, with
 * the limits of parallel/report/memory_limits.h.
 * Nothing is looked at on a GPU, whose memory is not the process's, and under --memory-check off.
 * Errors:  WF_ENOMEM, with the limit, the need and what to change. What cannot be planned is left to
 *          the run to tell
 */
wf_status app_memory_check(const app_options *options, const wf_launcher *launcher,
                           wf_error *error);

#endif
