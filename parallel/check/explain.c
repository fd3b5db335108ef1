/*
 * parallel/check/explain.c - fits of single gradients as findings: those that are alike become
 * one, with the cause that is known for its kind, factor and parameters.
 */
#include "parallel/check/check_internal.h"
#include <math.h>
#include <string.h>

enum { ANY = 0, LESS = -1, MORE = 1, NONE = 2 /* a factor of zero */ };

/* Causes: the first row that fits. `roles`: each parameter has one of them; `all`: every
   parameter has this fit. */
static const struct cause {
    wf_check_kind kind;
    int sign; /* the factor's, against 1 */
    unsigned roles;
    bool all;
    const char *text;
} causes[] = {
    {WF_CHECK_NOT_FINITE, ANY, 0, false,
     "an overflow (fp16, a loss scale), or a division by zero; the first such parameter from "
     "the loss on is where to look"},
    {WF_CHECK_ZERO, ANY, WF_CHECK_VOCABULARY, false,
     "the table gets no gradient: detached, frozen, or the stage that has it is not summed"},
    {WF_CHECK_ZERO, ANY, WF_CHECK_EXPERT, false,
     "no gradient arrives at these experts: those of an expert-parallel rank are not gathered, "
     "or the tokens that other ranks sent to them do not count"},
    {WF_CHECK_ZERO, ANY, WF_CHECK_ROUTER, false,
     "the router gets no gradient: the weights of the chosen experts are detached; what comes "
     "before the router lacks that part, too"},
    {WF_CHECK_ZERO, ANY, 0, false,
     "no gradient arrives: detached, frozen, not used, or cleared before it was dumped"},
    {WF_CHECK_FACTOR, MORE, 0, true,
     "summed over ranks or micro-batches and not divided by their number"},
    {WF_CHECK_FACTOR, LESS, 0, true,
     "divided by the number of ranks or micro-batches once too often (the mean of a mean), or "
     "the last of them alone"},
    {WF_CHECK_FACTOR, MORE, WF_CHECK_ROW_BIAS, false,
     "a bias after a row-parallel linear is added on every tensor-parallel rank, so it counts "
     "once per rank: add it once, after the sum"},
    {WF_CHECK_FACTOR, LESS, WF_CHECK_ROW_BIAS, false,
     "a bias after a row-parallel linear has a rank's share of its gradient"},
    {WF_CHECK_FACTOR, MORE, WF_CHECK_NORM | WF_CHECK_ROW_BIAS, false,
     "summed over tensor-parallel ranks although each has all of it: a sum for sequence "
     "parallelism where tokens are not split"},
    {WF_CHECK_FACTOR, LESS, WF_CHECK_NORM | WF_CHECK_ROW_BIAS, false,
     "averaged over ranks that have a part of the tokens each: it is a sum"},
    {WF_CHECK_FACTOR, MORE, WF_CHECK_BIAS, false, "biases are counted once per rank"},
    {WF_CHECK_FACTOR, MORE, WF_CHECK_KV, false,
     "heads of keys and values that several ranks have copies of are summed once per copy"},
    {WF_CHECK_FACTOR, LESS, WF_CHECK_KV, false,
     "heads of keys and values that several ranks have copies of: the copies' gradients are "
     "averaged, or one copy's alone is taken"},
    {WF_CHECK_FACTOR, MORE, WF_CHECK_VOCABULARY, false,
     "a table that several ranks or stages have is summed once too often"},
    {WF_CHECK_FACTOR, ANY, WF_CHECK_EXPERT, false,
     "experts have seen the tokens of all ranks of their expert-parallel group: their "
     "gradients are summed or divided over another group than that of their copies"},
    {WF_CHECK_FACTOR, ANY, WF_CHECK_ROUTER, false,
     "routers are whole on every rank, and are reduced as experts are: over the wrong group"},
    {WF_CHECK_FACTOR, ANY, WF_CHECK_COLUMN | WF_CHECK_ROW, false,
     "weights that are split over ranks are scaled by the size of another group than the one "
     "that they are reduced over"},
    {WF_CHECK_FACTOR, ANY, 0, false,
     "scaled by the size of another group of ranks than the one it is reduced over, or counted "
     "more than once"},
    {WF_CHECK_ROWS, NONE, WF_CHECK_VOCABULARY, false,
     "rows of a table have no gradient: a rank's share of the vocabulary is missing, or a "
     "padding token's row is cleared (padding_idx)"},
    {WF_CHECK_ROWS, NONE, 0, false,
     "a rank's share is missing: not gathered, or not summed over the ranks that have it"},
    {WF_CHECK_COLUMNS, NONE, 0, false,
     "a rank's share of the columns is missing: not gathered, or not summed over the ranks "
     "that "
     "have it"},
    {WF_CHECK_ROWS, ANY, WF_CHECK_MIXED, false,
     "a part of a fused tensor has a scale of its own"},
    {WF_CHECK_ROWS, ANY, 0, false,
     "a rank's share has a scale of its own: reduced over another group, or counted more than "
     "once"},
    {WF_CHECK_COLUMNS, ANY, 0, false,
     "a rank's share of the columns, or a part of a fused tensor, has a scale of its own"},
    {WF_CHECK_TRANSPOSED, ANY, 0, false,
     "[out, in] of a Linear and [in, out] of a Conv1D are mixed up"},
    {WF_CHECK_OTHER, ANY, 0, false,
     "parameters of one shape are exchanged: by a converter, or a list in another order"},
    {WF_CHECK_DECAYED, ANY, 0, false,
     "weight decay is added to the gradient (L2 regularisation) before it was dumped"},
    {WF_CHECK_TIED, ANY, 0, false,
     "the gradients of the two uses of a tied table, embedding and head, are not summed"},
    {WF_CHECK_ROUNDED, ANY, 0, false,
     "nearly right: computed in a lower precision than the tolerance is for, or an operation "
     "is "
     "approximated"},
};

static const char *order_cause(double second)
{
    static const char *const text[] = {
        "", "two linears that lie in one tensor (gate and up) are in the other order",
        ("rows of queries and keys are in the order of the other rotary embedding: neighbours "
         "rotate (GPT-J, Llama's own) or halves do (GPT-NeoX, transformers)"),
        "parts of ranks, heads or fused linears are put together in another order",
        "a permutation is applied on one way and not undone on the other"};

    return second >= 1 && second <= 4 ? text[(int)second] : "";
}

/* Tensors that have the fit of one. */
typedef struct alike {
    const wf_check_fit *fit;
    double slack;
} alike;

static bool near(double a, double b, double slack)
{
    return fabs(a - b) <= slack * (fabs(a) > 1e-3 ? fabs(a) : 1e-3);
}

static bool is_alike(const wf_check_tensor *t, const void *arg)
{
    const alike *a = arg;
    const wf_check_kind k = a->fit->kind;

    if (t->fit.kind != k)
        return false;
    if (k == WF_CHECK_ROWS_MOVED || k == WF_CHECK_COLUMNS_MOVED)
        return t->fit.second == a->fit->second;
    if (k == WF_CHECK_DECAYED)
        return near(a->fit->second, t->fit.second, 10 * a->slack);
    return (k != WF_CHECK_FACTOR && k != WF_CHECK_ROWS && k != WF_CHECK_COLUMNS) ||
           near(a->fit->factor, t->fit.factor, 4 * a->slack);
}

static bool has_roles(const wf_check_reference *r, const alike *a, unsigned roles)
{
    for (int64_t i = 0; i < r->count; i++)
        if (is_alike(&r->tensor[i], a) && !(r->tensor[i].roles & roles))
            return false;
    return true;
}

static const char *cause_of(const wf_check_reference *r, const alike *a, int64_t count)
{
    const double f = a->fit->factor;
    const int sign = fabs(f) < 1e-6 ? NONE : fabs(f) < 1 ? LESS : MORE;

    if (a->fit->kind == WF_CHECK_ROWS_MOVED || a->fit->kind == WF_CHECK_COLUMNS_MOVED)
        return order_cause(a->fit->second);
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++)
        if (causes[i].kind == a->fit->kind &&
            (causes[i].sign == ANY || causes[i].sign == sign) &&
            (!causes[i].roles || has_roles(r, a, causes[i].roles)) &&
            (!causes[i].all || count == r->count))
            return causes[i].text;
    return "";
}

static const char *const ids[] = {"equal",      "missing",       "not-finite", "zero",
                                  "factor",     "rows",          "columns",    "transposed",
                                  "rows-moved", "columns-moved", "exchanged",  "decayed",
                                  "tied",       "explained",     "rounded",    "unknown"};

/* Norms of parts of the gradients that a clip may have taken for that of all. */
static const char *clip_cause(const wf_check_reference *r, double norm)
{
    static const struct {
        unsigned leave; /* parameters that are not in it */
        double copies;  /* times that parameters with copies on several ranks count */
        const char *text;
    } tries[] = {
        {WF_CHECK_NORM | WF_CHECK_BIAS, 1, "the norm leaves out vectors"},
        {WF_CHECK_VOCABULARY, 1, "the norm leaves out the tables of the vocabulary"},
        {0, 2, "what both of 2 ranks have (norms, biases) counts twice in the norm"},
        {0, 4, "what all of 4 ranks have (norms, biases) counts 4 times in the norm"},
        {0, 8, "what all of 8 ranks have (norms, biases) counts 8 times in the norm"},
        {WF_CHECK_COLUMN | WF_CHECK_ROW, 1, "the norm leaves out the linears of blocks"}};

    for (size_t k = 0; k < sizeof tries / sizeof *tries; k++) {
        double sum = 0;

        for (int64_t i = 0; i < r->count; i++) {
            const wf_check_tensor *t = &r->tensor[i];
            const double g = wf_check_norm(t->reference, t->count);

            if (!(t->roles & tries[k].leave))
                sum += g * g *
                       (t->roles & (WF_CHECK_NORM | WF_CHECK_ROW_BIAS) ? tries[k].copies : 1);
        }
        if (fabs(sqrt(sum) / norm - 1) < 1e-3)
            return tries[k].text;
    }
    return "";
}

/* One factor for all, beside a clip. false: that is no clip's. */
static bool explain_clip(wf_check_report *report, const wf_check_reference *r,
                         const wf_check_numbers *n, double factor, wf_error *error)
{
    const double scale = n->clip > 0 && n->norm > n->clip ? n->clip / n->norm : 1;
    double ours = 0, their, limit = n->clip;
    wf_check_finding *f;

    for (int64_t i = 0; i < r->count; i++) {
        const double g = wf_check_norm(r->tensor[i].reference, r->tensor[i].count);

        ours += g * g;
    }
    ours = sqrt(ours); /* the reference's, clipped where there is a clip */
    if (n->clip <= 0 && !(fabs(factor * ours - 1) < 1e-3))
        return false;
    f = wf_check_add(report, "clip", error);
    if (!f)
        return true;
    f->count = r->count;
    snprintf(f->where, sizeof f->where, "all %lld parameters", (long long)r->count);
    if (limit <= 0) {
        snprintf(f->what, sizeof f->what,
                 "all gradients are %.5g times Weft's, and their norm is 1", factor);
        snprintf(f->cause, sizeof f->cause,
                 "they have been clipped to a norm of 1: dump them before, or name .clip 1");
        return true;
    }
    their = limit / (factor * scale) * (ours / (n->norm * scale));
    snprintf(f->what, sizeof f->what,
             "all gradients are %.5g times those that are clipped to %g: the clip has taken "
             "%.6g for their norm, which is %.6g",
             factor, limit, their, n->norm);
    if (fabs(factor * scale - 1) < 1e-3)
        snprintf(f->cause, sizeof f->cause, "they have not been clipped");
    else
        snprintf(f->cause, sizeof f->cause, "%s",
                 *clip_cause(r, their * scale) ? clip_cause(r, their * scale)
                                               : "the norm is that of a part of the gradients, "
                                                 "or counts some of them more than once");
    return true;
}

/* The finding of all that is like tensor i. */
static wf_status explain_group(wf_check_report *report, const wf_check_reference *r,
                               const wf_check_numbers *n, int64_t i, wf_error *error)
{
    const wf_check_fit *fit = &r->tensor[i].fit;
    const alike a = {fit, n->tolerance};
    char name[96], where[240];
    const int64_t count = wf_check_name_set(r, is_alike, &a, where, sizeof where);
    wf_check_finding *f;

    if (fit->kind == WF_CHECK_FACTOR && count == r->count &&
        !*wf_check_factor_name(fit->factor, n, name) &&
        explain_clip(report, r, n, fit->factor, error))
        return error->code;
    f = wf_check_add(report, ids[fit->kind], error);
    if (!f)
        return error->code;
    f->count = count;
    snprintf(f->where, sizeof f->where, "%s", where);
    wf_check_factor_name(fit->factor, n, name);
    if (fit->kind == WF_CHECK_FACTOR)
        snprintf(f->what, sizeof f->what, "the gradient is %.6g times Weft's%s%s%s",
                 fit->factor, *name ? " (" : "", name, *name ? ")" : "");
    else
        snprintf(f->what, sizeof f->what, "the gradient is %s: %s",
                 fit->kind == WF_CHECK_ROWS || fit->kind == WF_CHECK_COLUMNS
                     ? "Weft's, part by part"
                     : "not Weft's",
                 fit->text);
    snprintf(f->cause, sizeof f->cause, "%s", cause_of(r, &a, count));
    return WF_OK;
}

static bool is_unknown(const wf_check_tensor *t, const void *arg)
{
    (void)arg;
    return t->fit.kind == WF_CHECK_UNKNOWN;
}

/* Finds the parameter from which on, towards the input, backward goes wrong. */
static void locate(const wf_check_report *report, const wf_check_reference *r,
                   const wf_check_numbers *n, wf_check_finding *f)
{
    int64_t last = r->count - 1, wrong = 0, vectors = 0, unknown = 0, at_output = 0;
    bool routed = false;

    while (r->tensor[last].fit.kind != WF_CHECK_UNKNOWN)
        last--;
    for (int64_t i = 0; i < r->count; i++) {
        bool is = is_unknown(&r->tensor[i], NULL);

        wrong += i <= last && r->tensor[i].fit.kind != WF_CHECK_EQUAL;
        vectors += is && r->tensor[i].roles & WF_CHECK_NORM;
        at_output += is && r->tensor[i].roles & WF_CHECK_VOCABULARY;
        unknown += is;
        routed |= (r->tensor[i].roles & WF_CHECK_ROUTER) != 0;
    }
    if (routed && n->tolerance > 1e-3 && !report->choices)
        snprintf(
            f->cause, sizeof f->cause,
            "in bf16 or fp16 a token may go to another expert than in fp32, or backward is "
            "wrong: give the batch the routers' choices (routed_experts) to tell");
    else if (report->choices_wrong)
        snprintf(f->cause, sizeof f->cause,
                 "the choices of experts differ already, and gradients follow from that");
    else if ((report->has_loss && !report->loss_equal) || report->token_losses_wrong)
        snprintf(f->cause, sizeof f->cause,
                 "the losses differ already: the forward pass, the labels or the mask are "
                 "others, and gradients follow from that");
    else if (wrong == last + 1 && last + 1 < r->count && last > 0)
        snprintf(
            f->cause, sizeof f->cause,
            "backward is right down to %.80s, and wrong from %.80s on towards the input: the "
            "gradient of what lies between them is incomplete%s",
            r->tensor[last + 1].name, r->tensor[last].name,
            r->tensor[last].roles & WF_CHECK_ROUTER
                ? " (a loss of balance or of the router's logits, which is no part of the loss "
                  "of tokens)"
            : r->tensor[last + 1].roles & WF_CHECK_COLUMN
                ? " (the all-reduce of the input's gradient of a column-parallel linear)"
                : "");
    else if (vectors == unknown)
        snprintf(f->cause, sizeof f->cause,
                 "only norms are wrong, and what flows past them is right: their own sum over "
                 "tokens is incomplete (sequence parallelism without its all-reduce)");
    else if (last + 1 == r->count && wrong == r->count)
        snprintf(f->cause, sizeof f->cause,
                 "all are wrong from the loss on: dropout, another batch, or weights that are "
                 "not those of the model's folder");
    else
        snprintf(
            f->cause, sizeof f->cause,
            "the gradient of these is wrong, while what flows past them is right: their own "
            "product or sum%s",
            at_output == unknown ? " over tokens or ranks of the vocabulary" : "");
}

/* Without the router's gradient what comes before it lacks a part, too. */
static void follow_routers(const wf_check_reference *r)
{
    bool missing = false;

    for (int64_t i = r->count - 1; i >= 0; i--) {
        wf_check_fit *fit = &r->tensor[i].fit;

        if (missing && (fit->kind == WF_CHECK_UNKNOWN || fit->kind == WF_CHECK_ROUNDED))
            fit->kind = WF_CHECK_EXPLAINED;
        missing |= fit->kind == WF_CHECK_ZERO && r->tensor[i].roles & WF_CHECK_ROUTER;
    }
}

/* Within a wide tolerance some runs of rows fit anything small: more than two are a fault of
   their own only where nothing else is unknown. */
static void forget_chance(const wf_check_reference *r, double tolerance)
{
    bool unknown = false;

    for (int64_t i = 0; i < r->count; i++)
        unknown |= is_unknown(&r->tensor[i], NULL);
    for (int64_t i = 0; i < r->count && unknown && tolerance > 1e-3; i++) {
        wf_check_fit *fit = &r->tensor[i].fit;

        if ((fit->kind == WF_CHECK_ROWS || fit->kind == WF_CHECK_COLUMNS) && fit->parts > 2)
            *fit = (wf_check_fit){.kind = WF_CHECK_UNKNOWN};
    }
}

wf_status wf_check_explain(wf_check_report *report, const wf_check_reference *r,
                           const wf_check_numbers *n, wf_error *error)
{
    wf_check_finding *f;

    follow_routers(r);
    forget_chance(r, n->tolerance);
    for (int64_t i = 0; i < r->count && error->code == WF_OK; i++) {
        const wf_check_fit *fit = &r->tensor[i].fit;
        const alike a = {fit, n->tolerance};
        bool first = true;

        for (int64_t k = 0; k < i && first; k++)
            first = !is_alike(&r->tensor[k], &a);
        if (first && fit->kind != WF_CHECK_EQUAL && fit->kind != WF_CHECK_MISSING &&
            fit->kind != WF_CHECK_EXPLAINED && fit->kind != WF_CHECK_UNKNOWN)
            explain_group(report, r, n, i, error);
    }
    for (int64_t i = 0; i < r->count && error->code == WF_OK; i++)
        if (is_unknown(&r->tensor[i], NULL)) {
            f = wf_check_add(report, "unknown", error);
            if (!f)
                return error->code;
            f->count = wf_check_name_set(r, is_unknown, NULL, f->where, sizeof f->where);
            snprintf(f->what, sizeof f->what,
                     "the gradient is no multiple, part or order of Weft's");
            locate(report, r, n, f);
            break;
        }
    return error->code;
}
