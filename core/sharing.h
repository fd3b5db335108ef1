/*
 * core/sharing.h - tensors that are alike on several ranks of one process: their memory exists
 * once, and results of them alone are computed once.
 *
 * A redistribution that leaves a tensor whole on all members of a group puts it in memory that
 * all of them share (wf_sharing_take, wf_tensor_shared). An op whose operands are such tensors,
 * or small ones with the same elements, has the same results on every member: the first member
 * computes them, in shared memory too, and the others take them (core/sharing_internal.h). A
 * member waits only for one that has begun the call, so one that never makes it, or makes it
 * with other operands, disturbs no other.
 *
 * Every rank counts shared memory as its own, as a plan does. A member that writes to a tensor
 * in place gets memory of its own first.
 */
#ifndef WF_CORE_SHARING_H
#define WF_CORE_SHARING_H

#include "core/memory/memory.h"
#include "core/shape.h"

WF_BEGIN_DECLS

typedef struct wf_sharing wf_sharing; /* state that the members of a group share */
typedef struct wf_shared wf_shared;   /* memory that they share */

/**
 * wf_sharing_open - opens the sharing of a group of ranks that are threads of this process
 *
 * @param compute_once  ops on shared tensors are computed once: for ranks that share cores. A
 *                      rank with a core for itself has its result as soon as the first has it.
 * Owner:   caller; wf_sharing_close, when the members' contexts are closed
 * Errors:  NULL where there is no memory
 */
WF_API wf_sharing *wf_sharing_open(int members, bool compute_once);
WF_API void wf_sharing_close(wf_sharing *sharing); /* NULL is allowed */

/**
 * wf_sharing_take - takes the memory of the members' common tensor of this number
 *
 * The first member makes it, and each takes it once. No member waits here: the collective that
 * fills the memory says when its elements are there.
 *
 * @param number  counted by each member, from the same number on
 * @param shared  filled: this member's part of it, for wf_tensor_shared or wf_shared_release;
 *                NULL where another member asked for another size
 * Errors:  WF_ENOMEM
 */
WF_API wf_status wf_sharing_take(wf_sharing *sharing, uint64_t number, size_t bytes,
                                 wf_shared **shared, wf_error *error);
WF_API void wf_shared_release(wf_shared *shared); /* NULL is allowed */

/**
 * wf_tensor_shared - makes a tensor like `like` in another layout, over shared memory of its
 * size
 *
 * @param shared  taken over, also where this fails
 * @param member  this rank's number in the group
 * Owner:   the innermost open scope; counted as `kind`, as if the memory were this rank's
 * Errors:  WF_ESHAPE, WF_ENOMEM; result is then NULL
 */
WF_API wf_tensor *wf_tensor_shared(const wf_tensor *like, const wf_layout *layout,
                                   wf_memory_kind kind, wf_shared *shared, int member);

/** wf_tensor_is_shared - returns true where other ranks may see its memory. */
WF_API bool wf_tensor_is_shared(const wf_tensor *t);

WF_END_DECLS

#endif
