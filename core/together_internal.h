/* core/together_internal.h - calls that wait (core/together.h), as run_kernel.c fills them in.
   Not installed. */
#ifndef WF_CORE_TOGETHER_INTERNAL_H
#define WF_CORE_TOGETHER_INTERNAL_H

#include "core/op.h"
#include "core/trace.h"

/* Takes a call that is complete but for its kernel, and true: it runs later. Whatever else is
   to run comes after those that wait, which are run then; *status is theirs. */
bool wf_together_take(const wf_call *call, const wf_kernel *kernel, bool may_wait,
                      wf_status *status);

/* Appends the event of n calls of an op that one launch has run, since a mark; waits for them
   where the trace does. WF_EDEVICE: they failed. */
wf_status wf_trace_calls(const wf_call *call, int n, wf_trace_mark begun);

#endif
