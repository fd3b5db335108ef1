/* nn/pass.c - forward passes in flight, and the leaves of parameters in them. */
#include "nn/pass_internal.h"
#include "core/memory/blocks.h"
#include "nn/uses_internal.h"
#include <string.h>

struct wf_nn_pass {
    wf_context *ctx;
    wf_nn_leaves *leaves;
};

wf_nn_pass *wf_nn_pass_open(wf_context *ctx)
{
    wf_nn_pass *pass = wf_blocks_take(wf_context_blocks(ctx), sizeof *pass);

    if (pass)
        *pass = (wf_nn_pass){.ctx = ctx};
    else
        wf_fail(ctx, WF_ENOMEM, "no memory for a forward pass");
    return pass;
}

wf_nn_pass *wf_nn_pass_switch(wf_context *ctx, wf_nn_pass *pass)
{
    wf_nn_uses *uses = wf_nn_uses_of(ctx);
    wf_nn_pass *last = uses->pass;

    uses->pass = pass;
    return last;
}

int64_t wf_nn_next_use(wf_context *ctx)
{
    return wf_nn_uses_of(ctx)->next;
}

static wf_nn_leaves *find(const wf_nn_parameter *p, const wf_nn_pass *pass)
{
    wf_nn_leaves *l = p->leaves;

    while (l && l->pass != pass)
        l = l->next;
    return l;
}

const wf_nn_leaves *wf_nn_leaves_of(const wf_nn_parameter *p, const wf_nn_pass *pass)
{
    static const wf_nn_leaves none;
    const wf_nn_leaves *l = find(p, pass);

    return l ? l : &none;
}

static void forget(wf_nn_leaves *l)
{
    while (l->uses > 0)
        wf_tensor_release(l->use[--l->uses]);
}

void wf_nn_leaves_forget(wf_nn_parameter *p, const wf_nn_pass *pass)
{
    wf_nn_leaves *l = find(p, pass);

    if (l)
        forget(l);
}

void wf_nn_forget_uses(wf_nn_parameter *p)
{
    for (wf_nn_leaves *l = p->leaves; l; l = l->next)
        forget(l);
}

static wf_blocks *blocks_of(const wf_nn_parameter *p)
{
    return wf_context_blocks(p->tensor->ctx);
}

static void give_uses(wf_blocks *blocks, wf_tensor **use, int64_t *number, int room)
{
    wf_blocks_give(blocks, use, (size_t)room * sizeof(wf_tensor *));
    wf_blocks_give(blocks, number, (size_t)room * sizeof *number);
}

static void free_leaves(wf_nn_leaves *l)
{
    wf_blocks *blocks = blocks_of(l->parameter);

    forget(l);
    give_uses(blocks, l->use, l->number, l->room);
    wf_blocks_give(blocks, l, sizeof *l);
}

void wf_nn_pass_close(wf_nn_pass *pass)
{
    if (!pass)
        return;
    if (wf_nn_uses_of(pass->ctx)->pass == pass)
        wf_nn_uses_of(pass->ctx)->pass = NULL;
    while (pass->leaves) {
        wf_nn_leaves *l = pass->leaves, **at = &l->parameter->leaves;

        while (*at != l)
            at = &(*at)->next;
        *at = l->next;
        pass->leaves = l->next_of_pass;
        free_leaves(l);
    }
    wf_blocks_give(wf_context_blocks(pass->ctx), pass, sizeof *pass);
}

void wf_nn_leaves_free_all(wf_nn_parameter *p)
{
    while (p->leaves) {
        wf_nn_leaves *l = p->leaves, **at = l->pass ? &l->pass->leaves : NULL;

        while (at && *at != l)
            at = &(*at)->next_of_pass;
        if (at)
            *at = l->next_of_pass;
        p->leaves = l->next;
        free_leaves(l);
    }
}

wf_nn_leaves *wf_nn_leaves_now(wf_context *ctx, wf_nn_parameter *p)
{
    wf_nn_pass *pass = wf_nn_uses_of(ctx)->pass;
    wf_nn_leaves *l = find(p, pass);

    if (l)
        return l;
    l = wf_blocks_take(blocks_of(p), sizeof *l);
    if (!l) {
        wf_fail(ctx, WF_ENOMEM, "no memory for the leaves of parameter %s", p->path);
        return NULL;
    }
    *l = (wf_nn_leaves){.parameter = p, .pass = pass, .next = p->leaves};
    p->leaves = l;
    if (pass) {
        l->next_of_pass = pass->leaves;
        pass->leaves = l;
    }
    return l;
}

/* Makes room for one more use; it is kept from pass to pass. */
static bool grow(wf_context *ctx, wf_nn_leaves *l)
{
    int room = l->room ? 2 * l->room : 4;
    wf_blocks *blocks = blocks_of(l->parameter);
    wf_tensor **use;
    int64_t *number;

    if (l->uses < l->room)
        return true;
    use = wf_blocks_take(blocks, (size_t)room * sizeof(wf_tensor *));
    number = wf_blocks_take(blocks, (size_t)room * sizeof *number);
    if (!use || !number) {
        give_uses(blocks, use, number, room);
        wf_fail(ctx, WF_ENOMEM, "no memory for %d uses of parameter %s", room,
                l->parameter->path);
        return false;
    }
    if (l->uses) {
        memcpy(use, l->use, (size_t)l->uses * sizeof(wf_tensor *));
        memcpy(number, l->number, (size_t)l->uses * sizeof *number);
    }
    give_uses(blocks, l->use, l->number, l->room);
    l->use = use;
    l->number = number;
    l->room = room;
    return true;
}

int wf_nn_leaves_slot(wf_context *ctx, wf_nn_leaves *l, int64_t number)
{
    int slot = l->uses;

    while (slot > 0 && l->number[slot - 1] > number)
        slot--;
    if (slot > 0 && l->number[slot - 1] == number)
        return slot - 1;
    if (!grow(ctx, l))
        return -1;
    l->number[l->uses] = number;
    l->use[l->uses] = NULL;
    return l->uses++;
}
