/* parallel/train/added_loss.c - losses that modules add; see the headers. */
#include "parallel/train/added_loss_internal.h"
#include "core/memory/blocks.h"
#include "core/op.h"
#include "core/tape.h"
#include "kernels/parameters.h"
#include "parallel/train/losses_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Takes a loss for the trainer whose step runs. */
static wf_status take(void *self, wf_nn_module *m, const char *name, wf_tensor *loss,
                      float weight, bool first)
{
    wf_par_trainer *t = self;
    wf_context *ctx = t->par->ctx;

    if (t->par->options.cuda_graph)
        return wf_fail(
            ctx, WF_EUNSUPPORTED,
            "module %s adds loss %s, which a step that is captured as a graph cannot "
            "hand out: leave out cuda_graph",
            m->path, name);
    if (wf_par_losses_check(t, loss) != WF_OK || (first && keep(t, m, name, loss) != WF_OK))
        return wf_context_status(ctx);
    return record(t, loss, weight * weight_in_mean(t, loss));
}

void wf_par_added_receive(wf_par_trainer *t, bool receive)
{
    wf_nn_receive_losses(t->par->ctx, receive ? take : NULL, t);
}

/* ---- the step's sums ---- */

/* Lists the losses that were put in this step, which is in each of its micro-steps. */
static int64_t list_put(wf_par_trainer *t, wf_par_losses **put)
{
    int64_t n = 0;

    for (int64_t i = 0; i < t->added_count; i++) {
        wf_par_added *a = t->added[i];

        a->losses.mean = 0;
        if (a->losses.put && a->losses.put != t->micros)
            wf_fail(t->par->ctx, WF_EINVAL,
                    "module %s added loss %s in %" PRId64 " of %" PRId64
                    " micro-steps: add it in each",
                    a->path, a->name, a->losses.put, t->micros);
        else if (a->losses.put)
            put[n++] = &a->losses;
    }
    return n;
}

wf_status wf_par_added_means(wf_par_trainer *t)
{
    wf_context *ctx = t->par->ctx;
    wf_blocks *blocks = wf_context_blocks(ctx);
    size_t bytes = (size_t)t->added_count * sizeof(void *);
    wf_par_losses **put;
    wf_tensor **total;
    int64_t n = 0;

    if (!t->added_count || wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    put = wf_blocks_take(blocks, bytes);
    total = wf_blocks_take(blocks, bytes);
    if (put && total)
        n = list_put(t, put);
    else
        wf_fail(ctx, WF_ENOMEM, "no memory for the losses that modules add");
    if (n > 0 && wf_context_status(ctx) == WF_OK &&
        wf_par_losses_totals(t, n, put, total) == WF_OK)
        for (int64_t i = 0; i < n; i++) {
            wf_par_losses_mean(t, put[i], total[i], &put[i]->mean);
            wf_tensor_release(total[i]);
        }
    wf_blocks_give(blocks, put, bytes);
    wf_blocks_give(blocks, total, bytes);
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
        sum->mean += t->added[i]->losses.mean;
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
    wf_par_added_receive(t, false);
    for (int64_t i = 0; i < t->added_count; i++) {
        wf_par_losses_close(t, &t->added[i]->losses);
        free(t->added[i]);
    }
    free(t->added);
    free(t->step_loss);
}
