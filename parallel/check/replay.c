/*
 * parallel/check/replay.c - the experts that a trainer's routers chose, chosen again: in bf16 a
 * token near the border of two experts goes to another one than in fp32, and gradients are
 * compared of the same choice. Each choice is compared with Weft's by itself.
 */
#include "core/host_data.h"
#include "kernels/elementwise_ops.h"
#include "kernels/ops.h"
#include "kernels/reshape.h"
#include "kernels/row_ops.h"
#include "parallel/check/source_internal.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { GAPS = 3 }; /* tolerances of a gradient that a gap of scores may have */

typedef struct router {
    wf_nn_hooks hooks;
    wf_check_replay *replay;
    int64_t layer;
} router;

struct wf_check_replay {
    wf_nn_module *model;
    const wf_check_batch *batch;
    wf_check_choices *choices;
    int64_t sequence;
    int64_t counted; /* tokens up to the last one that predicts: later ones change nothing */
    router *router;  /* [batch->layers] */
    int64_t added;
};

static const int32_t *chosen_by(const router *h, int64_t token)
{
    const wf_check_batch *b = h->replay->batch;

    return b->choice +
           (((h->replay->sequence * b->tokens + token) * b->layers) + h->layer) * b->chosen;
}

/* Returns their indices as wf_route has its own, `like`. */
static wf_tensor *indices(const router *h, const wf_tensor *like)
{
    wf_tensor *index = wf_tensor_like(like, WF_MEMORY_ACTIVATION);
    const int64_t tokens = h->replay->batch->tokens, k = h->replay->batch->chosen;
    wf_host_data view;
    float *data = index ? wf_data_write(index, false, &view) : NULL;

    for (int64_t t = 0; data && t < tokens; t++)
        for (int64_t i = 0; i < k; i++)
            data[t * k + i] = (float)chosen_by(h, t)[i];
    if (index)
        wf_data_close(&view);
    return index;
}

/* Returns the weights that wf_route gives to chosen experts. */
static wf_tensor *weights(const wf_route_options *o, wf_tensor *logits, wf_tensor *index)
{
    const int last = logits ? logits->ndim - 1 : 0;
    wf_tensor *u;

    if (o->after)
        u = wf_softmax(wf_gather(logits, index), last);
    else
        u = wf_gather(o->sigmoid ? wf_sigmoid(logits) : wf_softmax(logits, last), index);
    if (o->normalise)
        u = wf_div(u, wf_broadcast_like(wf_unsqueeze(wf_sum(u, last), last), u));
    return o->factor > 0 && o->factor != 1 ? wf_scale(u, o->factor) : u;
}

static bool is_in(const float *index, int64_t k, int64_t expert)
{
    for (int64_t i = 0; i < k; i++)
        if ((int64_t)index[i] == expert)
            return true;
    return false;
}

/* Returns by how much the greatest score that they did not choose is above the least that they
   did, in standard deviations of the token's scores. */
static double gap(const float *logits, int64_t experts, const float *theirs, int64_t k)
{
    double least = INFINITY, most = -INFINITY, sum = 0, squares = 0, variance;

    for (int64_t e = 0; e < experts; e++) {
        const double x = (double)logits[e];

        sum += x;
        squares += x * x;
        if (is_in(theirs, k, e))
            least = x < least ? x : least;
        else
            most = x > most ? x : most;
    }
    variance = squares / (double)experts - sum / (double)experts * (sum / (double)experts);
    return most <= least ? 0 : variance > 0 ? (most - least) / sqrt(variance) : INFINITY;
}

/* Compares their choices with those of greatest logits. */
static void compare(const router *h, const wf_tensor *logits, const wf_tensor *index)
{
    const int64_t experts = logits->dim[logits->ndim - 1].size, k = h->replay->batch->chosen;
    wf_check_choices *c = h->replay->choices;
    wf_host_data view, other = {.t = NULL};
    const float *score = wf_data_read(logits, &view);
    const float *theirs = score ? wf_data_read(index, &other) : NULL;

    for (int64_t t = 0; theirs && t < h->replay->counted; t++) {
        const double off = gap(score + t * experts, experts, theirs + t * k, k);

        c->count++;
        c->differ += off > 0;
        c->gap = off > c->gap ? off : c->gap;
        if (!(off > c->bound) || (c->wrong++ && (h->layer > c->layer || (h->layer == c->layer &&
                                                                         off <= c->wrong_gap))))
            continue;
        c->wrong_gap = off;
        c->sequence = h->replay->sequence;
        c->token = t;
        c->layer = h->layer;
    }
    wf_data_close(&other);
    wf_data_close(&view);
}

/* Replaces weights and indices, of "dispatch": x, x after "in", weights, indices. */
static void at_point(void *self, wf_nn_module *module, const char *point, int n, wf_tensor **x)
{
    const router *h = self;
    wf_nn_moe *m = (wf_nn_moe *)module;
    wf_tensor *logits, *index;

    (void)n;
    if (strcmp(point, "dispatch") != 0 || !x[1] || !x[3])
        return;
    logits = wf_linear_fp32(x[1], wf_nn_use(m, m->router));
    index = indices(h, x[3]);
    if (logits && index)
        compare(h, logits, index);
    x[2] = weights(&m->route, logits, index);
    x[3] = index;
}

static void add(void *arg, wf_nn_module *m)
{
    wf_check_replay *r = arg;
    router *h = &r->router[r->added];

    if (!wf_nn_as_moe(m) || r->added == r->batch->layers)
        return;
    *h = (router){.hooks = {.at = at_point, .self = h}, .replay = r, .layer = r->added};
    if (wf_nn_hook_add(m, &h->hooks) == WF_OK)
        r->added++;
}

static void take_away(void *arg, wf_nn_module *m)
{
    wf_check_replay *r = arg;

    for (int64_t i = 0; wf_nn_as_moe(m) && i < r->added; i++)
        wf_nn_hook_remove(m, &r->router[i].hooks);
}

wf_check_replay *wf_check_replay_open(const wf_check_source *source,
                                      const wf_check_batch *batch, wf_check_choices *choices)
{
    wf_nn_module *model = &source->model->base;
    wf_check_replay *r = calloc(1, sizeof *r);

    if (r)
        *r = (wf_check_replay){.model = model, .batch = batch, .choices = choices};
    if (r)
        r->router = calloc((size_t)batch->layers + 1, sizeof *r->router);
    if (!r || !r->router) {
        free(r);
        wf_fail(model->ctx, WF_ENOMEM, "no memory for the choices of routers");
        return NULL;
    }
    *choices = (wf_check_choices){.bound = GAPS * source->options->tolerance};
    wf_nn_visit(model, add, NULL, r);
    return r;
}

void wf_check_replay_sequence(wf_check_replay *r, int64_t sequence)
{
    const int32_t *labels = r ? r->batch->labels + sequence * r->batch->tokens : NULL;

    if (!r)
        return;
    r->sequence = sequence;
    r->counted = 0;
    for (int64_t t = 0; t + 1 < r->batch->tokens; t++)
        r->counted = labels[t + 1] >= 0 ? t + 1 : r->counted;
}

void wf_check_replay_close(wf_check_replay *r)
{
    if (!r)
        return;
    wf_nn_visit(r->model, take_away, NULL, r);
    free(r->router);
    free(r);
}

/* A choice that is off by more than rounding, where what a router sees is right. */
wf_status wf_check_explain_choices(wf_check_report *report, const wf_check_reference *r,
                                   wf_error *error)
{
    const wf_check_choices *c = &r->choices;
    const bool forward_differs =
        report->token_losses_wrong || (report->has_loss && !report->loss_equal);
    wf_check_finding *f;

    report->choices = c->count;
    report->choices_differ = c->differ;
    report->choice_gap = c->gap;
    report->choices_wrong = c->wrong;
    if (!c->wrong || forward_differs)
        return error->code;
    f = wf_check_add(report, "choices", error);
    if (!f)
        return error->code;
    snprintf(f->what, sizeof f->what,
             "%lld of %lld choices of experts are not those of greatest scores, at first in "
             "mixture %lld: of sequence %lld, token %lld an expert that is left out is %.3g "
             "standard deviations of scores above one that is chosen",
             (long long)c->wrong, (long long)c->count, (long long)c->layer,
             (long long)c->sequence, (long long)c->token, c->wrong_gap);
    snprintf(f->cause, sizeof f->cause,
             "the router chooses by something else than the scores (a bias, noise, groups of "
             "experts, a capacity)%s; gradients are compared of their choice",
             c->layer ? ", or the forward pass differs already between the mixture before and "
                        "this one (weights of experts, tokens that are dropped)"
                      : "");
    snprintf(f->where, sizeof f->where, "routers");
    f->count = 1;
    return error->code;
}
