/* core/tape.c - autograd's tape, the list of ops that ran; the walk back over it is in
   backward.c. */
#include "core/sharing_internal.h"
#include "core/tape_internal.h"
#include "core/dtype.h"
#include <inttypes.h>
#include <string.h>

wf_tape *wf_tape_open(wf_context *ctx)
{
    wf_tape *tape = wf_blocks_take(&ctx->blocks, sizeof *tape);

    if (!tape) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a tape");
        return NULL;
    }
    *tape = (wf_tape){.ctx = ctx, .serial = ++ctx->tapes};
    return ctx->now.tape = tape;
}

void wf_tape_close(wf_tape *tape)
{
    wf_context *ctx;

    if (!tape)
        return;
    ctx = tape->ctx;
    if (ctx->now.tape == tape)
        ctx->now.tape = NULL;
    wf_tape_settle(tape);
    while (tape->newest) {
        node *n = tape->newest;

        tape->newest = n->before;
        wf_node_forget(ctx, n);
        while (n->inner) {
            wf_tape *inner = n->inner;

            n->inner = inner->older;
            wf_tape_close(inner);
        }
        wf_blocks_give(&ctx->blocks, n, sizeof *n);
    }
    wf_blocks_give(&ctx->blocks, tape, sizeof *tape);
}

wf_tape *wf_tape_switch(wf_context *ctx, wf_tape *tape)
{
    wf_tape *last = ctx->now.tape;

    ctx->now.tape = tape;
    return last;
}

bool wf_context_recording(const wf_context *ctx)
{
    return ctx->now.tape != NULL;
}

wf_tensor *wf_leaf(wf_tensor *parameter)
{
    wf_tensor *t = wf_tensor_alias(parameter);

    if (t)
        t->requires_grad = true;
    return t;
}

/* Passes a source's gradient as it is to where its value came from. */
static void source_backward(wf_gradient *g)
{
    g->din[0] = g->dout[0];
}

const wf_op wf_source_op = {.name = "source",
                            .signature = "...->...",
                            .flags = WF_OP_PASS,
                            .backward = source_backward};

wf_tensor *wf_source(wf_tensor *t)
{
    wf_tensor *source = wf_tensor_alias(t);
    wf_call call = {
        .op = &wf_source_op, .n_in = 1, .in = {source}, .n_out = 1, .out = {source}};

    if (!source || !source->ctx->now.tape)
        return source;
    call.ctx = source->ctx;
    source->requires_grad = true; /* a leaf, until it is recorded as made here */
    return wf_tape_record(&call) == WF_OK ? source : NULL;
}

wf_tensor *wf_source_of(wf_gradient *g, int i)
{
    wf_tensor *source = wf_source(g->in[i]);
    edge *to;

    if (!source || !source->tape)
        return source;
    to = &source->node->from[0];
    source->node->recomputes = g->node->op->flags & WF_OP_REPLAY;
    wf_tensor_release(to->leaf);
    *to = g->node->from[i];
    wf_tensor_retain(to->leaf);
    return source;
}

wf_tensor *wf_detach(wf_tensor *t)
{
    return wf_tensor_alias(t);
}

static node *append(wf_tape *tape)
{
    node *n = wf_blocks_take(&tape->ctx->blocks, sizeof *n);

    if (n) {
        memset(n, 0, sizeof *n);
        n->before = tape->newest;
        tape->newest = n;
    }
    return n;
}

/* Returns true for a leaf, whole or in part, however it was moved: its gradient then reaches
   the leaf as it is. */
static bool is_moved_leaf(const wf_tensor *t, uint64_t serial)
{
    const node *n = t->tape == serial ? t->node : NULL;
    int output = t->output;

    while (n) {
        const edge *e = &n->from[n->op->flags & WF_OP_BORDER ? output : 0];

        if (!(n->op->flags & (WF_OP_BORDER | WF_OP_LINEAR)))
            return false;
        output = e->output;
        n = e->made_by;
    }
    return true;
}

void wf_tape_report_computed(const wf_call *call, const wf_signature *sig)
{
    wf_context *ctx = call->ctx;
    uint32_t batch = 0;
    char text[256];

    for (int letter = 0; letter < WF_LETTERS; letter++)
        if (sig->known[letter] && sig->dim[letter].chunks == WF_CHUNKS_EACH)
            batch |= 1u << letter;
    for (int i = 0; i < call->n_in && batch && wf_context_exact(ctx); i++) {
        const wf_tensor *t = call->in[i];
        uint32_t has = 0;

        for (int d = 0; d < t->ndim; d++)
            has |= 1u << sig->letter[i][d];
        if (t->requires_grad && (batch & ~has) && !is_moved_leaf(t, ctx->now.tape->serial))
            wf_context_report_inexact(
                ctx,
                "not layout-exact: %s%s%s: operand %d, %s, is computed from parameters, and "
                "its gradient goes back through that in each of %" PRId64
                " micro-steps: take one of them, so that it is summed over the batch before",
                call->op->name, ctx->failure.path && *ctx->failure.path ? " in " : "",
                ctx->failure.path ? ctx->failure.path : "", i,
                wf_tensor_describe(t, text, sizeof text), ctx->now.micro_steps);
    }
}

static bool any_wants_gradient(const wf_call *call)
{
    bool wanted = false;

    for (int i = 0; i < call->n_in; i++)
        wanted |= call->in[i]->requires_grad;
    return wanted;
}

/* Returns true where an output wants a gradient: where an operand does, and where the op passes
   operands on, the one that it is the value of. */
static bool is_wanted(const wf_call *call, int output)
{
    return call->op->flags & WF_OP_PASS ? call->in[output]->requires_grad
                                        : any_wants_gradient(call);
}

/* Notes for ops without a tape that will be recomputed for one (activation checkpointing) which
   results want a gradient, and that they were computed. */
static void note_wanted(const wf_call *call)
{
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i]->requires_grad && !call->in[i]->tape) {
            call->in[i]->readers++;
            call->in[i]->prompt = true;
        }
    for (int o = 0; o < call->n_out; o++) {
        bool wanted = is_wanted(call, o);

        call->out[o]->requires_grad |= wanted;
        call->out[o]->computed = call->op->flags & WF_OP_PASS ? call->in[o]->computed : wanted;
    }
}

/* Notes the node that can recompute the first output, unless another output is stored as bf16:
   the op has read that one unrounded, which is not what is saved. */
static void note_recomputed(wf_tape *tape, node *n, const wf_call *call)
{
    bool can = call->op->recompute != NULL;

    for (int o = 1; o < n->n_out; o++)
        can = can && !(n->out[o] && wf_dtype_is_narrow(n->out[o]->dtype));
    if (!can)
        return;
    call->out[0]->recomputed.tape = tape->serial;
    call->out[0]->recomputed.node = n;
    call->out[0]->recomputed.version = wf_tensor_version(call->out[0]);
}

/* Notes of results that want a gradient which node made them, and saves those that it reads. */
static void note_results(const wf_tape *tape, node *n, const wf_call *call)
{
    for (int o = 0; o < call->n_out; o++) {
        wf_tensor *t = call->out[o];

        if (!is_wanted(call, o))
            continue;
        t->requires_grad = true;
        t->tape = tape->serial;
        t->node = n;
        t->output = o;
        if (call->op->save & WF_SAVE_OUT(o)) {
            n->out[o] = wf_tensor_retain(t);
            n->out_version[o] = wf_tensor_version(t);
        }
    }
}

/* Notes whether a leaf's gradients can wait: all of them, or none. */
static void note_prompt(node *n)
{
    bool prompt = n->op->flags & WF_OP_PASS || wf_node_reads_a_leaf(n);

    for (int i = 0; i < n->n_in && prompt; i++)
        if (n->from[i].leaf)
            n->from[i].leaf->prompt = true;
}

/* Warns of an application's op that has no gradient where one is wanted. Ops of the library
   that have none are recorded differently. */
static void warn_of_lost_gradient(const wf_call *call)
{
    if (any_wants_gradient(call) && call->op->id == 0 && call->n_out > 0)
        wf_context_warn(
            call->ctx, call->op,
            "%s has no backward (wf_op.backward), and an operand of it wants a gradient: what "
            "is before it is not trained through it. If that is meant, pass the operand "
            "through wf_detach first",
            call->op->name);
}

bool wf_context_recorded_later(wf_context *ctx, bool later)
{
    bool last = ctx->now.recorded_later;

    ctx->now.recorded_later = later;
    return last;
}

bool wf_context_is_recorded_later(const wf_context *ctx)
{
    return ctx->now.recorded_later;
}

wf_status wf_tape_record(const wf_call *call)
{
    wf_tape *tape = call->ctx->now.tape;
    node *n;

    if (!tape && call->op->backward && call->ctx->now.recorded_later)
        note_wanted(call);
    if (tape && !call->op->backward)
        warn_of_lost_gradient(call);
    if (!tape || !call->op->backward)
        return WF_OK;
    for (int i = 0; i < call->n_in; i++) {
        const wf_tensor *t = call->in[i];

        if (t->requires_grad && t->tape && t->tape != tape->serial)
            return wf_fail(call->ctx, WF_EINVAL,
                           "%s: operand %d was made on another tape, which its gradient would "
                           "not reach: pass it through wf_leaf to get the gradient, or through "
                           "wf_detach to go without",
                           call->op->name, i);
    }
    if (!any_wants_gradient(call))
        return WF_OK;
    n = append(tape);
    if (!n)
        return wf_fail(call->ctx, WF_ENOMEM, "no memory for a node of the tape");
    n->op = call->op;
    n->path = call->ctx->failure.path;
    n->point = call->ctx->now.point;
    n->n_in = call->n_in;
    n->n_out = call->n_out;
    if (call->attr_size)
        memcpy(n->attr, call->attr, call->attr_size);
    for (int i = 0; i < call->n_in; i++) {
        wf_tensor *t = call->in[i];

        if (t->requires_grad && t->tape)
            n->from[i] = (edge){
                .made_by = t->node, .output = t->output, .narrow = t->rounds_to == WF_BF16};
        else if (t->requires_grad)
            n->from[i].leaf = wf_tensor_retain(t);
        wf_edge_count(&n->from[i], n->op->flags & WF_OP_REPLAY ? WF_REPLAYED_USES : 1);
    }
    for (int i = 0; i < call->n_in; i++)
        wf_node_save_input(tape, call, n, i);
    note_prompt(n);
    note_results(tape, n, call);
    note_recomputed(tape, n, call);
    return tape->ctx->failure.error.code;
}

wf_status wf_tape_hook(wf_context *ctx, wf_walk walk, wf_status (*hook)(void *arg), void *arg)
{
    node *n;

    if (!ctx->now.tape)
        return ctx->failure.error.code;
    if (!hook)
        return wf_fail(ctx, WF_EINVAL, "a hook of the tape is NULL: give a function");
    n = append(ctx->now.tape);
    if (!n)
        return wf_fail(ctx, WF_ENOMEM, "no memory for a hook of the tape");
    n->hook = hook;
    n->arg = arg;
    n->hook_walk = walk;
    return WF_OK;
}

void wf_node_forget(wf_context *ctx, node *n)
{
    for (int i = 0; i < n->n_in; i++) {
        wf_node_release(ctx, n->recipe[i]);
        wf_tensor_release(n->in[i]);
        n->recipe[i] = NULL;
        n->in[i] = NULL;
        if (!n->from[i].given) {
            wf_tensor_release(n->from[i].leaf);
            n->from[i].leaf = NULL;
        }
    }
    for (int o = 0; o < n->n_out; o++) {
        wf_tensor_release(n->out[o]);
        wf_tensor_release(n->dout[o]);
        n->out[o] = n->dout[o] = NULL;
    }
}

/* Memory of its own for the gradient of a leaf, which its owner may change: another leaf, the
   seed or a node that is still to be walked may see the same. */
static void own(wf_tensor *leaf)
{
    wf_tensor *grad = leaf->grad, *copy;

    if (grad && grad->refs == 1 && grad->storage && grad->storage->refs == 1)
        wf_tensor_own(grad, true); /* other ranks may see it too */
    if (!grad || !grad->storage || (grad->refs == 1 && grad->storage->refs == 1))
        return;
    wf_scope_open(leaf->ctx);
    copy = wf_tensor_copy(grad);
    if (copy) {
        leaf->grad = wf_tensor_retain(copy);
        wf_tensor_release(grad);
    }
    wf_scope_close(leaf->ctx);
}

wf_status wf_tape_settle(wf_tape *tape)
{
    while (tape->given) {
        node *n = tape->given;

        tape->given = n->given;
        n->given = NULL;
        for (int i = 0; i < n->n_in; i++) {
            edge *e = &n->from[i];

            if (!e->given)
                continue;
            if (tape->ctx->failure.error.code == WF_OK)
                own(e->leaf);
            wf_tensor_release(e->leaf);
            *e = (edge){.leaf = NULL};
        }
    }
    return tape->ctx->failure.error.code;
}
