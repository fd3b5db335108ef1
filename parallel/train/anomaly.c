/*
 * parallel/train/anomaly.c - anomaly detection: finds where numbers stop being finite: which
 * parameters or gradients are not, and, by repeating the step, which op has the first such
 * result.
 */
#include "core/numerics/squares.h"
#include "parallel/agree_internal.h"
#include "parallel/train/engine_internal.h"
#include "parallel/train/losses_internal.h"
#include "parallel/train/step_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Looks at the results of ops from begin to end. */
typedef struct anomaly {
    wf_par_trainer *t;
    int64_t calls; /* so far */
    struct sight {
        bool seen;
        int64_t micro, order,
            call; /* micro-step, index of a pipeline's action in it, call of its rank */
        char text[360];
    } first;
} anomaly;

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
        wf_squares_add(&squares, 1, &t);
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

/* The first of some tensors (NULL entries are skipped) that is not finite on some rank, or -1.
   Collective: over the world, where the context has no error */
static int64_t first_not_finite(wf_par *par, int64_t count, wf_tensor *const *tensor)
{
    int64_t first = 0;

    while (first < count && (!tensor[first] || is_finite(tensor[first])))
        first++;
    if (wf_agree_on(par, sizeof first, &first, take_lower) != WF_OK)
        return -1;
    return first < count ? first : -1;
}

/* Notes an op's location: module, phase, and step of the schedule, where there is one. */
static void note(anomaly *w, const wf_call *call, const wf_tensor *out)
{
    const wf_par_step_state *step = &w->t->step;
    const char *path = wf_context_path(call->ctx), *phase = wf_context_phase_now(call->ctx);
    char shape[128], by[64] = "";

    if (step->action.name)
        snprintf(by, sizeof by, ", %s of stage %d", step->action.name, step->action.stage);
    w->first = (struct sight){
        .seen = true, .micro = step->micro, .order = step->action.order, .call = w->calls};
    snprintf(w->first.text, sizeof w->first.text,
             "%s in %s, %s of micro-step %" PRId64 "%s, on rank %d, whose result is %s",
             call->op->name, path ? path : "no module", phase ? phase : "outside",
             step->micro + 1, by, wf_context_rank(call->ctx),
             wf_tensor_describe(out, shape, sizeof shape));
}

static bool before(const struct sight *a, const struct sight *b)
{
    const int64_t x[] = {a->micro, a->order, a->call}, y[] = {b->micro, b->order, b->call};

    if (!a->seen || !b->seen)
        return a->seen;
    for (int i = 0; i < 3; i++)
        if (x[i] != y[i])
            return x[i] < y[i];
    return false;
}

/* Looks at the results of an op. A maximum over nothing is -inf, and is right. With a schedule
   a later micro-step may run first, so earlier ones are searched after a find too. */
static void look(void *arg, const wf_call *call)
{
    anomaly *w = arg;
    const struct sight now = {.seen = true,
                              .micro = w->t->step.micro,
                              .order = w->t->step.action.order,
                              .call = ++w->calls};

    for (int i = 0; i < call->n_out && before(&now, &w->first); i++)
        if (call->out[i] && !(call->op->flags & WF_OP_MAX) && !is_finite(call->out[i]))
            note(w, call, call->out[i]);
}

static void anomaly_begin(anomaly *w, wf_par_trainer *t)
{
    *w = (anomaly){.t = t};
    wf_context_observe(t->par->ctx, look, w);
}

static void take_earlier(void *into, const void *from, size_t bytes)
{
    (void)bytes;
    if (before(from, into))
        memcpy(into, from, sizeof(struct sight));
}

/* Says what op on what rank has the first result that is not finite; false where none has.
   Collective: over the world */
static bool anomaly_end(anomaly *w, char *text, size_t size)
{
    struct sight first = w->first;

    wf_context_observe(w->t->par->ctx, NULL, NULL);
    wf_agree_on(w->t->par, sizeof first, &first, take_earlier);
    snprintf(text, size, "%s", first.text);
    return first.seen;
}

/* The first parameter whose value is not finite, or -1. */
static int64_t bad_parameter(wf_par_trainer *t)
{
    wf_tensor **list = t->step.grad; /* room, which is empty here */
    int64_t bad;

    for (int64_t i = 0; i < t->count; i++) /* those of other stages are looked at there */
        list[i] = wf_tensor_is_fake(t->parameter[i]->tensor) ? NULL : t->parameter[i]->tensor;
    bad = first_not_finite(t->par, t->count, list);
    memset(list, 0, (size_t)t->count * sizeof *list); /* they are not held */
    return bad;
}

/* Repeats the micro-steps, of a pipeline by its schedule, and looks at every result. */
static bool repeat_step(wf_par_trainer *t, const wf_par_data *data, char *text, size_t size)
{
    wf_tensor *total;
    anomaly w;
    float loss;

    wf_par_step_begin(t, t->step.number);
    t->step.op_by_op = true;
    anomaly_begin(&w, t);
    t->engine->forward_backward(t, data);
    total = wf_par_losses_total(t, &t->losses);
    if (total)
        wf_par_losses_mean(t, &t->losses, total, &loss);
    wf_tensor_release(total);
    return anomaly_end(&w, text, size);
}

/* Finds the first op or parameter of a step that is not finite. */
static void find_beginning(wf_par_trainer *t, const wf_par_data *data, char *text, size_t size)
{
    int64_t bad = bad_parameter(t);

    if (bad >= 0)
        snprintf(text, size, "parameter %s is not finite itself", t->parameter[bad]->path);
    else if (!data || (!t->options.loss && !t->engine->scheduled))
        snprintf(text, size,
                 "in no parameter; with the step's data and a loss function in the trainer's "
                 "options the op would be found");
    else if (!repeat_step(t, data, text, size))
        snprintf(text, size, "no op makes it, but a sum over micro-steps or ranks");
}

bool wf_par_is_finite(const wf_par_trainer *t, float loss, double norm)
{
    bool none = t->step.at != WF_PAR_AT_NONE && t->step.counted == 0;

    return (isfinite(loss) || none) && isfinite(norm);
}

wf_status wf_par_check_finite(wf_par_trainer *t, float loss, double norm,
                              const wf_par_data *data)
{
    char where[480], gradient[WF_NN_PATH + 64] = "";
    wf_context *ctx;
    int64_t bad;

    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    if (wf_context_status(ctx) != WF_OK || wf_par_is_finite(t, loss, norm))
        return wf_context_status(ctx);
    if (t->step.at != WF_PAR_AT_REDUCED)
        return wf_par_misplaced(t, "wf_par_check_finite");
    bad = first_not_finite(t->par, t->count, t->step.grad);
    if (bad >= 0)
        snprintf(gradient, sizeof gradient, "; the gradient of %s is not finite",
                 t->parameter[bad]->path);
    wf_par_zero_grad(t);
    find_beginning(t, data, where, sizeof where);
    wf_par_zero_grad(t);
    return wf_fail(ctx, WF_ENONFINITE,
                   "loss %g or gradient norm %g is not finite: lower the learning rate, or "
                   "check the data; "
                   "it begins here: %s%s",
                   (double)loss, norm, where, gradient);
}

wf_status wf_par_check_unused(wf_par_trainer *t)
{
    const wf_nn_parameter *first = NULL;
    int64_t n = 0, trained = 0;

    for (int64_t i = 0; i < t->count; i++) {
        trained += !t->parameter[i]->frozen;
        if (!t->parameter[i]->frozen && !t->step.grad[i]) {
            first = first ? first : t->parameter[i];
            n++;
        }
    }
    if (n && n == trained)
        return wf_fail(t->par->ctx, WF_EINVAL,
                       "no parameter of the model gets a gradient in step %" PRId64
                       ", so nothing is trained: the loss is of another model, or reads "
                       "parameters without wf_nn_use",
                       t->step.number);
    if (n)
        wf_context_warn(t->par->ctx, t,
                        "%" PRId64 " of %" PRId64 " parameters get no gradient in step %" PRId64
                        ", the first of them %s: the loss does not use them, so they are not "
                        "trained. If that "
                        "is meant, freeze them (wf_nn_freeze)",
                        n, t->count, t->step.number, first->path);
    return wf_context_status(t->par->ctx);
}
