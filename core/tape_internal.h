/* core/tape_internal.h - the inside of a tape, for tape.c, fan_in.c, backward.c and deferred.c.
   Not installed. */
#ifndef WF_CORE_TAPE_INTERNAL_H
#define WF_CORE_TAPE_INTERNAL_H

#include "core/context_internal.h"
#include "core/signature.h"
#include "core/tape.h"

typedef struct wf_node node;

/* Who reads a value, for errors. */
typedef struct wf_reader {
    const char *path, *point; /* NULL, or its module, and the point that it had passed there */
} wf_reader;

typedef struct edge {
    node *made_by; /* the producing node */
    int output;
    wf_tensor *leaf; /* or the leaf; both absent where no gradient is wanted */
    bool reached;    /* a gradient has reached the leaf */
    bool given;      /* the leaf has it */
    bool narrow;     /* the operand is stored as bf16 */
} edge;

struct wf_node {
    node *before; /* recorded before this one */
    node *given;  /* the next one in the tape's list */
    const wf_op *op;
    const char *path,
        *point; /* the module that recorded it; NULL, or the point passed before */
    int n_in, n_out;
    int uses[WF_MAX_OUTPUTS]; /* uses of each output, through nodes that pass it on too */
    /* a source of an op that recomputes forward, which counted its uses */
    bool recomputes;
    bool walked;   /* gradients went through it: once only */
    bool deferred; /* the walk for weights is still to come by */
    edge from[WF_MAX_INPUTS];
    wf_tensor *in[WF_MAX_INPUTS], *out[WF_MAX_OUTPUTS], *dout[WF_MAX_OUTPUTS];
    /* changes in place before they were saved, or last used */
    uint32_t in_version[WF_MAX_INPUTS], out_version[WF_MAX_OUTPUTS],
        dout_version[WF_MAX_OUTPUTS];
    wf_reader first[WF_MAX_OUTPUTS]; /* the readers that dout[o] began with */
    /* instead of in[i]: the node that recomputes it */
    node *recipe[WF_MAX_INPUTS];
    int holders;                              /* holders of such a node, which is on no tape */
    const wf_layout *regather[WF_MAX_INPUTS]; /* in[i] is an origin: redistribute it to this */
    bool is_origin[WF_MAX_INPUTS];
    _Alignas(8) unsigned char attr[WF_MAX_ATTRIBUTES];
    wf_status (*hook)(void *arg); /* set by wf_tape_hook; such a node has no op */
    void *arg;
    wf_walk hook_walk;
    wf_tape *inner; /* adopted ones */
};

struct wf_tape {
    wf_context *ctx;
    uint64_t serial;
    node *newest;
    node *given;    /* those with leaves that have their gradients */
    bool defer;     /* the current walk leaves gradients of weights to the next one */
    wf_tape *older; /* links adopted ones */
};

extern const wf_op wf_source_op;

/* Let go of what a node holds, once it is not needed any more; adopted tapes stay. */
void wf_node_forget(wf_context *ctx, node *n);

/* Keep operand i of a call, or what recomputes it, as far as the gradient reads it. */
void wf_node_save_input(wf_tape *tape, const wf_call *call, node *n, int i);

/* Let go of what recomputes an operand; NULL is nothing. */
void wf_node_release(wf_context *ctx, node *n);

/* Keeps from now on what was to be recomputed: parameters that this reads may not be there
   later. */
wf_status wf_node_keep(wf_tape *tape, node *n);

/* Returns whether a node's leaves can wait for the walk for weights; some are owed their
   gradients, or tapes that were walked inside of it have some that are. */
bool wf_node_can_wait(const node *n);

/* Returns whether operand i is read for the gradients that are asked for. */
bool wf_node_reads(const node *n, const wf_gradient *g, int i);

/* Returns whether an edge's leaf has no gradient as yet. */
static inline bool wf_edge_owes(const edge *e)
{
    return e->leaf && !e->given;
}

/* The uses that a module is taken to have of its input until it is recomputed (WF_OP_REPLAY):
   several. */
enum { WF_REPLAYED_USES = 2 };

/* Count n more uses of what an operand came from. */
void wf_edge_count(edge *e, int n);

/* Returns whether a leaf that is owed a gradient here gets enough of them for their order to
   count, and some that cannot wait. */
bool wf_node_has_order(const node *n);

/* Returns whether a leaf's elements are read for what leaves are owed. They may be there in the
   first walk alone. */
bool wf_node_reads_a_leaf(const node *n);

/* Give a gradient to an output of a node, or, where that passes it on, to what it came from;
   reader is who it comes from. */
wf_status wf_node_deliver(wf_context *ctx, node *n, int output, wf_tensor *grad,
                          wf_reader reader);

/* Give a gradient to what operand i of a node came from. */
wf_status wf_edge_deliver(wf_context *ctx, node *n, int i, wf_tensor *grad);

/* Calls the backward function of a node's op, of which the context knows meanwhile. */
static inline void wf_node_call_backward(wf_context *ctx, const node *n, wf_gradient *g)
{
    const node *outside = ctx->now.gradient_of;

    ctx->now.gradient_of = n;
    n->op->backward(g);
    ctx->now.gradient_of = outside;
}

/* Note the elements that gradients of a node's outputs have now. */
void wf_node_note_versions(node *n);

/* Begins to gather operand 0 once more, from its origin, where gradients of leaves read it: it
   moves while those of inputs are computed. */
wf_status wf_node_gather_ahead(const wf_tape *tape, node *n);

/* Gives a backward function what was saved as it was; where an origin was saved, redistributed
   from it once more. */
wf_status wf_node_recall(wf_context *ctx, node *n, wf_gradient *g);

/* Returns whether an operand's gradient is to have its shape: not a row per sequence
   (wf_gradient.summed). */
static inline bool wf_edge_summed(const edge *e)
{
    return e->made_by && !(e->made_by->op->flags & WF_OP_BORDER);
}

/* Returns whether a node is a border of one tensor with one use, whose gradient may be one
   whose rows come later. */
bool wf_node_takes_later(const node *n);

/* Ask an op for the gradients of those operands which are leaves, of those which are not, or of
   all in their order. */
enum { WF_STEP_INPUTS = 1, WF_STEP_LEAVES = 2 };
wf_status wf_node_step_back(wf_tape *tape, node *n, unsigned of);

/* Steps back for the leaves of one call in several passes, whose gradients tape[0]'s leaves get
   as a sum. */
wf_status wf_node_step_back_joined(int passes, wf_tape *const *tape, node *const *n);

/* Call a node's hook, which finds leaves settled. */
wf_status wf_node_call_hook(wf_tape *tape, node *n);

/* Settles a tape, so that each leaf has a gradient of its own. */
wf_status wf_tape_settle(wf_tape *tape);

#endif
