/*
 * core/handles_internal.h - a mode that finds uses of tensors after their scope has closed, and
 * kernels that write outside of their outputs: WEFT_DEBUG=handles in the environment,
 * wf_context_options.debug_handles, or a build with -DWEFT_DEBUG_HANDLES=ON. Without it every
 * use of a handle costs a comparison at most.
 *
 * In the mode the description of a tensor without holders is kept with its end, and its
 * memory is filled with NaNs and reused late: a function that is given such a handle fails with
 * WF_EINVAL and names the scope that closed. Memory of outputs has zones around it that are
 * looked at after each kernel. Of the last 65,536 tensors that ended the end is known.
 */
#ifndef WF_CORE_HANDLES_INTERNAL_H
#define WF_CORE_HANDLES_INTERNAL_H

#include "core/op.h"
#include <limits.h>

typedef struct wf_handles wf_handles;

/* The references of a tensor that has ended. */
enum { WF_ENDED = INT_MIN / 2 };

/* Note that a scope opens, in the function that `caller` is in, and that it closes. */
void wf_handles_scope(wf_context *ctx, const void *caller);
void wf_handles_scope_closes(wf_context *ctx);
void wf_handles_scope_closed(wf_context *ctx);

/* The open scopes of a call that another one runs beside (core/beside.c). */
typedef struct wf_scopes_seen {
    struct wf_scope_seen *open;
    int n, capacity;
} wf_scopes_seen;

/* Swap the open scopes for those of the other call; free those of one that has ended. */
void wf_handles_swap(wf_context *ctx, wf_scopes_seen *other);
void wf_handles_swapped(wf_scopes_seen *other);

/* Checks that a kernel has written to its outputs alone. */
wf_status wf_handles_look(const wf_call *call);

#endif
