/* nn/parameter.c - parameters: making and freeing them, and their uses in a forward pass. */
#include "nn/pass_internal.h"
#include "nn/uses_internal.h"
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
    wf_nn_leaves_free_all(p);
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

/* Returns a leaf for the next use of p, which later runs of the same ops find under the same
   number. */
static wf_tensor *leaf_of(wf_nn_parameter *p, wf_tensor *t, wf_nn_uses *uses)
{
    wf_nn_leaves *l = wf_nn_leaves_now(t->ctx, p);
    int slot = l ? wf_nn_leaves_slot(t->ctx, l, uses->next++) : -1;
    wf_tensor *leaf = slot < 0 ? NULL : wf_leaf(t);

    if (leaf && !wf_context_is_recorded_later(t->ctx)) {
        wf_tensor_release(l->use[slot]);
        l->use[slot] = wf_tensor_retain(leaf);
    }
    return leaf;
}

wf_tensor *wf_nn_parameter_use(wf_context *ctx, wf_nn_parameter *p)
{
    wf_tensor *t = p->at_use ? p->at_use : p->tensor;
    wf_nn_uses *uses = wf_nn_uses_of(ctx);

    if (wf_tensor_is_absent(t)) {
        wf_fail(ctx, WF_EINVAL,
                "parameter %s is used outside of the module that its unit belongs to, and is "
                "not gathered: enter that module (wf_nn_call, wf_nn_enter) around all uses",
                p->path);
        return NULL;
    }
    if (!p->frozen && (wf_context_is_recorded_later(ctx) || wf_context_recording(ctx)))
        t = leaf_of(p, t, uses);
    return t;
}
