/* nn/added_loss.c - from modules that add losses to who takes them; see the header. */
#include "nn/added_loss.h"
#include "core/tape.h"
#include "nn/checkpointing.h"
#include <math.h>
#include <string.h>

typedef struct receiving {
    wf_nn_loss_receiver *take; /* NULL: nothing does */
    void *self;
} receiving;

static receiving *receiving_of(wf_context *ctx)
{
    static const wf_extension extension = {
        .name = "added losses", .bytes = sizeof(receiving), .of_call = true};

    return wf_context_extension(ctx, &extension);
}

void wf_nn_receive_losses(wf_context *ctx, wf_nn_loss_receiver *receiver, void *self)
{
    receiving *r = receiving_of(ctx);

    if (r && (receiver || r->self == self))
        *r = (receiving){receiver, self};
}

static bool is_name(const char *name)
{
    size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_")
                    : 0;

    return n > 0 && n < WF_NN_LOSS_NAME && !name[n];
}

/* Checks for a tape, too: a pipeline's stage without one runs once more, for its backward. */
bool wf_nn_adds_losses(const void *module)
{
    const wf_nn_module *m = module;
    const receiving *r = m ? receiving_of(m->ctx) : NULL;

    return r && r->take && wf_context_status(m->ctx) == WF_OK &&
           wf_context_is_training(m->ctx) &&
           (wf_context_recording(m->ctx) || wf_context_is_recorded_later(m->ctx));
}

wf_status wf_nn_add_loss(void *module, const char *name, wf_tensor *loss, float weight)
{
    wf_nn_module *m = module;
    const receiving *r;

    if (!m)
        return WF_EINVAL; /* the reason is in the context */
    if (!loss || !wf_nn_adds_losses(m))
        return wf_context_status(m->ctx);
    r = receiving_of(m->ctx);
    if (!is_name(name) || !isfinite(weight))
        return wf_fail(m->ctx, WF_EINVAL,
                       "module %s adds loss '%s' with weight %g: a name is 1 to %d letters, "
                       "digits and _, and a weight is finite",
                       m->path, name ? name : "NULL", (double)weight, WF_NN_LOSS_NAME - 1);
    return r->take(r->self, m, name, loss, weight,
                   wf_nn_note_loss(m->ctx, loss->requires_grad));
}
