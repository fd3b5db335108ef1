/* parallel/train/anomaly.c - where numbers stop being finite; see the header. */
#include "parallel/train/anomaly_internal.h"
#include "core/numerics/squares.h"
#include "parallel/agree_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Squares of floats do not overflow in double, and the sum has no range. */
static bool is_finite(wf_tensor *t)
{
    wf_context *ctx = t->ctx;
    const wf_device *device = wf_context_device(ctx);
    wf_squares squares;
    wf_exact_sum sum;

    if (t->dtype != device->dtype && t->dtype != WF_BF16)
        return true;
    wf_scope_open(ctx);
    if (t->dtype == WF_BF16)
        t = wf_cast(t, device->dtype);
    wf_squares_begin(&squares, ctx);
    if (t)
        wf_squares_add(&squares, t);
    wf_squares_end(&squares, &sum);
    wf_scope_close(ctx);
    return isfinite(wf_exact_value(&sum));
}

static void take_lower(void *into, const void *from, size_t bytes)
{
    int64_t *a = into;
    const int64_t *b = from;

    (void)bytes;
    *a = *b < *a ? *b : *a;
}

int64_t wf_par_first_not_finite(wf_par *par, int64_t count, wf_tensor *const *tensor)
{
    int64_t first = 0;

    while (first < count && (!tensor[first] || is_finite(tensor[first])))
        first++;
    if (wf_agree_on(par, sizeof first, &first, take_lower) != WF_OK)
        return -1;
    return first < count ? first : -1;
}

/* A maximum over nothing is -inf, and is right. */
static void look(void *arg, const wf_call *call)
{
    wf_par_anomaly *w = arg;
    const char *path = wf_context_path(call->ctx), *phase = wf_context_phase_now(call->ctx);
    char shape[128];

    w->calls++;
    for (int i = 0; i < call->n_out && !w->first.seen; i++) {
        if (!call->out[i] || call->op->flags & WF_OP_MAX || is_finite(call->out[i]))
            continue;
        w->first.seen = true;
        w->first.call = w->calls;
        w->first.micro = w->micro;
        snprintf(w->first.text, sizeof w->first.text,
                 "%s in %s, %s of micro-step %" PRId64 " on rank %d, whose result is %s",
                 call->op->name, path ? path : "no module", phase ? phase : "outside",
                 w->micro + 1, wf_context_rank(call->ctx),
                 wf_tensor_describe(call->out[i], shape, sizeof shape));
    }
}

void wf_par_anomaly_begin(wf_par_anomaly *w, wf_par *par)
{
    *w = (wf_par_anomaly){.par = par};
    wf_context_observe(par->ctx, look, w);
}

static bool before(const struct wf_par_sight *a, const struct wf_par_sight *b)
{
    if (!a->seen || !b->seen)
        return a->seen;
    return a->micro < b->micro || (a->micro == b->micro && a->call < b->call);
}

static void take_earlier(void *into, const void *from, size_t bytes)
{
    (void)bytes;
    if (before(from, into))
        memcpy(into, from, sizeof(struct wf_par_sight));
}

bool wf_par_anomaly_end(wf_par_anomaly *w, char *text, size_t size)
{
    struct wf_par_sight first = w->first;

    wf_context_observe(w->par->ctx, NULL, NULL);
    wf_agree_on(w->par, sizeof first, &first, take_earlier);
    snprintf(text, size, "%s", first.text);
    return first.seen;
}
