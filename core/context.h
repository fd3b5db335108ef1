/*
 * core/context.h - the context: one per rank, used by one thread at a time.
 *
 * It owns the device, the memory pool, the scopes, the tape and the first error. Ops return
 * handles; after a failure they return NULL, NULL operands give NULL, and the first error stays
 * here until it is looked at: model code checks nothing, a training step checks once.
 */
#ifndef WF_CORE_CONTEXT_H
#define WF_CORE_CONTEXT_H

#include "core/device.h"
#include "core/memory/blocks.h"
#include "core/journal.h"
#include "core/pace.h"
#include "core/tensor.h"
#include "core/trace.h"

WF_BEGIN_DECLS

enum { WF_INEXACT = 512 }; /* bytes of a reason of wf_context_inexact, with its end */

typedef struct wf_context_options {
    int rank;            /* shown in errors */
    size_t memory_limit; /* bytes of tensors, 0 for no limit */
    uint64_t seed;       /* seeds dropout and initialisation */
    bool exact_off;      /* plain chains and rank-order sums: faster, tied to the layout */
    bool compute_fp32;  /* kernels get operands that are stored as bf16 widened, and multiply in
                            fp32; else those that can (wf_kernel.all_bf16) make bf16 products */
    bool fp32_residual; /* a residual stream that begins in the device's type stays so, whatever
                            results are stored as (wf_op.follows) */
    bool plan; /* memory is counted and never taken, kernels are not run: what would a run need?
                  Tensors have no values, and their data must not be touched */
    bool
        debug_handles; /* uses of tensors that have ended are found, and writes outside of outputs
                           (core/handles_internal.h) */
} wf_context_options;

/**
 * wf_context_open - a context over a device, which it owns from now on (also on failure).
 *
 * @param device   NULL gives NULL
 * @param options  NULL for all zero
 * Owner:   caller
 * Errors:  WF_ENOMEM; result is then NULL
 */
WF_API wf_context *wf_context_open(wf_device *device, const wf_context_options *options,
                                   wf_error *error);

/** wf_context_close - free everything; tensors and tapes still held become invalid. NULL is
 * allowed. */
WF_API void wf_context_close(wf_context *ctx);

/** wf_context_status - WF_OK, or the code of the first failure. wf_context_error - its text. */
WF_API wf_status wf_context_status(const wf_context *ctx);
WF_API const wf_error *wf_context_error(const wf_context *ctx);

/** wf_context_clear - forget the error, after the caller has dealt with it. */
WF_API void wf_context_clear(wf_context *ctx);

/**
 * wf_context_warn - report once what is legal, and seldom meant: an op through which no gradient passes, say
 *
 * @param of  what it is about, by address: what was reported of it is not reported again; at most 32 are
 */
WF_API void wf_context_warn(wf_context *ctx, const void *of, const char *format, ...)
    WF_PRINTF(3, 4);

/** wf_context_on_warning - call a function with each warning; NULL: with none, as at first. wf_par_open has them written
 * to standard error by rank 0. */
WF_API void wf_context_on_warning(wf_context *ctx,
                                  void (*warning)(void *self, const char *text), void *self);

/** wf_context_device, wf_context_pool, wf_context_rank, wf_context_seed, wf_context_exact,
 * wf_context_dry_run - what the context was opened with; exact is false under exact off. Owner:
 * the context. */
WF_API wf_device *wf_context_device(wf_context *ctx);
WF_API wf_pool *wf_context_pool(wf_context *ctx);
WF_API int wf_context_rank(const wf_context *ctx);
WF_API uint64_t wf_context_seed(const wf_context *ctx);
WF_API bool wf_context_exact(const wf_context *ctx);
WF_API bool wf_context_dry_run(const wf_context *ctx);

/** wf_context_compute - what operands that are stored as bf16 are multiplied as: WF_BF16, or with
 * compute_fp32 the device's own type. */
WF_API wf_dtype wf_context_compute(const wf_context *ctx);

/** wf_context_fp32_residual - whether residual streams are stored in the device's type
 * (wf_context_options.fp32_residual). */
WF_API bool wf_context_fp32_residual(const wf_context *ctx);

/** wf_context_blocks - small blocks of the host's memory for what the rank needs again and again: what
 * is taken is given back before the context closes. Owner: the context. */
WF_API wf_blocks *wf_context_blocks(wf_context *ctx);

/**
 * wf_context_inexact - why the layout shows in the bits of what was computed so far, or NULL: the
 * first reason that was found, "not layout-exact: .."; the same on all ranks of a mesh
 *
 * An op that sums a dim finds one where axes split it so that ranks do not add what one rank adds.
 *
 * Owner: the context
 */
WF_API const char *wf_context_inexact(const wf_context *ctx);
/** wf_context_inexact_clear - forget the reason: what is computed from now on is judged alone. Every
 * rank of a mesh does so at the same place. */
WF_API void wf_context_inexact_clear(wf_context *ctx);
/** wf_context_tell_inexact - keep this reason, unless one is kept already. */
WF_API void wf_context_tell_inexact(wf_context *ctx, const char *format, ...) WF_PRINTF(2, 3);

/**
 * wf_sequences - the global sequences of a batch's rows: runs of `run` neighbours, the first of which
 * begins with sequence `first` and every next one `stride` sequences later; 0 for one run of all.
 */
typedef struct wf_sequences {
    int64_t first, run, stride;
} wf_sequences;

/** wf_sequence_of - the global sequence of a row of the whole batch: index row of a tensor's dim 0,
 * of which a rank holds those from tensor->start[0] on. */
WF_HOST_DEVICE static inline int64_t wf_sequence_of(const wf_sequences *s, int64_t row)
{
    return s->run > 0 ? s->first + row / s->run * s->stride + row % s->run : s->first + row;
}

/**
 * wf_context_position - where training stands, for dropout: its masks depend on (site, step,
 * global sequence, position, feature) only.
 *
 * @param step       training step
 * @param sequences  of the whole batch that ops see now, the same on all ranks
 */
WF_API void wf_context_position(wf_context *ctx, int64_t step, wf_sequences sequences);
/** wf_context_step, wf_context_sequences - what wf_context_position said last; 0 before.
 */
WF_API int64_t wf_context_step(const wf_context *ctx);
WF_API wf_sequences wf_context_sequences(const wf_context *ctx);

/**
 * wf_context_micro_steps - in how many batches one after the other a training step comes, from now on; 1
 * at the start
 *
 * What a model computes from its parameters before it uses it has a gradient that is summed over a
 * batch, and then goes back through what computed it: once for each of them. That has other bits
 * than once for all, so wf_context_inexact tells of it where there are several.
 */
WF_API void wf_context_micro_steps(wf_context *ctx, int64_t count);

/**
 * wf_context_rows_apart - whether ranks with one row of a batch each keep their gradients apart from now on, each of
 * them a term that is added by its number; false at the start
 *
 * No sum over these ranks is taken then, so that their order in the mesh need not be that of a tree, and
 * wf_context_inexact does not tell of it.
 */
WF_API void wf_context_rows_apart(wf_context *ctx, bool apart);
/** wf_context_has_rows_apart - what wf_context_rows_apart said last. */
WF_API bool wf_context_has_rows_apart(const wf_context *ctx);

/** wf_context_training - false (evaluation) makes dropout the identity; true at the start.
 * wf_context_is_training - which it is. */
WF_API void wf_context_training(wf_context *ctx, bool training);
WF_API bool wf_context_is_training(const wf_context *ctx);

/** wf_context_flops - the work of all ops so far that say how much theirs is (wf_op.flops). */
WF_API double wf_context_flops(const wf_context *ctx);

/**
 * wf_context_model_flops - model FLOPs: what of that a model takes by itself, on any layout and whatever is recomputed. Over
 * all ranks they are those of one rank
 *
 * Not counted: forward passes that are recomputed, scores that attention makes again in backward, products that ranks of
 * tensor parallelism all make, sequences that a rank without one computes again, and the optimizer's products. They are
 * what model FLOPs utilization (MFU, PaLM 2022) is made of, with attention over the scores that a mask leaves.
 */
WF_API double wf_context_model_flops(const wf_context *ctx);

/** wf_context_model_share - which part of the work from now on is the model's: 1, or 0 where it is done again. Returns
 * the part until now. */
WF_API double wf_context_model_share(wf_context *ctx, double share);

/** wf_extension - memory that a library above core has in each context, by the address of a description of its own. */
typedef struct wf_extension {
    const char *name; /* for errors */
    size_t bytes;
} wf_extension;

/**
 * wf_context_extension - a library's memory in a context: zeroed when it is first asked for, the same from then on
 *
 * @param extension  static
 * Owner:   the context
 * Errors:  in the context: WF_ENOMEM, WF_EINVAL (more than 4 are there); NULL then
 */
WF_API void *wf_context_extension(wf_context *ctx, const wf_extension *extension);

/** wf_context_memory_kind - what results of ops are counted as from now on; returns the last.
 */
WF_API wf_memory_kind wf_context_memory_kind(wf_context *ctx, wf_memory_kind kind);
/** wf_context_memory_kind_now - what wf_context_memory_kind said last. */
WF_API wf_memory_kind wf_context_memory_kind_now(const wf_context *ctx);

/**
 * wf_context_storage - what results of ops are stored as from now on: WF_BF16, or the device's own
 * type, which it is at first; returns the last. Ops compute in the device's type and round once;
 * wf_op.keep_fp32 says which results are never rounded, and a partial sum is when it is complete.
 *
 * Errors:  WF_EDTYPE in the context where it is another type
 */
WF_API wf_dtype wf_context_storage(wf_context *ctx, wf_dtype dtype);

/**
 * wf_context_enter - name the module whose ops follow, for errors and for the moment of the
 * peak; returns the last one. The tape names it again in backward: path stays alive as long.
 */
WF_API const char *wf_context_enter(wf_context *ctx, const char *path);

/** wf_context_phase - name what is going on, for the moment of the peak and for traces; returns the
 * last one. */
WF_API const char *wf_context_phase(wf_context *ctx, const char *phase);

/**
 * wf_context_action - name the action of a schedule that is going on, for traces; NULL: none is
 *
 * @param name  alive as long as the trace
 */
WF_API void wf_context_action(wf_context *ctx, const char *name);

/** wf_context_path, wf_context_phase_now, wf_context_action_now - what wf_context_enter, wf_context_phase and
 * wf_context_action said last; NULL: nothing. */
WF_API const char *wf_context_path(const wf_context *ctx);
WF_API const char *wf_context_action_now(const wf_context *ctx);
WF_API const char *wf_context_phase_now(const wf_context *ctx);

/**
 * wf_context_running, wf_context_op_now - the context whose module or op this thread has entered last, and the name
 * of the op that it is in; NULL: none. For the notice of a crash: both may be called by a signal's handler.
 *
 * wf_context_run - this thread, which works for another one, runs for that one's context
 */
WF_API const wf_context *wf_context_running(void);
WF_API const char *wf_context_op_now(const wf_context *ctx);
WF_API void wf_context_run(const wf_context *ctx);

/** wf_context_pace - ops take the time of another machine (core/pace.h), from now on; NULL: their own. The pace is the
 * caller's, and there as long. wf_context_pace_of - which it is. */
WF_API void wf_context_pace(wf_context *ctx, wf_pace *pace);
WF_API wf_pace *wf_context_pace_of(const wf_context *ctx);

/** wf_context_journal - ops are written down from now on, those of a plan too; NULL ends it. On a mesh see wf_mesh_journal.
 * The journal is the caller's, and there as long. */
WF_API void wf_context_journal(wf_context *ctx, const wf_journal *journal);

/** wf_op_observer - looks at a call of an op that has just been made. */
typedef void wf_op_observer(void *arg, const wf_call *call);

/**
 * wf_context_observe - show every call of an op with its results, as they are made, until this is
 * called with NULL; views are not shown, nor what a plan or the fake device does not compute
 *
 * @param observe  may read, and calls no op
 */
WF_API void wf_context_observe(wf_context *ctx, wf_op_observer *observe, void *arg);

/**
 * wf_context_trace - write down what kernels and phases take from now on, until it is called with
 * NULL; on a mesh see wf_mesh_trace
 *
 * @param trace  the caller's, and open as long
 */
WF_API void wf_context_trace(wf_context *ctx, wf_trace *trace);

/**
 * wf_scope_open - a new innermost scope; results of ops belong to it from now on.
 *
 * Errors:  WF_ENOMEM in the context; the matching close then does nothing
 */
WF_API void wf_scope_open(wf_context *ctx);
/**
 * wf_scope_close - release what was made since its wf_scope_open.
 *
 * Errors:  WF_EINVAL in the context where no scope is open
 */
WF_API void wf_scope_close(wf_context *ctx);
/** wf_scope_return - close, but hand one tensor (NULL is allowed) to the scope outside. */
WF_API wf_tensor *wf_scope_return(wf_context *ctx, wf_tensor *result);
/** wf_scope_keep - like return, for several results; entries may be NULL. */
WF_API void wf_scope_keep(wf_context *ctx, int count, wf_tensor **results);

WF_END_DECLS

#endif
