/* core/handles_internal.h - what a context keeps of tensors that have ended, for core alone. */
#ifndef WF_CORE_HANDLES_INTERNAL_H
#define WF_CORE_HANDLES_INTERNAL_H

#include "core/handles.h"
#include "core/op.h"
#include <limits.h>

typedef struct wf_handles wf_handles;

/* The references of a tensor that has ended. */
enum { WF_ENDED = INT_MIN / 2 };

/* Turn the mode on where environment, options or build ask for it; WF_EINVAL: WEFT_DEBUG has another word. */
wf_status wf_handles_open(wf_context *ctx, wf_error *error);
void wf_handles_close(wf_context *ctx);

/* Keep a tensor's description, in place of giving it back. */
void wf_handle_end(wf_tensor *t);

/* A scope opens, in the function that `caller` is in; it closes. */
void wf_handles_scope(wf_context *ctx, const void *caller);
void wf_handles_scope_closes(wf_context *ctx);
void wf_handles_scope_closed(wf_context *ctx);

/* Whether a kernel has written to its outputs alone. */
wf_status wf_handles_look(const wf_call *call);

#endif
