/* core/device.h - the device table: filled in kernels/ (and by plugins), used by dispatch. */
#ifndef WF_CORE_DEVICE_H
#define WF_CORE_DEVICE_H

#include "core/memory/memory.h"
#include "core/numerics/exact_sum.h"
#include "core/op.h"

WF_BEGIN_DECLS

struct wf_device;

/* A point in a queue of a device: all that the queue was given before it. The device's own. */
typedef struct wf_point wf_point;

/* Copy of `rows` rows of `bytes`, from_step and to_step bytes apart; source and target do not
   overlap. */
typedef struct wf_copy {
    const void *from;
    void *to;
    size_t bytes, from_step, to_step;
    int64_t rows;
} wf_copy;

/* Reduction over buffers: dst[d][i] = sum or maximum over s of src[s][i], for all d; a target
   may be a source, where it has its elements. */
typedef struct wf_reduce {
    const void *const *src;
    void *const *dst;
    int n_src, n_dst;
    size_t element;     /* 4: floats; 2: bf16, summed as floats and rounded once */
    size_t out_element; /* in targets: as element; 2 where that is 4: rounded once, a sum */
    bool tree;          /* midpoint tree (core/numerics/tree.h), else in ascending order */
    bool maximum;
    int64_t n;
} wf_reduce;

/**
 * wf_device_memory - functions on memory that the host can neither read nor write.
 *
 * Calls are queued and run in the order in which the rank made them, as in a CUDA stream: only
 * read, digest, wait and point_wait block. Functions that return nothing keep their failures,
 * and the next read, wait or kernel reports them. `side_stream` is a second queue, for
 * exchanges between ranks: any thread may use it, concurrently with what the rank computes. It
 * runs in the order of its own calls; mark and follow order it with other queues.
 */
typedef struct wf_device_memory {
    wf_status (*read)(struct wf_device *device, void *host, const void *from, size_t bytes,
                      wf_error *error);
    /* `host` may be changed when the call has returned */
    void (*write)(struct wf_device *device, void *to, const void *host, size_t bytes);
    wf_status (*copy)(struct wf_device *device, const wf_copy *copy, bool side_stream,
                      wf_error *error);
    /* n copies, in few launches; what one writes no other one touches */
    wf_status (*copy_all)(struct wf_device *device, const wf_copy *copies, int64_t n,
                          bool side_stream, wf_error *error);
    /* n reductions that differ in src, dst, out_element and n, in few launches; what one writes
       no other one touches */
    wf_status (*reduce)(struct wf_device *device, const wf_reduce *reductions, int64_t n,
                        bool side_stream, wf_error *error);
    void (*fill)(struct wf_device *device, void *to, uint32_t word, int64_t n);
    wf_status (*wait)(struct wf_device *device, wf_error *error);
    /* Copies between the device's memory and memory of host_allocator, beside what the device
       computes: begin after all that is queued, and after copies that began before; join has
       what is queued from then on come after a copy, wait has the host wait for it. The result
       of begin is the copy's number. */
    int64_t (*copy_begin)(struct wf_device *device, void *to, const void *from, size_t bytes);
    void (*copy_join)(struct wf_device *device, int64_t copy);
    void (*copy_wait)(struct wf_device *device, int64_t copy);
    /* wf_digest_part of a tensor of floats; blocks. Errors are the context's */
    wf_status (*digest)(const wf_tensor *t, uint64_t path_hash, uint32_t kind,
                        uint64_t *digest);
    /* Points in the queues of all devices of a process that are of this kind, from any thread:
       mark makes *point where it is NULL, and sets it after all that a queue was given so far;
       follow has what a queue is given from then on come after a point of any device, as it is
       set at that time; point_wait has the host wait for it, which the device's counts leave
       out. A point may outlive its device. */
    wf_status (*mark)(struct wf_device *device, bool side_stream, wf_point **point,
                      wf_error *error);
    wf_status (*follow)(struct wf_device *device, bool side_stream, const wf_point *point,
                        wf_error *error);
    wf_status (*point_wait)(const wf_point *point, wf_error *error);
    void (*point_free)(wf_point *point); /* NULL is allowed */
} wf_device_memory;

/* A step as its device has judged it (core/judgment.h), in the device's memory. */
typedef struct wf_judged {
    double norm;
    float loss, scale; /* scale: by which the update multiplies gradients */
    int64_t held;      /* 1 from the first step on that may not update, until it is cleared */
    int64_t inexact;   /* the least of what ranks have brought */
} wf_judged;

/* A rank's part of the judgment of a step: words of 64 bits, in memory of the device, that
   are added, compared or joined over ranks, in any order. */
typedef struct wf_judged_part {
    wf_exact_sum squares; /* settled, so that limbs of many ranks may be added */
    int64_t step;         /* the same on all ranks, or the step is held */
    uint64_t alike;       /* adds up to 0 over ranks, mod 2^64, or the step is held */
    int64_t held;         /* 1: the step is held */
    int64_t inexact;      /* the first rank that knows why the layout is not exact, or more */
} wf_judged_part;

/* Returns the factor that bounds the norm of gradients by `clip`, as torch's clip_grad_norm_
   has it; 1: they are within it, or clip is 0. */
static inline WF_HOST_DEVICE float wf_clip_scale(double norm, float clip)
{
    const double scale = clip > 0 ? (double)clip / (norm + 1e-6) : 1;

    return scale < 1 ? (float)scale : 1;
}

/* Judgment of a step: loss = weight total[0], norm = sqrt(squares of all parts), scale =
   wf_clip_scale. The step is held where loss or norm is not finite, the loss is above
   loss_above, or the parts say so. */
typedef struct wf_judge {
    const wf_judged_part *part; /* [parts] one of each rank */
    int parts;
    const float *total;
    float weight, clip, loss_above; /* clip 0: scale is 1; loss_above 0: any loss */
    wf_judged *judged;
} wf_judge;

/** wf_graphs - graph capture: work that is captured once and replayed (core/graph.h). Between
 * begin and end, work of the rank is recorded in order and not done; a part of a graph begins
 * where another one ended (`again`), and gives back what that one took. `now` holds the numbers
 * that captured kernels read anew in every run, in device memory at a fixed address; of no
 * bytes it stays as it is. `judge_part` makes a rank's part of a judgment, of its squares and
 * its `now`; `judge` judges a step, and has captured updates that follow take its scale, or
 * change nothing. */
typedef struct wf_graphs {
    wf_status (*begin)(struct wf_device *device, bool again, wf_error *error);
    /* NULL where there was no work; with an error where something cannot be captured. Nothing
       is being captured then */
    void *(*end)(struct wf_device *device, wf_error *error);
    wf_status (*run)(struct wf_device *device, void *graph, const void *now, size_t bytes,
                     wf_error *error);
    void (*free)(struct wf_device *device, void *graph);
    void (*judge_part)(struct wf_device *device, const wf_exact_sum *squares,
                       wf_judged_part *part);
    void (*judge)(struct wf_device *device, const wf_judge *judge);
} wf_graphs;

/** wf_device_counts - the work and the waits that a thread has asked of its device so far. */
typedef struct wf_device_counts {
    int64_t launches; /* kernels, copies and graphs that were queued */
    int64_t syncs;    /* waits for all that was queued, after which the device is idle */
    int64_t waits;    /* waits for one copy, after which other work may be queued */
} wf_device_counts;

/** wf_device_location - the device of its kind that a rank has. */
typedef struct wf_device_location {
    int ordinal,
        devices; /* this one of `devices` that the process sees, by their driver's numbers */
    int ranks;   /* ranks in the process: more than devices share them */
} wf_device_location;

/** wf_device - the device on which tensors live and ops run; one per context, owned by it. */
typedef struct wf_device {
    const char *name;
    wf_dtype dtype; /* element type of the floats that its kernels take */
    wf_allocator allocator;
    const wf_device_memory *memory; /* NULL: tensors are in host memory */
    /* host memory that copies to and from the device are fast with (pinned); alloc NULL: any */
    wf_allocator host_allocator;
    const wf_graphs *graphs; /* NULL: no graph capture */
    /* Returns the counts of the calling thread; NULL: nothing is queued. */
    wf_device_counts (*counts)(void);
    /* devices is 0 where there is one alone: on a CPU, in a plan */
    wf_device_location location;
    void *queue; /* the device's queue of work, of its own kind: on CUDA a cudaStream_t */
    /* required: the kernel of an op on this device, or NULL (the call is then an error) */
    const wf_kernel *(*kernel)(const struct wf_device *device, const wf_op *op);
    /* required: sums or maxima of many buffers, for the reductions over ranks */
    void (*sum)(const float *const *src, int64_t n_src, bool tree, float *dst, int64_t n);
    void (*maximum)(const float *a, const float *b, float *dst, int64_t n);
    /* sum, to many results, by non-temporal stores where `non_temporal`; NULL: sum, then
       copies */
    void (*sum_to_all)(const float *const *src, int64_t n_src, bool tree, float *const *dst,
                       int64_t n_dst, bool non_temporal, int64_t n);
    /* copy by non-temporal stores what will not be read soon; NULL: there is no such copy */
    void (*copy_non_temporal)(const void *from, void *to, size_t bytes);
    /* floats of the host's memory as bf16, by the thread that calls; NULL: one after the
       other */
    void (*narrow_floats)(const float *from, uint16_t *to, int64_t n);
    /* required: add the squares of the local floats of n tensors to a sum, in double. A chunk
       is one row of dim 0 times one of dim 1's 8 cuts: element i in lane i % 8, the lanes added
       in strides of 4, 2, 1. The sum lies in the device's memory: see core/numerics/squares.h
     */
    void (*sum_squares)(int64_t n, wf_tensor *const *t, struct wf_exact_sum *sum);
    /* required: out = a + b (out may be a), floats or bf16, same dtype and local shape, where
       two gradients meet */
    void (*add)(const wf_tensor *a, const wf_tensor *b, wf_tensor *out);
    /* required: the op that adds up dim 0, the sequences: a border on the mesh runs it on the
       gradient of a vector, which comes with a row per sequence (WF_OP_BORDER) */
    const wf_op *batch_sum;
    /* required: n floats of the device's type as bf16, and back (core/numerics/bf16.h) */
    void (*narrow)(const struct wf_device *device, const void *from, uint16_t *to, int64_t n);
    void (*widen)(const struct wf_device *device, const uint16_t *from, void *to, int64_t n);
    /* widens a tensor that is stored as nf4 (core/nf4_tensor.h) to bf16 or to floats of the
       device's type; NULL: the device takes none */
    void (*widen_nf4)(const struct wf_device *device, const wf_tensor *t, wf_dtype as,
                      void *to);
    void (*close)(struct wf_device *device); /* required */
    void *self;
} wf_device;

WF_END_DECLS

#endif
