/* core/tape.c - the list of ops that ran; the walk back over it is in backward.c. */
#include "core/tape_parts.h"
#include <string.h>

wf_tape *wf_tape_open(wf_context *ctx)
{
    wf_tape *tape = wf_blocks_take(&ctx->blocks, sizeof *tape);

    if (!tape) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a tape");
        return NULL;
    }
    *tape = (wf_tape){.ctx = ctx, .serial = ++ctx->tapes};
    return ctx->tape = tape;
}

void wf_tape_close(wf_tape *tape)
{
    wf_context *ctx;

    if (!tape)
        return;
    ctx = tape->ctx;
    if (ctx->tape == tape)
        ctx->tape = NULL;
    wf_tape_settle(tape);
    while (tape->newest) {
        node *n = tape->newest;

        tape->newest = n->before;
        wf_node_forget(n);
        wf_blocks_give(&ctx->blocks, n, sizeof *n);
    }
    wf_blocks_give(&ctx->blocks, tape, sizeof *tape);
}

wf_tape *wf_tape_switch(wf_context *ctx, wf_tape *tape)
{
    wf_tape *last = ctx->tape;

    ctx->tape = tape;
    return last;
}

bool wf_context_recording(const wf_context *ctx)
{
    return ctx->tape != NULL;
}

wf_tensor *wf_leaf(wf_tensor *parameter)
{
    wf_tensor *t = wf_tensor_alias(parameter);

    if (t)
        t->requires_grad = true;
    return t;
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

/* Whether another operand than i wants a gradient. */
static bool others_want(const node *n, int i)
{
    for (int j = 0; j < n->n_in; j++)
        if (j != i && (n->from[j].leaf || n->from[j].made_by))
            return true;
    return false;
}

static void save_input(node *n, int i, wf_tensor *t)
{
    if ((n->op->save | n->op->save_shape) & WF_SAVE_IN(i)) {
        n->in[i] = wf_tensor_retain(t);
    } else if ((n->op->save_others & WF_SAVE_IN(i)) && others_want(n, i)) {
        n->is_origin[i] = t->origin != NULL;
        n->again[i] = t->layout;
        n->in[i] = wf_tensor_retain(t->origin ? t->origin : t);
    }
    n->in_version[i] = n->in[i] ? wf_tensor_version(n->in[i]) : 0;
}

wf_status wf_tape_record(const wf_call *call)
{
    wf_tape *tape = call->ctx->tape;
    bool wanted = false;
    node *n;

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
        wanted |= t->requires_grad;
    }
    if (!wanted)
        return WF_OK;
    n = append(tape);
    if (!n)
        return wf_fail(call->ctx, WF_ENOMEM, "no memory for a node of the tape");
    n->op = call->op;
    n->path = call->ctx->path;
    n->n_in = call->n_in;
    n->n_out = call->n_out;
    if (call->attr_size)
        memcpy(n->attr, call->attr, call->attr_size);
    for (int i = 0; i < call->n_in; i++) {
        wf_tensor *t = call->in[i];

        if (t->requires_grad && t->tape)
            n->from[i] = (edge){.made_by = t->node, .output = t->output};
        else if (t->requires_grad)
            n->from[i].leaf = wf_tensor_retain(t);
    }
    for (int i = 0; i < call->n_in; i++)
        save_input(n, i, call->in[i]);
    for (int o = 0; o < call->n_out; o++) {
        wf_tensor *t = call->out[o];

        t->requires_grad = true;
        t->tape = tape->serial;
        t->node = n;
        t->output = o;
        if (call->op->save & WF_SAVE_OUT(o)) {
            n->out[o] = wf_tensor_retain(t);
            n->out_version[o] = wf_tensor_version(t);
        }
    }
    return WF_OK;
}

wf_status wf_tape_mark(wf_context *ctx, wf_status (*passed)(void *arg), void *arg)
{
    node *n;

    if (!ctx->tape)
        return ctx->error.code;
    n = append(ctx->tape);
    if (!n)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the tape's mark");
    n->passed = passed;
    n->arg = arg;
    ctx->tape->marks++;
    return WF_OK;
}
<<<<<<< HEAD
||||||| 963c1d3

/* Two gradients of different types meet in the device's: the one that is stored as bf16 is widened. */
static wf_status widen_either(wf_context *ctx, wf_tensor **place, wf_tensor **grad)
{
    if ((*place)->dtype == (*grad)->dtype)
        return WF_OK;
    if ((*grad)->dtype == WF_BF16) {
        *grad = wf_cast(*grad, ctx->device->dtype);
    } else {
        wf_tensor *wide = wf_cast(*place, ctx->device->dtype);

        if (wide) {
            wf_tensor_release(*place);
            *place = wf_tensor_retain(wide);
        }
    }
    return ctx->error.code;
}

/* Put a gradient where it belongs, adding it to what is there. */
static wf_status deliver(wf_context *ctx, wf_tensor **place, wf_tensor *grad)
{
    if (!grad)
        return ctx->error.code;
    if (!*place) {
        *place = wf_tensor_retain(grad);
        return WF_OK;
    }
    if (wf_tensor_is_partial(grad)) {
        char text[256];

        return wf_fail(ctx, WF_ELAYOUT,
                       "two gradients of one tensor meet as partial sums, %s: sum each first, "
                       "with a border at each use",
                       wf_tensor_describe(grad, text, sizeof text));
    }
    if (widen_either(ctx, place, &grad) != WF_OK)
        return ctx->error.code;
    return wf_node_add(place, grad);
}

/* Give a gradient to an output of a node. */
static wf_status deliver_to_node(wf_context *ctx, node *n, int output, wf_tensor *grad)
{
    if (n->walked)
        return wf_fail(
            ctx, WF_EINVAL,
            "%s: gradients went through it before, and what it saved is gone: run the "
            "forward pass again, or add what you differentiate and go back once",
            n->op->name);
    return deliver(ctx, &n->dout[output], grad);
}

/* Ask an op for the gradients of those operands which are leaves, or of those which are not. */
static wf_status step_back(wf_context *ctx, node *n, bool leaves)
{
    wf_gradient g = {.ctx = ctx, .attr = n->attr, .n_in = n->n_in, .n_out = n->n_out};
    wf_memory_kind kind = ctx->kind;
    const char *path;
    bool any = false;

    memcpy(g.in, n->in, sizeof g.in);
    memcpy(g.out, n->out, sizeof g.out);
    memcpy(g.dout, n->dout, sizeof g.dout);
    for (int i = 0; i < n->n_in; i++) {
        g.want[i] = leaves ? n->from[i].leaf != NULL : n->from[i].made_by != NULL;
        any |= g.want[i];
    }
    if (!any)
        return WF_OK;
    path = wf_context_enter(ctx, n->path);
    wf_scope_open(ctx);
    for (int i = 0; leaves && i < n->n_in; i++)
        if (n->is_origin[i])
            g.in[i] = ctx->distribution->move(n->in[i], n->again[i]);
    if (leaves)
        ctx->kind = WF_MEMORY_GRADIENT;
    if (ctx->error.code == WF_OK)
        n->op->backward(&g);
    ctx->kind = kind;
    for (int i = 0; i < n->n_in && ctx->error.code == WF_OK; i++) {
        edge *e = &n->from[i];

        if (e->leaf && g.din[i]) { /* asked for, or made by the way */
            deliver(ctx, &e->leaf->grad, g.din[i]);
            wf_tensor_release(e->leaf);
            e->leaf = NULL;
        } else if (g.want[i] && !leaves && g.din[i]) {
            deliver_to_node(ctx, e->made_by, e->output, g.din[i]);
        }
    }
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->error.code;
}

static bool has_gradient(const node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->dout[o])
            return true;
    return false;
}

/* Of what was recorded after `from` only the marks. */
static wf_status walk(wf_tape *tape, node *from, bool defer)
{
    wf_context *ctx = tape->ctx;
    wf_status status = WF_OK;
    bool later = true;

    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        later &= n != from;
        if (n->walked || (later && !n->passed))
            continue;
        n->walked = true;
        if (n->passed)
            status = n->passed(n->arg);
        if (has_gradient(n)) {
            status = step_back(ctx, n, false);
            n->deferred = defer && has_leaves(n);
            if (status == WF_OK && !n->deferred)
                status = step_back(ctx, n, true);
        }
        if (!n->deferred)
            forget(n);
    }
    return status;
}

static wf_status check_backward(wf_context *ctx, const wf_tensor *root, const wf_tensor *seed)
{
    char text_root[256], text_seed[256];
    bool alike;

    if (!root || !seed)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the %s is NULL, though nothing failed "
                       "before",
                       root ? "seed" : "tensor to start from");
    if (!ctx->tape || root->tape != ctx->tape->serial)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the tensor was not made on the current tape: open a tape "
                       "before the forward pass, and use parameters through wf_leaf");
    alike = (root->rounds_to == seed->dtype || ctx->device->dtype == seed->dtype) &&
            root->ndim == seed->ndim;
    for (int i = 0; alike && i < root->ndim; i++)
        alike = root->dim[i].size == seed->dim[i].size;
    if (!alike)
        return wf_fail(ctx, WF_ESHAPE, "wf_backward: the seed, %s, is not like the tensor, %s",
                       wf_tensor_describe(seed, text_seed, sizeof text_seed),
                       wf_tensor_describe(root, text_root, sizeof text_root));
    return WF_OK;
}

wf_status wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights)
{
    wf_context *ctx;
    wf_tape *tape, *recording;
    wf_status status;

    if (!root && !seed)
        return WF_EINVAL;
    ctx = root ? root->ctx : seed->ctx;
    status = ctx->error.code;
    if (status == WF_OK)
        status = check_backward(ctx, root, seed);
    if (status != WF_OK)
        return status;
    tape = ctx->tape;
    if (defer_weights && tape->marks)
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "wf_backward: gradients of weights cannot be deferred where something "
            "waits for them on the way (wf_tape_mark), as sharded strategies do: use "
            "no_shard and local accumulation, or do not defer");
    recording = wf_tape_switch(ctx, NULL);
    status = deliver_to_node(ctx, root->node, root->output, seed);
    if (status == WF_OK)
        status = walk(tape, root->node, defer_weights);
    wf_tape_switch(ctx, recording);
    return status;
}

wf_status wf_backward_weights(wf_tape *tape)
{
    wf_context *ctx;
    wf_tape *recording;
    wf_status status;

    if (!tape)
        return WF_EINVAL; /* the reason is in the context that could not open it */
    ctx = tape->ctx;
    recording = wf_tape_switch(ctx, NULL);
    status = ctx->error.code;
    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        if (!n->deferred)
            continue;
        status = step_back(ctx, n, true);
        n->deferred = false;
        forget(n);
    }
    wf_tape_switch(ctx, recording);
    return status;
}
=======

/* Two gradients of different types meet in the device's: the one that is stored as bf16 is widened. */
static wf_status widen_either(wf_context *ctx, wf_tensor **place, wf_tensor **grad)
{
    if ((*place)->dtype == (*grad)->dtype)
        return WF_OK;
    if ((*grad)->dtype == WF_BF16) {
        *grad = wf_cast(*grad, ctx->device->dtype);
    } else {
        wf_tensor *wide = wf_cast(*place, ctx->device->dtype);

        if (wide) {
            wf_tensor_release(*place);
            *place = wf_tensor_retain(wide);
        }
    }
    return ctx->error.code;
}

/* Put a gradient where it belongs, adding it to what is there. */
static wf_status deliver(wf_context *ctx, wf_tensor **place, wf_tensor *grad)
{
    if (!grad)
        return ctx->error.code;
    if (!*place) {
        *place = wf_tensor_retain(grad);
        return WF_OK;
    }
    if (wf_tensor_is_partial(grad)) {
        char text[256];

        return wf_fail(ctx, WF_ELAYOUT,
                       "two gradients of one tensor meet as partial sums, %s: sum each first, "
                       "with a border at each use",
                       wf_tensor_describe(grad, text, sizeof text));
    }
    if (widen_either(ctx, place, &grad) != WF_OK)
        return ctx->error.code;
    return wf_node_add(place, grad);
}

/* Give a gradient to an output of a node. */
static wf_status deliver_to_node(wf_context *ctx, node *n, int output, wf_tensor *grad)
{
    if (n->walked)
        return wf_fail(
            ctx, WF_EINVAL,
            "%s: gradients went through it before, and what it saved is gone: run the "
            "forward pass again, or add what you differentiate and go back once",
            n->op->name);
    return deliver(ctx, &n->dout[output], grad);
}

/* Ask an op for the gradients of those operands which are leaves, or of those which are not. */
static wf_status step_back(wf_context *ctx, node *n, bool leaves)
{
    wf_gradient g = {.ctx = ctx, .attr = n->attr, .n_in = n->n_in, .n_out = n->n_out};
    wf_memory_kind kind = ctx->kind;
    const char *path;
    bool any = false;

    memcpy(g.in, n->in, sizeof g.in);
    memcpy(g.out, n->out, sizeof g.out);
    memcpy(g.dout, n->dout, sizeof g.dout);
    for (int i = 0; i < n->n_in; i++) {
        g.want[i] = leaves ? n->from[i].leaf != NULL : n->from[i].made_by != NULL;
        any |= g.want[i];
    }
    if (!any)
        return WF_OK;
    path = wf_context_enter(ctx, n->path);
    wf_scope_open(ctx);
    for (int i = 0; leaves && i < n->n_in; i++)
        if (n->is_origin[i])
            g.in[i] = ctx->distribution->move(n->in[i], n->again[i]);
    if (leaves)
        ctx->kind = WF_MEMORY_GRADIENT;
    if (ctx->error.code == WF_OK)
        n->op->backward(&g);
    ctx->kind = kind;
    for (int i = 0; i < n->n_in && ctx->error.code == WF_OK; i++) {
        edge *e = &n->from[i];

        if (e->leaf && g.din[i]) { /* asked for, or made by the way */
            deliver(ctx, &e->leaf->grad, g.din[i]);
            wf_tensor_release(e->leaf);
            e->leaf = NULL;
        } else if (g.want[i] && !leaves && g.din[i]) {
            deliver_to_node(ctx, e->made_by, e->output, g.din[i]);
        }
    }
    wf_scope_close(ctx);
    wf_context_enter(ctx, path);
    return ctx->error.code;
}

static bool has_gradient(const node *n)
{
    for (int o = 0; o < n->n_out; o++)
        if (n->dout[o])
            return true;
    return false;
}

/* Of what was recorded after `from` only the marks. */
static wf_status walk(wf_tape *tape, node *from, bool defer)
{
    wf_context *ctx = tape->ctx;
    wf_status status = WF_OK;
    bool later = true;

    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        later &= n != from;
        if (n->walked || (later && !n->passed))
            continue;
        n->walked = true;
        if (n->passed)
            status = n->passed(n->arg);
        if (has_gradient(n)) {
            status = step_back(ctx, n, false);
            n->deferred = defer && has_leaves(n);
            if (status == WF_OK && !n->deferred)
                status = step_back(ctx, n, true);
        }
        if (!n->deferred)
            forget(n);
    }
    return status;
}

static wf_status check_backward(wf_context *ctx, const wf_tensor *root, const wf_tensor *seed)
{
    char text_root[256], text_seed[256];
    bool alike;

    if (!root || !seed)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the %s is NULL, though nothing failed "
                       "before",
                       root ? "seed" : "tensor to start from");
    if (!ctx->tape || root->tape != ctx->tape->serial)
        return wf_fail(ctx, WF_EINVAL,
                       "wf_backward: the tensor was not made on the current tape: open a tape "
                       "before the forward pass, and use parameters through wf_leaf");
    alike = (seed->dtype == WF_BF16 || seed->dtype == ctx->device->dtype) &&
            root->ndim == seed->ndim;
    for (int i = 0; alike && i < root->ndim; i++)
        alike = root->dim[i].size == seed->dim[i].size;
    if (!alike)
        return wf_fail(ctx, WF_ESHAPE, "wf_backward: the seed, %s, is not like the tensor, %s",
                       wf_tensor_describe(seed, text_seed, sizeof text_seed),
                       wf_tensor_describe(root, text_root, sizeof text_root));
    return WF_OK;
}

wf_status wf_backward(wf_tensor *root, wf_tensor *seed, bool defer_weights)
{
    wf_context *ctx;
    wf_tape *tape, *recording;
    wf_status status;

    if (!root && !seed)
        return WF_EINVAL;
    ctx = root ? root->ctx : seed->ctx;
    status = ctx->error.code;
    if (status == WF_OK)
        status = check_backward(ctx, root, seed);
    if (status != WF_OK)
        return status;
    tape = ctx->tape;
    if (defer_weights && tape->marks)
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "wf_backward: gradients of weights cannot be deferred where something "
            "waits for them on the way (wf_tape_mark), as sharded strategies do: use "
            "no_shard and local accumulation, or do not defer");
    recording = wf_tape_switch(ctx, NULL);
    status = deliver_to_node(ctx, root->node, root->output, seed);
    if (status == WF_OK)
        status = walk(tape, root->node, defer_weights);
    wf_tape_switch(ctx, recording);
    return status;
}

wf_status wf_backward_weights(wf_tape *tape)
{
    wf_context *ctx;
    wf_tape *recording;
    wf_status status;

    if (!tape)
        return WF_EINVAL; /* the reason is in the context that could not open it */
    ctx = tape->ctx;
    recording = wf_tape_switch(ctx, NULL);
    status = ctx->error.code;
    for (node *n = tape->newest; n && status == WF_OK; n = n->before) {
        if (!n->deferred)
            continue;
        status = step_back(ctx, n, true);
        n->deferred = false;
        forget(n);
    }
    wf_tape_switch(ctx, recording);
    return status;
}
>>>>>>> tester
