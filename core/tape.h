/*
 * core/tape.h - autograd, reverse-mode differentiation: a tape, the list of the ops that ran,
 * walked backwards.
 *
 * A leaf is a tensor with requires_grad that no op made: a parameter at one point of use.
 *
 * Gradients of one value are added in the order of its uses in the forward pass, from the last
 * use back to the first, one by one. Neither a border between layouts nor a recomputed module
 * (activation checkpointing) changes that order: uses of a border's result, and uses inside of
 * the module, are uses of the operand. A backward hook sees one sum, so gradients of the uses
 * after it are added before it is called.
 *
 * Gradients with respect to leaves are steps of their own and can be deferred, which is what
 * zero-bubble pipeline schedules need.
 */
#ifndef WF_CORE_TAPE_H
#define WF_CORE_TAPE_H

#include "core/context.h"

WF_BEGIN_DECLS

typedef struct wf_tape wf_tape;
typedef struct wf_gradient wf_gradient;

/** wf_tape_open - opens a tape, which records from now on. Owner: caller. */
WF_API wf_tape *wf_tape_open(wf_context *ctx);

/** wf_tape_close - frees a tape and all it holds; recording stops if it was the current one. */
WF_API void wf_tape_close(wf_tape *tape);

/** wf_tape_switch - makes another tape (or none: NULL) the current one; returns the last. */
WF_API wf_tape *wf_tape_switch(wf_context *ctx, wf_tape *tape);

/** wf_context_recording - returns true while a tape is recording. */
WF_API bool wf_context_recording(const wf_context *ctx);

/**
 * wf_context_recorded_later - says that what runs from now on, while no tape records, is
 * recomputed on one later (activation checkpointing), so that results note whether they want a
 * gradient; returns what was said last, false at first
 */
WF_API bool wf_context_recorded_later(wf_context *ctx, bool later);
/** wf_context_is_recorded_later - returns what was said last. */
WF_API bool wf_context_is_recorded_later(const wf_context *ctx);

/**
 * wf_tape_record - records a call that has run on the current tape, if there is one
 *
 * wf_dispatch does it for every op. This function is for calls that run in another way than by
 * one kernel: a border between layouts, or a module that makes its gradients ahead of time and
 * records an op of its own whose backward hands them out (they are operands that the op saves).
 *
 * It is called without a tape, too: a module that will be recomputed
 * (wf_context_recorded_later) finds out so whether its result wants a gradient.
 *
 * @param call  op, ctx, n_in, in, n_out, out and attr; an op without backward is not recorded
 * Errors:  recorded in the context and returned
 */
WF_API wf_status wf_tape_record(const wf_call *call);

/** wf_leaf - returns an alias of a parameter whose gradient is wanted. Owner: the innermost
 * scope. */
WF_API wf_tensor *wf_leaf(wf_tensor *parameter);

/**
 * wf_source - makes the input of a tape that continues another one: an alias of t whose
 * gradient is wanted as that of an input
 *
 * Its gradient is in source->grad after wf_backward, deferred or not: complete when all its
 * uses have been walked. A pipeline stage sends it back to the stage before, and a recomputed
 * module hands it to the ops before it. A leaf is a parameter's, and its gradient may come
 * later.
 *
 * Shapes:  the tensor's, and so its gradient's; an alias of it, in its layout
 * Owner:   the innermost scope; source->grad is the source's
 * Errors:  WF_ENOMEM in the context; result is then NULL. Where no tape records, it is
 *          wf_detach
 */
WF_API wf_tensor *wf_source(wf_tensor *t);

/**
 * wf_source_of - makes a source on the recording tape for operand i of an op whose gradient
 * recomputes forward (WF_OP_REPLAY)
 *
 * Gradients of its uses go to the op that made the operand, in the order in which all uses of
 * it are added: the op's backward gives none for the operand, and source->grad stays NULL.
 *
 * @param g  the argument of the op's backward; the op saves operand i
 * Owner:    the innermost scope
 * Errors:   WF_ENOMEM in the context; result is then NULL
 */
WF_API wf_tensor *wf_source_of(wf_gradient *g, int i);

/**
 * wf_backward - computes the gradients of `root` (weighted by `seed`) with respect to every
 * tensor on its tape.
 *
 * Leaves have their gradient in leaf->grad afterwards (added to what was there), in memory of
 * its own. The operands of root, and all that was recorded before root, are released: one walk
 * per forward pass. Saved tensors must not be changed in place before (by an optimizer, an
 * initialisation, an op that writes to its operand): where a gradient reads one, that is
 * WF_EINVAL, which names the op and the tensor. A write through tensor->data alone is not
 * detected.
 *
 * @param seed           gradient of root: same shape, the device's type or bf16, in any layout
 *                       that its op takes
 * @param defer_weights  true: leaves get theirs in wf_backward_weights; but those whose op
 *                       reads elements of a leaf to make them, since a parameter may be
 *                       gathered in this walk alone, those that come by the way, and all of a
 *                       leaf that has such among three or more uses
 * Collective:  where borders are on the tape
 * Errors:      recorded in the context and returned
 */
WF_API wf_status wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights);

/** wf_backward_many - computes wf_backward from n tensors, each weighted by its seed, in one
 * walk. n is 1 or more. */
WF_API wf_status wf_backward_many(int n, wf_tensor *const *root, wf_tensor *const *seed,
                                  bool defer_weights);

/** wf_backward_roots - computes wf_backward for the roots alone that the current tape has of
 * its own (WF_OP_ROOT), where nothing else is differentiated. Collective: where borders are on
 * the tape. Errors: recorded in the context and returned. */
WF_API wf_status wf_backward_roots(wf_context *ctx, bool defer_weights);

/** wf_backward_weights - computes the gradients of leaves that wf_backward deferred; the seed
 * stays as it is until then. */
WF_API wf_status wf_backward_weights(wf_tape *tape);

enum { WF_MOST_JOINED = 4 };

/**
 * wf_backward_weights_joined - does that part of wf_backward_weights that several passes can do
 * as one: products over the rows of all of them, whose sum is the node of the tree that their
 * sums would be
 *
 * A leaf of tape[0] that one call has taken, of an op that joins passes (linear), gets the sum
 * in leaf->grad, and the number of passes in leaf->joined; those of the other tapes get
 * nothing. All else is left for wf_backward_weights of each tape, which has to follow, as is
 * all of passes that have not recorded the same calls.
 *
 * @param passes  2 or WF_MOST_JOINED
 * @param tape    [passes], in the order of the sum
 * Errors:        recorded in the context and returned
 */
WF_API wf_status wf_backward_weights_joined(int passes, wf_tape *const *tape);

/** wf_walk - the two walks back over a tape; in a wf_backward that defers nothing they are
 * one. */
typedef enum wf_walk {
    WF_WALK_INPUTS, /* wf_backward */
    WF_WALK_WEIGHTS /* wf_backward_weights */
} wf_walk;

/**
 * wf_tape_hook - registers a function that is called when a walk passes this point of the tape:
 * all that was recorded later has its gradients of that walk then. Nothing happens where no
 * tape records.
 *
 * It is called once, whether gradients flow there or not, and also where the point comes after
 * the tensor that backward starts from. It may run ops; they are not recorded.
 *
 * @param walk    with WF_WALK_INPUTS, gradients of results of ops are there, and the elements
 *                of parameters are not read any more; with WF_WALK_WEIGHTS those of leaves too
 * @param hook    its result ends the walk, unless it is WF_OK
 * Errors:        WF_ENOMEM in the context
 */
WF_API wf_status wf_tape_hook(wf_context *ctx, wf_walk walk, wf_status (*hook)(void *arg),
                              void *arg);

/**
 * wf_tape_adopt - hands over a tape on which an op's backward has recomputed forward and walked
 * back, with wf_backward(.., g->defer)
 *
 * Its deferred gradients are computed, hooks included, when wf_backward_weights passes the op
 * on the tape that the op is on; the inner tape is closed then.
 *
 * @param g      the argument of the op's backward
 * @param inner  no longer the caller's; NULL is allowed
 */
WF_API void wf_tape_adopt(wf_gradient *g, wf_tape *inner);

/**
 * wf_partial_add - adds newer to *older as nodes of one tree of sums: the only sum of partial
 * tensors that exactness allows, for tensors of one layout.
 *
 * @param older  a tensor that the caller retains; replaced by the sum, in the same memory where
 *               no other handle holds it or its data
 * Owner:   caller, as of *older
 * Errors:  WF_ELAYOUT where the two are not alike, WF_ENOMEM; *older is then as it was
 */
WF_API wf_status wf_partial_add(wf_tensor **older, wf_tensor *newer);

/** wf_partial_add_to - adds b to a in a's memory, whatever other handles see it: returns a, or
 * NULL where an operand is NULL or on errors. */
WF_API wf_tensor *wf_partial_add_to(wf_tensor *a, wf_tensor *b);

/**
 * wf_tape_made_by - finds out whether the values of a tensor are results of one of some ops: as
 * they are, copied or moved, or added up where each term is one
 *
 * @param tape    that t was made on, not walked as yet; NULL, or another one: nothing is found
 * @param ops     ended by NULL
 * @param sum     the op that adds two tensors
 * @param module  set to the path of the module that ran the op, where one is found; may be NULL
 * Returns: the op, of a sum that of its first term; NULL: none of these
 */
WF_API const wf_op *wf_tape_made_by(const wf_tape *tape, const wf_tensor *t,
                                    const wf_op *const *ops, const wf_op *sum,
                                    const char **module);

/** wf_detach - returns an alias that gradients do not pass. Owner: the innermost scope. */
WF_API wf_tensor *wf_detach(wf_tensor *t);

WF_END_DECLS

#endif
