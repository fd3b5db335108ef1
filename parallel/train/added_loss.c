/* parallel/train/added_loss.c - losses that modules add; see the headers. */
#include "parallel/train/added_loss_internal.h"
#include "core/op.h"
#include "core/tape.h"
#include "kernels/parameters.h"
#include "nn/checkpointing.h"
#include "parallel/train/losses_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The trainer whose step runs in a context. */
typedef struct receiver {
    wf_par_trainer *trainer; /* NULL: none */
} receiver;

static receiver *receiver_of(wf_context *ctx)
{
    static const wf_extension extension = {.name = "added losses", .bytes = sizeof(receiver)};

    return wf_context_extension(ctx, &extension);
}

void wf_par_added_receive(wf_par_trainer *t, bool receive)
{
    receiver *r = receiver_of(t->par->ctx);

    if (r)
        r->trainer = receive ? t : NULL;
}

/* ---- the gradient ---- */

/* A loss is a root of the tape: its gradient is a constant, and begins here. */
typedef struct share {
    wf_par_trainer *trainer;
    float weight;
} share;

static void begin_gradient(wf_gradient *g)
{
    const share *s = g->attr;
    const wf_tensor *loss = g->in[0];
    wf_tensor *seed = wf_tensor_new(
        g->ctx, wf_context_device(g->ctx)->dtype, loss->ndim, loss->dim,
        wf_layout_dual(s->trainer->par->mesh, loss->layout), WF_MEMORY_ACTIVATION);

    if (seed && wf_init_fill(seed, s->weight) == WF_OK)
        g->din[0] = seed;
}

static const wf_op add_loss_op = {.name = "add_loss",
                                  .signature = "",
                                  .flags = WF_OP_ROOT,
                                  .save = WF_SAVE_IN(0),
                                  .save_shape = WF_SAVE_IN(0),
                                  .backward = begin_gradient};

static wf_status record(wf_par_trainer *t, wf_tensor *loss, float weight)
{
    const share s = {t, weight};
    const wf_call call = {.op = &add_loss_op,
                          .ctx = t->par->ctx,
                          .n_in = 1,
                          .in = {loss},
                          .attr = &s,
                          .attr_size = sizeof s};

    return wf_tape_record(&call);
}

/* ---- the values ---- */

wf_status wf_par_added_expect(wf_par_trainer *t, const char *path, const char *name)
{
    wf_context *ctx = t->par->ctx;
    wf_par_added **list = realloc(t->added, ((size_t)t->added_count + 1) * sizeof *list), *a;

    if (list)
        t->added = list;
    a = list ? calloc(1, sizeof *a) : NULL;
    if (!a)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the losses that modules add");
    snprintf(a->path, sizeof a->path, "%s", path);
    snprintf(a->name, sizeof a->name, "%s", name);
    list[t->added_count++] = a;
    return wf_par_losses_open(t, &a->losses);
}

/* Returns the entry of a call in micro-step k: of several calls of a module the first that has
   none of this micro-step yet. NULL on errors. */
static wf_par_added *entry_of(wf_par_trainer *t, const char *path, const char *name, int64_t k)
{
    for (int64_t i = 0; i < t->added_count; i++) {
        wf_par_added *a = t->added[i];

        if (!a->losses.sum[k] && strcmp(a->name, name) == 0 && strcmp(a->path, path) == 0)
            return a;
    }
    if (t->added_are_known)
        wf_fail(
            t->par->ctx, WF_EINVAL,
            "module %s adds loss %s, which it did not in the plan of the pipeline: add it in "
            "every step, with weight 0 where it is not to count",
            path, name);
    else if (wf_par_added_expect(t, path, name) == WF_OK)
        return t->added[t->added_count - 1];
    return NULL;
}

/* Returns the weight of an element in the mean over the global batch. */
static float weight_in_mean(const wf_par_trainer *t, const wf_tensor *loss)
{
    double elements = (double)t->options.global_batch;

    if (loss->ndim == 0)
        return 1.0f / (float)t->micros;
    for (int d = 1; d < loss->ndim; d++)
        elements *= (double)loss->dim[d].size;
    return (float)(1 / elements);
}

static wf_status keep(wf_par_trainer *t, const wf_nn_module *m, const char *name,
                      wf_tensor *loss)
{
    wf_context *ctx = t->par->ctx;
    wf_par_added *a = entry_of(t, m->path, name, t->step.micro);
    bool later;
    wf_tape *tape;

    if (!a)
        return wf_context_status(ctx);
    tape = wf_tape_switch(ctx, NULL);
    later = wf_context_recorded_later(ctx, false);
    wf_scope_open(ctx);
    wf_par_losses_keep(t, &a->losses, t->step.micro, loss, weight_in_mean(t, loss));
    wf_scope_close(ctx);
    wf_context_recorded_later(ctx, later);
    wf_tape_switch(ctx, tape);
    return wf_context_status(ctx);
}

static bool is_name(const char *name)
{
    size_t n = name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_")
                    : 0;

    return n > 0 && n < WF_PAR_LOSS_NAME && !name[n];
}

static wf_status check(const wf_par_trainer *t, const wf_nn_module *m, const char *name,
                       const wf_tensor *loss, float weight)
{
    wf_context *ctx = t->par->ctx;

    if (!is_name(name) || !isfinite(weight))
        return wf_fail(ctx, WF_EINVAL,
                       "module %s adds loss '%s' with weight %g: a name is 1 to %d letters, "
                       "digits and _, and a weight is finite",
                       m->path, name ? name : "NULL", (double)weight, WF_PAR_LOSS_NAME - 1);
    if (t->par->options.cuda_graph)
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "module %s adds loss %s, which a step that is captured as a graph cannot "
            "hand out: leave out cuda_graph",
            m->path, name);
    return wf_par_losses_check(t, loss);
}

wf_status wf_par_add_loss(void *module, const char *name, wf_tensor *loss, float weight)
{
    const wf_nn_module *m = module;
    const receiver *r;
    wf_context *ctx;
    wf_par_trainer *t;

    if (!m)
        return WF_EINVAL; /* the reason is in the context */
    ctx = m->ctx;
    r = receiver_of(ctx);
    t = r ? r->trainer : NULL;
    if (wf_context_status(ctx) != WF_OK || !t || !loss || !wf_context_is_training(ctx))
        return wf_context_status(ctx);
    if (!wf_context_recording(ctx) && !wf_context_is_recorded_later(ctx))
        return WF_OK; /* the stage runs once more, for its backward */
    if (check(t, m, name, loss, weight) != WF_OK)
        return wf_context_status(ctx);
    if (wf_nn_note_loss(ctx, loss->requires_grad) && keep(t, m, name, loss) != WF_OK)
        return wf_context_status(ctx);
    return record(t, loss, weight * weight_in_mean(t, loss));
}

/* ---- the step's sums ---- */

wf_status wf_par_added_means(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;

    for (int64_t i = 0; i < t->added_count && wf_context_status(ctx) == WF_OK; i++) {
        wf_par_added *a = t->added[i];
        wf_tensor *total;

        a->mean = 0;
        if (a->losses.put && a->losses.put != t->micros)
            return wf_fail(ctx, WF_EINVAL,
                           "module %s added loss %s in %" PRId64 " of %" PRId64
                           " micro-steps: add it in each",
                           a->path, a->name, a->losses.put, t->micros);
        total = wf_par_losses_total(t, &a->losses);
        if (total)
            wf_par_losses_mean(t, &a->losses, total, &a->mean);
        wf_tensor_release(total);
    }
    return wf_context_status(ctx);
}

/* Returns the sum of a name, which is new where no loss before had it; NULL on errors. */
static wf_par_step_loss *sum_of(wf_par_trainer *t, const char *name)
{
    wf_par_step_loss *list;

    for (int i = 0; i < t->step_losses; i++)
        if (strcmp(t->step_loss[i].name, name) == 0)
            return &t->step_loss[i];
    list = realloc(t->step_loss, ((size_t)t->step_losses + 1) * sizeof *list);
    if (!list) {
        wf_fail(t->par->ctx, WF_ENOMEM, "no memory for the losses that modules add");
        return NULL;
    }
    t->step_loss = list;
    list[t->step_losses] = (wf_par_step_loss){.mean = 0};
    memcpy(list[t->step_losses].name, name, strlen(name) + 1);
    return &list[t->step_losses++];
}

/* In the order of calls, which is that of the model on every mesh. */
wf_status wf_par_added_sum(wf_par_trainer *t)
{
    for (int i = 0; i < t->step_losses; i++)
        t->step_loss[i].mean = 0, t->step_loss[i].modules = 0;
    for (int64_t i = 0; i < t->added_count; i++) {
        wf_par_step_loss *sum = sum_of(t, t->added[i]->name);

        if (!sum)
            break;
        sum->mean += t->added[i]->mean;
        sum->modules++;
    }
    return wf_context_status(t->par->ctx);
}

const wf_par_step_loss *wf_par_step_losses(const wf_par_trainer *t, int *count)
{
    *count = t ? t->step_losses : 0;
    return *count ? t->step_loss : NULL;
}

void wf_par_added_clear(wf_par_trainer *t)
{
    for (int64_t i = 0; i < t->added_count; i++)
        wf_par_losses_clear(t, &t->added[i]->losses);
}

void wf_par_added_close(wf_par_trainer *t)
{
    const receiver *r = receiver_of(t->par->ctx);

    if (r && r->trainer == t)
        wf_par_added_receive(t, false);
    for (int64_t i = 0; i < t->added_count; i++) {
        wf_par_losses_close(t, &t->added[i]->losses);
        free(t->added[i]);
    }
    free(t->added);
    free(t->step_loss);
}
