/* parallel/generate/losses.c - losses of all tokens of a text, on any mesh; see the header. */
#include "parallel/generate/losses.h"
#include "core/host_data.h"
#include "parallel/gather.h"
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const wf_gen_losses_options *o;
    float *loss;
} job;

wf_gen_windows wf_gen_windows_of(int64_t tokens, int64_t length, int64_t stride)
{
    wf_gen_windows w = {tokens, length, stride, 1};

    if (w.length > tokens - 1)
        w.length = tokens - 1;
    if (tokens - 1 > w.length)
        w.count += (tokens - 1 - w.length + stride - 1) / stride;
    return w;
}

int64_t wf_gen_windows_begin(const wf_gen_windows *w, int64_t window)
{
    return window ? (window - 1) * w->stride + w->length + 1 : 1;
}

int64_t wf_gen_windows_end(const wf_gen_windows *w, int64_t window)
{
    int64_t end = window * w->stride + w->length + 1;

    return end < w->tokens ? end : w->tokens;
}

/* A batch of windows, begun with the window's tokens; -1 is a target that does not count. */
static void fill(const job *j, int64_t first, int64_t count, int32_t *tokens, int32_t *targets)
{
    const wf_gen_windows *w = &j->o->windows;
    const wf_gen_losses_options *d = j->o;

    for (int64_t i = 0; i < count; i++) {
        int64_t begin = wf_gen_windows_begin(w, first + i),
                end = wf_gen_windows_end(w, first + i);

        for (int64_t t = 0; t < w->length; t++) {
            int64_t at = (first + i) * w->stride + t;
            bool counts =
                at + 1 >= begin && at + 1 < end && (!d->counted || d->counted[at + 1]);

            tokens[i * w->length + t] = at < w->tokens ? d->ids[at] : 0;
            targets[i * w->length + t] = counts ? d->ids[at + 1] : -1;
        }
    }
}

/* Stores the losses at the indices of their tokens. */
static void take(const job *j, int64_t first, int64_t count, const int32_t *targets,
                 const float *loss)
{
    const wf_gen_windows *w = &j->o->windows;

    for (int64_t i = 0; i < count; i++)
        for (int64_t t = 0; t < w->length; t++)
            if (targets[i * w->length + t] >= 0)
                j->loss[(first + i) * w->stride + t + 1] = loss[i * w->length + t];
}

static wf_tensor *tensor_of(wf_context *ctx, int64_t batch, int64_t length, const int32_t *ids)
{
    const wf_dim dims[] = {wf_dim_batch(batch), wf_dim_chunked(length)};
    wf_tensor *t = wf_tensor_new(ctx, WF_I32, 2, dims, NULL, WF_MEMORY_ACTIVATION);
    wf_host_data view;
    int32_t *to = t ? wf_data_write(t, false, &view) : NULL;

    for (int64_t i = 0; to && i < batch * length; i++)
        to[i] = ids[i];
    if (t)
        wf_data_close(&view);
    return t;
}

static void run_batch(const job *j, int64_t first, int64_t count, int32_t *ids, float *loss,
                      bool keeps)
{
    const wf_gen_windows *w = &j->o->windows;
    wf_context *ctx = wf_par_context(j->o->par);
    wf_dtype storage = wf_context_storage(ctx, wf_par_dtype(j->o->par)); /* as in training */
    int32_t *targets = ids + count * w->length;
    wf_tensor *t;

    fill(j, first, count, ids, targets);
    wf_scope_open(ctx);
    t = wf_nn_gpt_loss(j->o->model, tensor_of(ctx, count, w->length, ids),
                       tensor_of(ctx, count, w->length, targets), 1);
    t = wf_whole(t);
    if (t && keeps) {
        wf_data_get(t, 0, count * w->length, loss);
        take(j, first, count, targets, loss);
    }
    wf_scope_close(ctx);
    wf_context_storage(ctx, storage);
}

/* Takes the losses of the windows that a copy of the model has had; a wf_par_gather_take. */
static void take_losses(void *arg, wf_par *par, int from, const char *data, size_t bytes)
{
    const job *j = arg;
    const wf_gen_windows *w = &j->o->windows;
    int64_t batch = j->o->batch, copies = j->o->copies, each = j->o->rank->size / copies;

    (void)par;
    for (int64_t i = 0; i < w->count && bytes; i++) {
        int64_t begin = wf_gen_windows_begin(w, i), end = wf_gen_windows_end(w, i);

        if (i / batch % copies == from / each && begin < end)
            memcpy(j->loss + begin, (const float *)data + begin,
                   (size_t)(end - begin) * sizeof(float));
    }
}

/* The batches of windows go around the copies of the model. */
wf_status wf_gen_losses(const wf_gen_losses_options *o, float *losses)
{
    job j = {o, losses};
    const wf_gen_windows *w = &o->windows;
    wf_context *ctx = wf_par_context(o->par);
    int64_t batch = o->batch, copies = o->copies, room = batch * w->length;
    int32_t *ids = malloc(2 * (size_t)room * sizeof *ids);
    float *loss = malloc((size_t)room * sizeof *loss);
    bool keeps = o->rank->index % (o->rank->size / copies) == 0;

    if (!ids || !loss)
        wf_fail(ctx, WF_ENOMEM, "no memory for %lld windows", (long long)batch);
    wf_context_training(ctx, false);
    for (int64_t i = wf_par_dp_rank(o->par) * batch;
         i < w->count && wf_context_status(ctx) == WF_OK; i += copies * batch) {
        int64_t count = w->count - i < batch ? w->count - i : batch;

        run_batch(&j, i, count, ids, loss, keeps);
        if (o->rank->index == 0 && o->progress)
            o->progress(o->arg, i + copies * batch < w->count ? i + count : w->count, w->count);
    }
    if (wf_par_gather_needed(o->rank) && wf_context_status(ctx) == WF_OK)
        wf_par_gather(o->rank, o->par, losses,
                      keeps && wf_par_gather_from(o->rank) ? (size_t)w->tokens * sizeof *losses
                                                           : 0,
                      take_losses, &j);
    free(ids);
    free(loss);
    return wf_context_status(ctx);
}
