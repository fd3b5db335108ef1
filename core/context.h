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
#include "core/oplog.h"
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
    /* 1, 2, 4 or 8: the most ranks among which a dim of WF_CHUNKS_8 may be split without a
       change of bits. It is the number of chunks of a sum over such a dim, so fewer chunks are
       faster and have other bits; 0 means 8. Not with exact_off, which has one */
    int exact_tp;
    /* rows of results that move between ranks are moved in blocks of at least this many bytes,
       beside the products that take them or make them (core/later.h); 0: all at once, before
       or after these. Bits are the same */
    size_t row_block;
    /* store operands as bf16, but widen them and multiply in fp32; false: kernels that can
       (wf_kernel.all_bf16) multiply bf16 */
    bool compute_fp32;
    /* keep a residual stream that begins in the device's type in that type, whatever results
       are stored as (wf_op.follows) */
    bool fp32_residual;
    /* the source of the memory in which offloaded tensors rest (core/offload.h), such as files
       of a folder, which errors name; neither: memory of the host */
    wf_allocator offload_allocator;
    const char *offload_dir;
    /* dry run: memory is counted and never taken, kernels are not run. Tensors have no values,
       and their data must not be touched */
    bool plan;
    /* debug mode: find uses of released tensors and writes outside of outputs
       (core/handles_internal.h) */
    bool debug_handles;
} wf_context_options;

/**
 * wf_context_open - opens a context over a device, which it owns from now on (also on failure).
 *
 * @param device   NULL gives NULL
 * @param options  NULL for all zero
 * Owner:   caller
 * Errors:  WF_ENOMEM, WF_EINVAL (exact_tp); result is then NULL
 */
WF_API wf_context *wf_context_open(wf_device *device, const wf_context_options *options,
                                   wf_error *error);

/** wf_context_close - frees everything; tensors and tapes still held become invalid. NULL is
 * allowed. */
WF_API void wf_context_close(wf_context *ctx);

/** wf_context_status - returns WF_OK, or the code of the first failure; wf_context_error - its
 * text. Owner: the context. */
WF_API wf_status wf_context_status(const wf_context *ctx);
WF_API const wf_error *wf_context_error(const wf_context *ctx);

/** wf_context_clear - clears the error, after the caller has dealt with it. */
WF_API void wf_context_clear(wf_context *ctx);

/**
 * wf_context_warn - reports once something legal that is seldom meant, such as an op through
 * which no gradient passes
 *
 * @param of  the address of what it is about: each is reported once, and 32 addresses at most
 */
WF_API void wf_context_warn(wf_context *ctx, const void *of, const char *format, ...)
    WF_PRINTF(3, 4);

/** wf_context_on_warning - sets the function that gets each warning; NULL, as at first: none
 * does. wf_par_open has rank 0 write them to standard error. */
WF_API void wf_context_on_warning(wf_context *ctx,
                                  void (*warning)(void *self, const char *text), void *self);

/** wf_context_device, wf_context_pool, wf_context_rank, wf_context_seed, wf_context_exact,
 * wf_context_chunks, wf_context_dry_run - return an option or a part of the context; exact is
 * false under exact_off, chunks are those of a sum over a dim of WF_CHUNKS_8, 1 under
 * exact_off, dry_run is wf_context_options.plan. Owner: the context. */
WF_API wf_device *wf_context_device(wf_context *ctx);
WF_API wf_pool *wf_context_pool(wf_context *ctx);
WF_API int wf_context_rank(const wf_context *ctx);
WF_API uint64_t wf_context_seed(const wf_context *ctx);
WF_API bool wf_context_exact(const wf_context *ctx);
WF_API int wf_context_chunks(const wf_context *ctx);
WF_API bool wf_context_dry_run(const wf_context *ctx);
/** wf_context_row_block - returns wf_context_options.row_block. */
WF_API size_t wf_context_row_block(const wf_context *ctx);

/** wf_context_compute - returns the type in which operands stored as bf16 are multiplied:
 * WF_BF16, or with compute_fp32 the device's own type. */
WF_API wf_dtype wf_context_compute(const wf_context *ctx);

/** wf_context_fp32_residual - returns true where residual streams are stored in the device's
 * type (wf_context_options.fp32_residual). */
WF_API bool wf_context_fp32_residual(const wf_context *ctx);

/** wf_context_blocks - returns the context's allocator of small host blocks, for objects that
 * every step needs. Blocks are given back before the context closes. Owner: the context. */
WF_API wf_blocks *wf_context_blocks(wf_context *ctx);

/**
 * wf_context_inexact - returns the first reason why the layout shows in the bits of what was
 * computed so far, "not layout-exact: ..", or NULL; the same on all ranks of a mesh
 *
 * An op that sums a dim finds one where axes split it so that ranks do not add what one rank
 * adds.
 *
 * Owner: the context
 */
WF_API const char *wf_context_inexact(const wf_context *ctx);
/** wf_context_inexact_clear - clears the reason, so that only later ops are judged. Called on
 * every rank of a mesh at the same point. */
WF_API void wf_context_inexact_clear(wf_context *ctx);
/** wf_context_report_inexact - records a reason, unless one is recorded already. */
WF_API void wf_context_report_inexact(wf_context *ctx, const char *format, ...) WF_PRINTF(2, 3);

/** wf_sequences - numbers the global sequences of a batch's rows: runs of `run` neighbours, the
 * first of which begins with sequence `first` and every next one `stride` sequences later; run
 * 0: one run of all rows. */
typedef struct wf_sequences {
    int64_t first, run, stride;
} wf_sequences;

/** wf_sequence_of - returns the global sequence of a row of the whole batch: index `row` of a
 * tensor's dim 0, of which a rank holds those from tensor->start[0] on. */
WF_HOST_DEVICE static inline int64_t wf_sequence_of(const wf_sequences *s, int64_t row)
{
    return s->run > 0 ? s->first + row / s->run * s->stride + row % s->run : s->first + row;
}

/**
 * wf_context_position - sets the training position for dropout: its masks depend on (site,
 * step, global sequence, position, feature) only.
 *
 * @param step       training step
 * @param sequences  of the whole batch that ops see now, the same on all ranks
 */
WF_API void wf_context_position(wf_context *ctx, int64_t step, wf_sequences sequences);
/** wf_context_step, wf_context_sequences - return what wf_context_position was given last; 0
 * before. */
WF_API int64_t wf_context_step(const wf_context *ctx);
WF_API wf_sequences wf_context_sequences(const wf_context *ctx);

/**
 * wf_context_micro_steps - sets the number of micro-batches of a training step, from now on; 1
 * at the start
 *
 * A tensor that a model computes from its parameters before use (a merged or masked weight) has
 * a gradient that is summed over a micro-batch and then goes back through the ops that computed
 * it, once for each micro-batch. That has other bits than once for all, so wf_context_inexact
 * reports it where there are several.
 */
WF_API void wf_context_micro_steps(wf_context *ctx, int64_t count);

/** wf_context_batch - sets the number of sequences of a training step, over all ranks and
 * micro-batches, from now on: that over which losses are means which ops take gradients of;
 * wf_context_batch_now - returns it, 0 at the start: those of a tensor itself. */
WF_API void wf_context_batch(wf_context *ctx, int64_t sequences);
WF_API int64_t wf_context_batch_now(const wf_context *ctx);

/**
 * wf_context_rows_unreduced - makes ranks with one row of a batch each keep their gradients
 * unreduced from now on, one term per sequence that is added by its number; false at the start
 *
 * No sum over these ranks is taken then, so that their order in the mesh need not be that of a
 * tree, and wf_context_inexact does not report it.
 */
WF_API void wf_context_rows_unreduced(wf_context *ctx, bool unreduced);
/** wf_context_has_rows_unreduced - returns what wf_context_rows_unreduced was given last. */
WF_API bool wf_context_has_rows_unreduced(const wf_context *ctx);

/** wf_context_training - switches between training and evaluation (false), which makes dropout
 * the identity; true at the start. wf_context_is_training - returns which it is. */
WF_API void wf_context_training(wf_context *ctx, bool training);
WF_API bool wf_context_is_training(const wf_context *ctx);

/** wf_context_flops - returns the floating-point operations of all ops so far that declare
 * theirs (wf_op.flops). */
WF_API double wf_context_flops(const wf_context *ctx);

/**
 * wf_context_model_flops - returns model FLOPs: the operations that the model itself needs,
 * whatever the layout and whatever is recomputed. Summed over all ranks they are those of one
 * rank
 *
 * Not counted: activation checkpointing's recomputed forward passes, scores that attention
 * recomputes in backward, products that all ranks of tensor parallelism make alike, sequences
 * that a rank without one computes a second time, and the optimizer's products. Model FLOPs
 * utilization (MFU, PaLM 2022) is made of them, with attention over the scores that a mask
 * leaves.
 */
WF_API double wf_context_model_flops(const wf_context *ctx);

/** wf_context_model_share - sets the part of the work from now on that counts as the model's:
 * 1, or 0 where work is repeated. Returns the part until now. */
WF_API double wf_context_model_share(wf_context *ctx, double share);

/** wf_extension - describes memory that a library above core has in each context. */
typedef struct wf_extension {
    const char *name; /* for errors */
    size_t bytes;
    bool of_call; /* state for as long as a call: two beside each other have one each */
} wf_extension;

/**
 * wf_context_extension - returns a library's memory in a context: zeroed at the first call, at
 * the same address from then on
 *
 * @param extension  static; its address says whose memory it is
 * Owner:   the context
 * Errors:  in the context: WF_ENOMEM, WF_EINVAL (4 others are there); NULL then
 */
WF_API void *wf_context_extension(wf_context *ctx, const wf_extension *extension);

/** wf_context_memory_kind - sets the kind that results of ops are counted as from now on;
 * returns the last. */
WF_API wf_memory_kind wf_context_memory_kind(wf_context *ctx, wf_memory_kind kind);
/** wf_context_memory_kind_now - returns the kind that is set. */
WF_API wf_memory_kind wf_context_memory_kind_now(const wf_context *ctx);

/**
 * wf_context_storage - sets the type that results of ops are stored as from now on: WF_BF16, or
 * the device's own type, the default; returns the last. Ops compute in the device's type and
 * round once; wf_op.keep_fp32 lists results that are never rounded, and a partial sum is
 * rounded when it is complete.
 *
 * Errors:  WF_EDTYPE in the context where it is another type
 */
WF_API wf_dtype wf_context_storage(wf_context *ctx, wf_dtype dtype);

/** wf_context_enter - names the module whose ops follow, for errors and for the report of peak
 * memory; returns the last one. The tape names it in backward too: path stays alive as long. */
WF_API const char *wf_context_enter(wf_context *ctx, const char *path);

/** wf_context_point - names the point of that module that was passed last, for errors in
 * backward; it stays alive as long as the tape. */
WF_API void wf_context_point(wf_context *ctx, const char *point);

/** wf_context_phase - names the phase (forward, backward, ..), for the report of peak memory
 * and for traces; returns the last one. */
WF_API const char *wf_context_phase(wf_context *ctx, const char *phase);

/**
 * wf_context_action - names the current action of a pipeline schedule, for traces; NULL: none
 *
 * @param name  alive as long as the trace
 */
WF_API void wf_context_action(wf_context *ctx, const char *name);

/** wf_context_path, wf_context_phase_now, wf_context_action_now - return the current module
 * path, phase and action; NULL: none. */
WF_API const char *wf_context_path(const wf_context *ctx);
WF_API const char *wf_context_action_now(const wf_context *ctx);
WF_API const char *wf_context_phase_now(const wf_context *ctx);

/**
 * wf_context_running, wf_context_op_now - return the context whose module or op this thread has
 * entered last, and the name of the op that it is in; NULL: none. Async-signal-safe, for the
 * notice of a crash.
 *
 * wf_context_run - sets the context that this thread, a worker of another thread, runs for
 */
WF_API const wf_context *wf_context_running(void);
WF_API const char *wf_context_op_now(const wf_context *ctx);
WF_API void wf_context_run(const wf_context *ctx);

/** wf_context_pace - throttles ops to the speed of another machine (core/pace.h) from now on;
 * NULL: their own speed. The pace is the caller's, and outlives its use. wf_context_pace_of -
 * returns it. */
WF_API void wf_context_pace(wf_context *ctx, wf_pace *pace);
WF_API wf_pace *wf_context_pace_of(const wf_context *ctx);

/** wf_context_oplog - logs every op from now on, those of a plan too; NULL ends it. On a mesh
 * see wf_mesh_oplog. The op log is the caller's, and outlives its use. */
WF_API void wf_context_oplog(wf_context *ctx, const wf_oplog *oplog);

/** wf_op_observer - observes a call of an op that has just been made. */
typedef void wf_op_observer(void *arg, const wf_call *call);

/**
 * wf_context_observe - passes every call of an op with its results to an observer, as they are
 * made; NULL ends it. Views are not passed on, nor calls that a plan or the fake device does
 * not compute
 *
 * @param observe  may read, and calls no op
 */
WF_API void wf_context_observe(wf_context *ctx, wf_op_observer *observe, void *arg);

/**
 * wf_context_trace - records the times of kernels and phases in a trace from now on; NULL ends
 * it. On a mesh see wf_mesh_trace
 *
 * @param trace  the caller's, and open as long
 */
WF_API void wf_context_trace(wf_context *ctx, wf_trace *trace);

/** wf_context_host_begin - returns the moment at which work of the host begins;
 * wf_context_host_end - adds it to the trace, if there is one, by a name that stays. */
WF_API wf_trace_mark wf_context_host_begin(const wf_context *ctx);
WF_API void wf_context_host_end(wf_context *ctx, wf_trace_mark mark, const char *name);

/**
 * wf_scope_open - opens an innermost scope, which owns results of ops from now on.
 *
 * Errors:  WF_ENOMEM in the context; the matching close then does nothing
 */
WF_API void wf_scope_open(wf_context *ctx);
/**
 * wf_scope_close - closes the innermost scope and releases the tensors that it owns.
 *
 * Errors:  WF_EINVAL in the context where no scope is open
 */
WF_API void wf_scope_close(wf_context *ctx);
/** wf_scope_return - closes the innermost scope, but hands one tensor (NULL is allowed) to the
 * scope outside, and returns it. */
WF_API wf_tensor *wf_scope_return(wf_context *ctx, wf_tensor *result);
/** wf_scope_keep - closes the innermost scope, but hands several tensors to the scope outside;
 * entries may be NULL. */
WF_API void wf_scope_keep(wf_context *ctx, int count, wf_tensor **results);

WF_END_DECLS

#endif
