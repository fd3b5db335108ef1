/* core/context_internal.h - the inside of a context, for core alone. */
#ifndef WF_CORE_CONTEXT_INTERNAL_H
#define WF_CORE_CONTEXT_INTERNAL_H

#include "core/context.h"
#include "core/device.h"
#include "core/distribution.h"
#include "core/status_internal.h"

struct wf_storage {
    int refs;
    void *data; /* NULL where it is absent */
    size_t bytes;
    wf_memory_kind kind;
    uint32_t version;       /* the number of changes of its elements in place .. */
    const char *changed_by; /* .. and by what, the last time */
    struct wf_shared
        *shared; /* NULL, or where data is: memory that other ranks see (core/sharing.h) */
    int member;  /* this rank's index among them */
    const void *comes_with; /* NULL: it is always there; else wf_tensor_comes_with's */
    /* NULL, or memory of the host where it rests, from its first offload on; ops of a device
       without memory of its own find it there, as `data` */
    void *host;
    bool on_host;             /* its data are there, and it is absent from the device */
    bool rests_on_host;       /* wf_tensor_offload */
    int64_t copy;             /* the last copy from or to the host that was begun */
    void *leaving, *arriving; /* memory on the device while a copy reads it, or fills it */
    bool listed;
    struct wf_later *later;   /* NULL, or what brings its rows, while it is absent */
    struct wf_storage *older; /* the one that was offloaded before, in a list of them */
};

enum { WF_WARNINGS = 32, WF_EXTENSIONS = 4 };

typedef struct wf_scopes {
    wf_tensor **owned; /* stack of all scopes */
    int64_t n_owned, owned_capacity;
    int64_t *marks;
    int n_marks, marks_capacity, lost_marks;
} wf_scopes;

/* The state that a context has for as long as a call. Two calls beside each other have one
   each, which are swapped whole (core/beside.c). */
typedef struct wf_call_state {
    const char *phase, *action;
    const char *point; /* NULL, or what wf_context_point named since the path was entered */
    const char *op;    /* NULL, or the name of the one that runs */
    wf_scopes scopes;
    struct wf_tape *tape;              /* the recording one */
    const struct wf_node *gradient_of; /* NULL, or the node whose op's backward runs */
    bool recorded_later;               /* wf_context_recorded_later */
    bool results_later;                /* wf_results_later */
    wf_memory_kind kind;               /* kind of memory that results of ops are counted as */
    wf_dtype storage;                  /* results are stored as this */
    int64_t step;
    wf_sequences sequences;
    int64_t micro_steps, batch; /* wf_context_batch */
    bool rows_unreduced;
    bool evaluating;
    double repeated; /* 1 - wf_context_model_share */
} wf_call_state;

struct wf_context {
    wf_failure failure; /* the first member, which wf_fail takes a context to be */
    wf_device *device;
    wf_pool *pool;
    wf_pool *host_pool;           /* memory of tensors that are offloaded; NULL: none was yet */
    struct wf_storage *leaving;   /* the one whose copy to the host was begun last, or NULL */
    struct wf_storage *offloaded; /* those of wf_tensor_offload_stacked, the last one first */
    wf_context_options options;
    const wf_distribution *distribution;
    void *mesh;
    wf_call_state now;
    wf_blocks blocks; /* tensors, storages, tapes and their nodes, moves: all bookkeeping */
    uint64_t tapes;   /* serial number of the last tape */
    struct {
        const wf_extension *of;
        void *data;
    } extension[WF_EXTENSIONS];
    double flops, model_flops;
    wf_trace *trace;              /* NULL: none is kept */
    wf_device_counts traced_from; /* the device's counts when the trace began */
    wf_pace *pace;                /* NULL: ops take what they take */
    const wf_oplog *oplog;        /* NULL: ops are not logged */
    int64_t phase_start, action_start;
    struct wf_handles
        *handles;           /* NULL: ends of tensors are not kept (core/handles_internal.h) */
    struct wf_graph *graph; /* the graph that is being captured, or NULL */
    struct wf_turns *turns; /* NULL, or two calls beside each other (core/beside.c) .. */
    struct wf_coroutine *beside; /* .. and the second one's stack; NULL: none was needed yet */
    bool together;               /* wf_together_begin */
    struct wf_together *waiting; /* the calls that wait; NULL: none has */
    wf_op_observer *observe;     /* NULL: results are not inspected */
    void *observer_arg;
    void (*warning)(void *self, const char *text); /* NULL: nothing is said */
    void *warning_self;
    const void *warned[WF_WARNINGS]; /* objects that were warned of .. */
    int n_warned;
    char inexact[WF_INEXACT]; /* the first reason, or "" */
};

/* core/context_trace.c */
/* Ends the traced intervals of phase and action, and begins the next ones. */
void wf_context_cut_intervals(wf_context *ctx);

/* core/scope.c */
/* Release all that scopes own; and free their memory. */
void wf_scopes_empty(wf_scopes *s);
void wf_scopes_free(wf_scopes *s);

/* core/context.c */
/* Gives the other one of two calls beside each other its own of a new extension, in its state
   before the first use; false: no memory. */
bool wf_beside_extend(wf_context *ctx, int i, const wf_extension *of);

/* Returns whether results can be stored as a narrow type: kernels round to and widen bf16
   alone; a plan counts any. */
bool wf_context_narrows(const wf_context *ctx, wf_dtype dtype);
/* Takes memory of a pool, as wf_pool_take does; NULL: there is none, and the context has
   failed, by an error that begins with `what` (NULL: with nothing more). */
void *wf_context_take(wf_context *ctx, wf_pool *pool, size_t bytes, wf_memory_kind kind,
                      const char *what);

/* core/handles.c */
/* Turns the mode on where environment, options or build ask for it; WF_EINVAL: WEFT_DEBUG has
   an unknown word. */
wf_status wf_handles_open(wf_context *ctx, wf_error *error);
void wf_handles_close(wf_context *ctx);
/* Keeps a tensor's description instead of giving it back. */
void wf_handle_end(wf_tensor *t);

/* core/together.c */
/* Forgets the calls that wait, after an error, and the room for them. */
void wf_together_close(wf_context *ctx);

/* core/tensor.c */
/* Make a blank tensor, owned by the caller; and a storage without memory. NULL: no memory, an
   error. */
wf_tensor *wf_tensor_blank(wf_context *ctx, wf_dtype dtype);
wf_storage *wf_storage_absent(wf_context *ctx, size_t bytes, wf_memory_kind kind);
/* Shows all tensors that share t's storage where its data are now. */
void wf_tensor_show(wf_tensor *t);
wf_status wf_tensor_shape(wf_tensor *t, int ndim, const wf_dim *dims, const wf_layout *layout);
/* Ends what brings rows of a storage that ends (core/later.c). */
void wf_storage_leave_later(wf_storage *s);

/* Gives back the host memory of a storage that ends (core/offload.c). */
void wf_storage_leave_host(wf_context *ctx, wf_storage *s);
/* Gives back the part of a file in which data are that the device's ops use. */
void wf_storage_leave_file(wf_context *ctx, wf_storage *s);
/* Waits for all copies, and closes the pool of host memory. */
void wf_offload_close(wf_context *ctx);
/* Waits for the data of such a storage, and returns them. */
void *wf_storage_on_host(wf_context *ctx, const wf_storage *s);
/* Notes that the elements of a tensor are changed in place by `what`, a text that stays: tapes
   that saved it detect that. */
void wf_tensor_changed(wf_tensor *t, const char *what);
/* Returns the number of changes in place. */
uint32_t wf_tensor_version(const wf_tensor *t);
/* Copies a tensor to memory of its own; the scope's. */
wf_tensor *wf_tensor_copy(const wf_tensor *t);

/* core/partial_origin.c */
/* Notes what left an output of a call partial: what did so with an operand, or the call. */
void wf_partial_begins(const wf_call *call, const wf_signature *sig, wf_tensor *out);
/* Writes which border is missing; returns text. */
char *wf_partial_fix(const wf_partial_origin *from, char *text, size_t size);

/* Reports an operand that is computed from parameters and whose gradient is a sum over the
   batch, while a tape records and a step has several batches. */
void wf_tape_report_computed(const wf_call *call, const wf_signature *sig);

#endif
