/*
 * core/op.h - an op, for authors of ops (inside the tree or in an application).
 *
 * The signature says shapes and layouts at once: "...k,nk->...n".
 *   - one letter per dim; the same letter has the same size and is split together everywhere
 *   - "..." means any number of leading dims
 *   - a letter that no output has is summed: splitting it leaves a partial sum (a partial max
 *     with WF_OP_MAX)
 *   - "!" after a letter: that dim must be whole on each rank
 * A dim of an output takes size, grain and chunks from the first operand that has its letter.
 */
#ifndef WF_CORE_OP_H
#define WF_CORE_OP_H

#include "core/shape.h"
#include <string.h>

WF_BEGIN_DECLS

enum { WF_MAX_INPUTS = 12, WF_MAX_OUTPUTS = 7, WF_MAX_ATTRIBUTES = 96, WF_SIGNATURE_TEXT = 64 };

/* wf_op.flags */
enum {
    /* contracted letters leave a partial max, not a partial sum */
    WF_OP_MAX = 1,
    /* the last operand may be partial: outputs are its copies, times powers of two */
    WF_OP_LINEAR = 2,
    /* under exact off: legal where all operands are partial together */
    WF_OP_JOINT = 4,
    /* writes to its first operand; has no outputs and no gradient */
    WF_OP_IN_PLACE = 8,
    /* outputs share the data of input 0; has no kernel */
    WF_OP_VIEW = 16,
    /* letter g groups letter h (key-value heads of query heads) */
    WF_OP_GROUPS = 32,
    /* a sum of terms: contracted letters are split all together or not */
    WF_OP_TERMS = 64,
    /* the last output is the sum of the first over the letters that it lacks of it */
    WF_OP_SUM_LAST = 128,
    /* letters of outputs that the first operand lacks are split all together or not: its
       gradient is one sum over all of them */
    WF_OP_MEMBERS = 256,
    /* a border between layouts: takes the gradient of a vector as a row per sequence, see
       wf_gradient.summed */
    WF_OP_BORDER = 512,
    /* one term of the sum is picked, all others are zeros: any order has the same bits */
    WF_OP_SELECT = 1024,
    /* the sum is one chain, in each chunk of a batch (WF_CHUNKS_EACH) that is summed
       too */
    WF_OP_CHAIN = 2048,
    /* output o is the value of operand o, moved or as it is, and wants a gradient where that
       does: its uses are uses of the operand, whose gradients have one order (fan_in.c) */
    WF_OP_PASS = 4096,
    /* its gradient recomputes forward on a tape of its own, in which operands may have several
       uses */
    WF_OP_REPLAY = 8192,
    /* each output sums the letters that it alone lacks: gradients of several operands, made
       together */
    WF_OP_OWN_SUMS = 16384,
    /* dim 0 of the first operand, a mixture's experts (WF_CHUNKS_EXPERTS), is summed with a
       chunk for each index */
    WF_OP_EXPERTS = 32768,
    /* begins gradients of its own: the walk back takes it whether its outputs have gradients or
       not, and wf_gradient.dout may be NULL */
    WF_OP_ROOT = 65536,
    /* sums whole numbers, of which every order has one result */
    WF_OP_COUNTS = 131072,
    /* sums the tokens of each sequence: long ones have more chunks than 8 (wf_token_chunks) */
    WF_OP_TOKENS = 262144,
    /* the last operand, and others of as many dims, may be partial sums of which one term of
       each row is picked, as all others are zeros: a row's result is that term's, or of zeros
       0, so outputs are such sums too */
    WF_OP_PICKED = 524288,
    /* each row of results [b, t, n] is made of the same row of operands of three dims, and of
       the others, which have fewer: rows may come, and be computed, in blocks (core/later.h) */
    WF_OP_ROWS = 1048576,
    /* its gradient takes one whose rows come later */
    WF_OP_LATER = 2097152
};

/* Operand i, output o, in a mask of both. */
#define WF_IN(i)  (1u << (i))
#define WF_OUT(o) (1u << (16 + (o)))

#define WF_SAVE_IN(i)  WF_IN(i)
#define WF_SAVE_OUT(o) WF_OUT(o)

typedef struct wf_op wf_op;

/** wf_call - one application of an op, as kernels and hooks see it. */
typedef struct wf_call {
    const wf_op *op;
    wf_context *ctx;
    int n_in, n_out;
    wf_tensor *in[WF_MAX_INPUTS];
    wf_tensor *out[WF_MAX_OUTPUTS];
    /* NULL, or the existing tensor that takes an output: of its type, shape and layout, and not
       while a tape records */
    wf_tensor *into[WF_MAX_OUTPUTS];
    const void *attr; /* the op's own struct of parameters, at most WF_MAX_ATTRIBUTES bytes */
    size_t attr_size;
    const char *signature; /* this call's; filled in by wf_dispatch, valid until it returns */
} wf_call;

/**
 * wf_kernel - computes the local outputs of a call; workspace may be NULL (none needed)
 *
 * It sees floats of the device's type: what is stored as bf16 is widened before and rounded
 * after it, except for operands that it declares to take as they are stored.
 */
typedef struct wf_kernel {
    wf_status (*run)(const wf_call *call, void *workspace);
    /* NULL: none; called in a plan too, so a call that cannot be run fails here */
    size_t (*workspace)(const wf_call *call);
    unsigned mixed_ok; /* WF_IN, WF_OUT: operands taken in either type, each for itself */
    /* WF_IN, WF_OUT: operands taken as bf16 where all of them are, and where the context does
       not compute in fp32 (wf_context_options.compute_fp32) */
    unsigned all_bf16;
    unsigned dynamic8_ok; /* WF_IN: operands taken in 8 bits too (core/numerics/dynamic8.h) */
    /* NULL, or the same for n calls that change tensors of their own, by few launches: of an op
       in place without workspace (core/together.h) */
    wf_status (*run_many)(const wf_call *calls, int n);
    /* NULL, or returns which operands that are stored as nf4 this call takes as they are stored
       (WF_IN), instead of widened: to bf16 where `bf16`, else to floats */
    unsigned (*nf4_ok)(const wf_call *call, bool bf16);
} wf_kernel;

/** wf_device_kernel - the kernel that an application's op brings for one device. */
typedef struct wf_device_kernel {
    const char *device; /* wf_device.name; NULL ends a list */
    const wf_kernel *kernel;
} wf_device_kernel;

/* Lists the kernels of an application's op, for a wf_op at file scope, where the list lives as
   long as the op. */
#define WF_KERNELS(...)                                                                        \
    (const wf_device_kernel[])                                                                 \
    {                                                                                          \
        __VA_ARGS__,                                                                           \
        {                                                                                      \
            NULL, NULL                                                                         \
        }                                                                                      \
    }

/** wf_gradient - one node of the tape on its way back. */
typedef struct wf_gradient {
    wf_context *ctx;
    const void *attr;
    int n_in, n_out;
    wf_tensor *in[WF_MAX_INPUTS];    /* those that the op saves (WF_SAVE_IN), else NULL */
    wf_tensor *out[WF_MAX_OUTPUTS];  /* those that the op saves (WF_SAVE_OUT), else NULL */
    wf_tensor *dout[WF_MAX_OUTPUTS]; /* NULL where an output was not used */
    bool want[WF_MAX_INPUTS];        /* the elements of din that this call has to fill */
    /* Leaves that are still to get a gradient, from this call or from a later one: an op that
       makes it in one pass with what is wanted fills it in now. */
    bool owed[WF_MAX_INPUTS];
    /* The operand is the result of an op, which takes a gradient of its shape. Leaves and
       borders take that of a vector as a row per sequence: the code that sums it knows whether
       ranks share a sequence. */
    bool summed[WF_MAX_INPUTS];
    /* The gradient goes to a border alone, which takes rows that are computed later
       (wf_results_later). */
    bool later[WF_MAX_INPUTS];
    /* Filled by the op, by calls of public ops alone. Others than the wanted ones may be filled
       as well where they cost nothing and are right: a leaf's is kept, and not asked for a
       second time. */
    wf_tensor *din[WF_MAX_INPUTS];
    bool defer;           /* this walk leaves gradients of weights to the next one */
    struct wf_node *node; /* for wf_tape_adopt */
} wf_gradient;

struct wf_op {
    const char *name;
    const char *signature;
    /* NULL, or writes the signature of a call into text and returns it: for an op whose
       attributes say which dims it works on (the dim of a sum, the order of a permutation).
       `signature` is then an example, the one of the generated tests. */
    const char *(*write_signature)(const wf_call *call, char text[WF_SIGNATURE_TEXT]);
    unsigned flags;
    unsigned save;        /* operands and outputs that its gradient reads: WF_SAVE_IN, .. */
    unsigned save_others; /* inputs that only the gradients of other inputs read: WF_SAVE_IN */
    unsigned weights; /* those of them that one another's gradients do not read: WF_SAVE_IN */
    unsigned save_shape; /* inputs of which its gradient reads the shape alone: WF_SAVE_IN */
    wf_kernel reference; /* plain loop in double; f64 operands */
    void (*backward)(wf_gradient *grad); /* NULL: no gradient */
    /* NULL, or output 0 once more, with the same bits, from what the op saves (in, out, attr):
       for an op whose result takes more to keep than to recompute. Gradients that read it have
       it recomputed then. */
    wf_tensor *(*recompute)(const wf_gradient *grad);
    /* NULL, or backward for the same call of `passes` (2 or 4) passes: fills first.din with the
       sums over them of the gradients of leaves, each a node of the tree
       (core/numerics/tree.h). Those of first.want are wanted; the others' want is alike. Where
       it leaves NULL, backward makes the gradient of each pass. */
    void (*backward_joined)(int passes, wf_gradient *const *grad);
    double (*flops)(const wf_call *call); /* NULL, or this rank's work of a matrix product */
    /* NULL, or what of that neither the forward pass nor another rank does, too */
    double (*model_flops)(const wf_call *call);
    /* bit i: operand i is i32; the others are of the device's float type, or stored as bf16
       unless the op writes to an operand */
    unsigned integers;
    unsigned shapes; /* bit i: of operand i only the shape is read */
    unsigned writes; /* WF_IN: operands beside the first that an op in place writes to */
    /* bit o: output o is of the device's type, whatever results are stored as: statistics,
       losses, gradients of parameters */
    unsigned keep_fp32;
    /* bit o: with wf_context_options.fp32_residual, output o is of the device's type where
       operand 0 is; and gradients of operands that are stored as bf16 are too */
    unsigned follows;
    /* NULL, or the dims of output `out` where the signature cannot say them. */
    wf_status (*shape)(const wf_call *call, int out, int *ndim, wf_dim *dims);
    /* An application's op: its kernel for each device that it runs on, by the device's name,
       ended by {NULL, NULL}: WF_KERNELS({"cpu", &kernel}). NULL for rows of kernels/ops.def:
       each device has a table of those. */
    const wf_device_kernel *kernels;
    int id; /* row of kernels/ops.def, counted from 1; 0 for an application's op */
};

/** wf_op_kernel - returns the kernel that an application's op brings for a device; NULL: it has
 * none. */
static inline const wf_kernel *wf_op_kernel(const wf_op *op, const char *device)
{
    for (const wf_device_kernel *k = op->kernels; k && k->device; k++)
        if (strcmp(k->device, device) == 0)
            return k->kernel;
    return NULL;
}

/**
 * wf_dispatch - runs an op, the one path of all of them: operands and the sticky error ->
 * shapes from the signature -> legal layouts -> allocate -> kernel of the device -> record on
 * the tape.
 *
 * @param call  op, ctx, n_in, in, n_out, attr and into filled in; out is filled by this call
 * Errors:  recorded in the context; every out is then NULL. A NULL operand gives NULL outputs,
 *          and is WF_EINVAL where nothing failed before
 */
WF_API wf_status wf_dispatch(wf_call *call);

/** wf_apply - runs an op of one output by wf_dispatch: operands follow n_in as wf_tensor
 * pointers. Owner: the innermost scope. Errors: in the context; NULL then. */
WF_API wf_tensor *wf_apply(const wf_op *op, const void *attr, size_t attr_size, int n_in, ...);

/**
 * wf_chunk_dim - returns the one of the dims [first, end) of a shape that has the chunks of a
 * sum over all of them
 *
 * It is the last one of WF_CHUNKS_8: the heads of [batch, tokens, heads, head_dim], else the
 * tokens. A chunk is one chain over everything else, so an axis that splits another one of
 * these dims shows in the sum's bits, as one that splits a dim of one chunk does. (A batch that
 * is summed with other dims, WF_CHUNKS_EACH in front, has a chunk for each of its indices
 * instead.)
 *
 * Returns: -1 where all of it is one chunk
 */
WF_HOST_DEVICE static inline int wf_chunk_dim(const wf_dim *dim, int first, int end)
{
    int d = end - 1;

    while (d >= first && dim[d].chunks != WF_CHUNKS_8)
        d--;
    return d >= first ? d : -1;
}

/**
 * wf_chunk_cuts - cuts a sum over this rank's part of a dim in chunks.
 *
 * @param at  filled with local offsets at[0] = 0 .. at[n] = local; for WF_CHUNKS_8 these are
 *            the global chunks cut down to the part, most of them empty where it is a small one
 *            (an empty chunk is +0, so the whole tree gives the node of any subtree)
 * Returns: n: wf_context_chunks for WF_CHUNKS_8, else 1. WF_CHUNKS_EACH has its indices
 */
WF_API int wf_chunk_cuts(const wf_tensor *t, int dim, int64_t at[WF_MAX_CHUNKS + 1]);

WF_END_DECLS

#endif
