/* core/trace_calls_internal.h - the event of a launch in a trace. Not installed. */
#ifndef WF_CORE_TRACE_CALLS_INTERNAL_H
#define WF_CORE_TRACE_CALLS_INTERNAL_H

#include "core/op.h"
#include "core/trace.h"

/* Appends the event of n calls of an op that one launch has run, since a mark; waits for them
   where the trace does. WF_EDEVICE: they failed. */
wf_status wf_trace_calls(const wf_call *call, int n, wf_trace_mark begun);

#endif
