/*
 * parallel/check/update.c - the update of a first step, made of their gradients: AdamW
 * (Loshchilov and Hutter 2019) or SGD, beside each fault that is known of it.
 */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <string.h>

typedef enum epsilon { OUTSIDE, INSIDE, BEFORE } epsilon;

/* An update as somebody may have written it. */
typedef struct recipe {
    const char *id, *what, *cause;
    bool other_decay; /* decay of parameters that have none, or none of those that have it */
    bool l2, whole_decay, uncorrected_m, uncorrected_v;
    epsilon where;
    double eps; /* -1: as given */
} recipe;

static const recipe recipes[] = {
    {"", "", "", .eps = -1},
    {"update-decay", "weight decay is applied where none belongs, or not where it does",
     "parameter groups: biases and norms take no decay (.decay says which do)",
     .other_decay = true, .eps = -1},
    {"update-l2", "weight decay goes through the moments",
     "Adam with L2 regularisation, and not AdamW's decoupled decay", .l2 = true, .eps = -1},
    {"update-decay-rate", "weight decay is not multiplied by the learning rate",
     "decoupled decay is lr x weight_decay x weight", .whole_decay = true, .eps = -1},
    {"update-correction", "neither moment is corrected for its bias",
     "the correction by 1 - beta^step is missing, or the step's number is wrong (it begins at "
     "1)",
     .uncorrected_m = true, .uncorrected_v = true, .eps = -1},
    {"update-correction", "the first moment is not corrected for its bias",
     "the correction by 1 - beta1^step is missing", .uncorrected_m = true, .eps = -1},
    {"update-correction", "the second moment is not corrected for its bias",
     "the correction by 1 - beta2^step is missing", .uncorrected_v = true, .eps = -1},
    {"update-epsilon", "epsilon is added before the second moment is corrected",
     "TensorFlow's epsilon: sqrt(v) + eps, corrected afterwards, is a larger epsilon in first "
     "steps",
     .where = BEFORE, .eps = -1},
    {"update-epsilon", "epsilon is added inside the root",
     "sqrt(v + eps) instead of sqrt(v) + eps", .where = INSIDE, .eps = -1},
    {"update-epsilon", "epsilon is 0", "another epsilon than was given", .eps = 0},
    {"update-epsilon", "epsilon is 1e-12", "another epsilon than was given", .eps = 1e-12},
    {"update-epsilon", "epsilon is 1e-10", "another epsilon than was given", .eps = 1e-10},
    {"update-epsilon", "epsilon is 1e-8", "another epsilon than was given", .eps = 1e-8},
    {"update-epsilon", "epsilon is 1e-7", "another epsilon than was given", .eps = 1e-7},
    {"update-epsilon", "epsilon is 1e-6", "another epsilon than was given", .eps = 1e-6},
    {"update-epsilon", "epsilon is 1e-5", "another epsilon than was given", .eps = 1e-5},
};

enum { RIGHT = 0, RECIPES = sizeof recipes / sizeof *recipes, RATE = RECIPES, STILL, UNKNOWN };

static bool decays(const wf_check_options *o, const wf_check_tensor *t)
{
    return o->decay == WF_CHECK_DECAY_ALL ||
           (o->decay == WF_CHECK_DECAY_MATRICES && t->ndim > 1);
}

/* The change of a weight w by gradient g. */
static double change(const wf_check_options *o, const recipe *r, bool adam, double decay,
                     double w, double g)
{
    const double rate = r->whole_decay ? 1 : o->lr, eps = r->eps < 0 ? o->eps : r->eps;
    double m, v, root;

    g = r->l2 ? g + decay * w : g;
    decay = r->l2 ? 0 : decay;
    if (!adam)
        return o->lr * g + rate * decay * w;
    m = r->uncorrected_m ? (1 - o->beta1) * g : g;
    v = r->uncorrected_v ? (1 - o->beta2) * g * g : g * g;
    root = r->where == INSIDE   ? sqrt(v + eps)
           : r->where == BEFORE ? sqrt(v) + eps / sqrt(1 - o->beta2)
                                : sqrt(v) + eps;
    return (root > 0 ? o->lr * m / root : 0) + rate * decay * w;
}

/* Sums of what has changed, x, and what should have, g. */
static wf_check_sums measure(const wf_check_options *o, const wf_check_tensor *t,
                             const recipe *r, bool adam, double *distance)
{
    const bool has = decays(o, t) != r->other_decay;
    const double decay = has ? o->weight_decay : 0;
    wf_check_sums s = {0, 0, 0};
    double sum = 0;

    for (int64_t i = 0; i < t->count; i++) {
        const double w = (double)t->weight[i], x = w - (double)t->updated[i];
        const double e = change(o, r, adam, decay, w, (double)t->theirs[i]);

        s.xx += x * x;
        s.gg += e * e;
        s.xg += x * e;
        sum += (x - e) * (x - e);
    }
    *distance = sqrt(sum);
    return s;
}

static void fit_update(const wf_check_options *o, wf_check_tensor *t, bool adam,
                       double tolerance)
{
    const double rounding = t->rounding * wf_check_norm(t->weight, t->count);
    double distance, f;
    wf_check_sums s = measure(o, t, &recipes[RIGHT], adam, &distance);
    const double wanted = sqrt(s.gg);

    t->update = wanted > 0 ? distance / wanted : distance > rounding;
    t->update_fit.other = RIGHT;
    if (distance <= tolerance * wanted + rounding)
        return;
    t->update_fit.other = UNKNOWN;
    if (s.xx == 0) {
        t->update_fit.other = STILL;
        return;
    }
    for (int i = 1; i < RECIPES; i++) {
        const wf_check_sums now = measure(o, t, &recipes[i], adam, &distance);

        if (distance <= tolerance * sqrt(now.gg) + rounding) {
            t->update_fit.other = i;
            return;
        }
    }
    f = s.gg > 0 ? s.xg / s.gg : 0;
    distance = s.xx - f * s.xg;
    if (sqrt(distance > 0 ? distance : 0) <= tolerance * sqrt(s.xx) + rounding) {
        t->update_fit.other = RATE;
        t->update_fit.factor = f;
    }
}

static bool has_fit(const wf_check_tensor *t, const void *arg)
{
    const wf_check_fit *fit = arg;

    return t->updated && t->update_fit.other == fit->other &&
           (fit->other != RATE || fabs(t->update_fit.factor / fit->factor - 1) < 0.01);
}

static wf_status explain(wf_check_report *report, const wf_check_reference *r,
                         const wf_check_fit *fit, wf_error *error)
{
    wf_check_finding *f = wf_check_add(report, "update", error);

    if (!f)
        return error->code;
    f->count = wf_check_name_set(r, has_fit, fit, f->where, sizeof f->where);
    if (fit->other < RECIPES) {
        snprintf(f->id, sizeof f->id, "%s", recipes[fit->other].id);
        snprintf(f->what, sizeof f->what, "the update: %s", recipes[fit->other].what);
        snprintf(f->cause, sizeof f->cause, "%s", recipes[fit->other].cause);
    } else if (fit->other == RATE) {
        snprintf(f->id, sizeof f->id, "update-rate");
        snprintf(f->what, sizeof f->what, "the update is %.6g times the right one",
                 fit->factor);
        snprintf(f->cause, sizeof f->cause,
                 "another learning rate: a warm-up's, a schedule's that is one step off, or a "
                 "parameter group's");
    } else if (fit->other == STILL) {
        snprintf(f->id, sizeof f->id, "update-none");
        snprintf(f->what, sizeof f->what, "the weights have not changed");
        snprintf(f->cause, sizeof f->cause,
                 "they are in no parameter group, or a copy was updated");
    } else {
        snprintf(f->what, sizeof f->what,
                 "the update is none that .optimizer makes of their gradients in a first step");
    }
    return WF_OK;
}

wf_status wf_check_updates(wf_check_report *report, wf_check_reference *r,
                           const wf_check_options *o, wf_error *error)
{
    const bool adam = !o->optimizer || strcmp(o->optimizer, "adamw") == 0;
    const double tolerance = o->tolerance > 2e-4 ? o->tolerance : 2e-4;

    if (!adam && strcmp(o->optimizer, "sgd") != 0)
        return wf_error_set(error, WF_EINVAL, "optimizer %s is none of adamw and sgd",
                            o->optimizer);
    report->updates = true;
    for (int64_t i = 0; i < r->count; i++)
        if (r->tensor[i].updated && r->tensor[i].theirs)
            fit_update(o, &r->tensor[i], adam, tolerance);
    for (int64_t i = 0; i < r->count && error->code == WF_OK; i++) {
        const wf_check_tensor *t = &r->tensor[i];
        bool first = t->updated && t->update_fit.other != RIGHT;

        for (int64_t k = 0; k < i && first; k++)
            first = !has_fit(&r->tensor[k], &t->update_fit);
        if (first)
            explain(report, r, &t->update_fit, error);
    }
    return error->code;
}
