/* nn/parameter.c - parameters: making and freeing them, and their uses in a forward pass. */
#include "nn/parameter.h"
#include <stdlib.h>

wf_nn_parameter *wf_nn_parameter_new(wf_context *ctx, int ndim, const wf_dim *dims, bool decay)
{
    wf_nn_parameter *p = calloc(1, sizeof *p);

    if (!p) {
        wf_fail(ctx, WF_ENOMEM, "no memory for a parameter");
        return NULL;
    }
    p->refs = 1;
    p->decay = decay;
    wf_scope_open(ctx);
    p->tensor = wf_tensor_retain(wf_tensor_fake(ctx, WF_F32, ndim, dims, NULL));
    wf_scope_close(ctx);
    wf_nn_init_fill(p, 0);
    return p;
}

void wf_nn_parameter_free(wf_nn_parameter *p)
{
    if (!p || --p->refs > 0)
        return;
    wf_nn_forget_uses(p);
    free(p->use);
    free(p->number);
    wf_tensor_release(p->tensor);
    wf_nn_recipe_clear(p);
    free(p);
}

wf_nn_parameter *wf_nn_tie(wf_nn_parameter *parameter)
{
    if (parameter)
        parameter->refs++;
    return parameter;
}

void wf_nn_forget_uses(wf_nn_parameter *p)
{
    while (p->uses > 0)
        wf_tensor_release(p->use[--p->uses]);
}

/* Room for one more use; it is kept from pass to pass. */
static bool grow(wf_context *ctx, wf_nn_parameter *p)
{
    int room = p->room ? 2 * p->room : 4;
    wf_tensor **use;
    int64_t *number;

    if (p->uses < p->room)
        return true;
    use = realloc(p->use, (size_t)room * sizeof(wf_tensor *));
    if (use)
        p->use = use;
    number = realloc(p->number, (size_t)room * sizeof *number);
    if (number)
        p->number = number;
    if (!use || !number) {
        wf_fail(ctx, WF_ENOMEM, "no memory for %d uses of parameter %s", room, p->path);
        return false;
    }
    p->room = room;
    return true;
}

/* The slot of the use that comes next in forward: the one that an earlier run of the same ops took
   for it, or a new one. Numbers ascend in forward. -1 on errors. */
static int slot_of(wf_context *ctx, wf_nn_parameter *p, int64_t number)
{
    int slot = p->uses;

    while (slot > 0 && p->number[slot - 1] > number)
        slot--;
    if (slot > 0 && p->number[slot - 1] == number)
        return slot - 1;
    if (!grow(ctx, p))
        return -1;
    p->number[p->uses] = number;
    p->use[p->uses] = NULL;
    return p->uses++;
}

/* A leaf for the next use of p, which later runs of the same ops find under the same number. */
static wf_tensor *leaf_of(wf_nn_parameter *p, wf_tensor *t, wf_uses *uses)
{
    int slot = slot_of(t->ctx, p, uses->next++);
    wf_tensor *leaf = slot < 0 ? NULL : wf_leaf(t);

    if (leaf && !uses->later) {
        wf_tensor_release(p->use[slot]);
        p->use[slot] = wf_tensor_retain(leaf);
    }
    return leaf;
}

wf_tensor *wf_nn_parameter_use(wf_context *ctx, wf_nn_parameter *p)
{
    wf_tensor *t = p->at_use ? p->at_use : p->tensor;
    wf_uses *uses = wf_context_uses(ctx);

    if (wf_tensor_is_absent(t)) {
        wf_fail(ctx, WF_EINVAL,
                "parameter %s is used outside of the module that its unit belongs to, and is "
                "not gathered: enter that module (wf_nn_call, wf_nn_enter) around all uses",
                p->path);
        return NULL;
    }
    if (!p->frozen && (uses->later || wf_context_recording(ctx)))
        t = leaf_of(p, t, uses);
    return t;
}
