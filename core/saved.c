/* core/saved.c - which operands a node of the tape keeps for its gradient, and which it has
   recomputed. */
#include "core/tape_internal.h"
#include <string.h>

/* Returns true where another operand than i wants a gradient. */
static bool others_want(const node *n, int i)
{
    for (int j = 0; j < n->n_in; j++)
        if (j != i && (n->from[j].leaf || n->from[j].made_by))
            return true;
    return false;
}

/* Returns true where a tensor has no group, or an operand that the reader saves is of its
   group: it is then gathered for the reader's gradient, too. */
static bool comes_with(const wf_call *reader, const wf_tensor *t)
{
    if (!t->storage || !t->storage->comes_with)
        return true;
    for (int i = 0; i < reader->n_in; i++) {
        const wf_storage *s = reader->in[i]->storage;

        if ((reader->op->save | reader->op->save_others) & WF_SAVE_IN(i) && s &&
            s->comes_with == t->storage->comes_with)
            return true;
    }
    return false;
}

/* Returns the node that can recompute a tensor, with all that it needs, whatever else is
   released; NULL: keep the tensor. */
static node *recipe_of(wf_tape *tape, const wf_call *reader, const wf_tensor *t)
{
    node *made = t->recomputed.node, *n;

    if (t->recomputed.tape != tape->serial || made->walked ||
        t->recomputed.version != wf_tensor_version(t))
        return NULL;
    for (int i = 0; i < made->n_in; i++)
        if (made->in[i] && !comes_with(reader, made->in[i]))
            return NULL;
    n = wf_blocks_take(&tape->ctx->blocks, sizeof *n);
    if (!n) {
        wf_fail(tape->ctx, WF_ENOMEM, "no memory for what recomputes an operand of %s",
                reader->op->name);
        return NULL;
    }
    *n = *made;
    memset(n->from, 0, sizeof n->from);
    memset(n->dout, 0, sizeof n->dout);
    n->before = n->given = NULL;
    n->inner = NULL;
    n->holders = 1;
    for (int i = 0; i < n->n_in; i++) {
        wf_tensor_retain(n->in[i]);
        if (n->recipe[i])
            n->recipe[i]->holders++;
    }
    for (int o = 0; o < n->n_out; o++)
        wf_tensor_retain(n->out[o]);
    return n;
}

void wf_node_release(wf_context *ctx, node *n)
{
    if (!n || --n->holders > 0)
        return;
    wf_node_forget(ctx, n);
    wf_blocks_give(&ctx->blocks, n, sizeof *n);
}

static void keep(wf_tape *tape, const wf_call *call, node *n, int i, wf_tensor *t)
{
    n->recipe[i] = recipe_of(tape, call, t);
    if (!n->recipe[i])
        n->in[i] = wf_tensor_retain(t);
}

void wf_node_save_input(wf_tape *tape, const wf_call *call, node *n, int i)
{
    wf_tensor *t = call->in[i];

    if (n->op->save_shape & WF_SAVE_IN(i)) {
        n->in[i] = wf_tensor_retain(t);
    } else if (n->op->save & WF_SAVE_IN(i)) {
        keep(tape, call, n, i, t);
    } else if ((n->op->save_others & WF_SAVE_IN(i)) && others_want(n, i)) {
        n->is_origin[i] = t->origin != NULL;
        n->regather[i] = t->layout;
        keep(tape, call, n, i, t->origin ? t->origin : t);
    }
    n->in_version[i] = n->in[i] ? wf_tensor_version(n->in[i]) : 0;
}
