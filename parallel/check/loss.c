/* parallel/check/loss.c - losses of tokens and their mean beside Weft's, and what is known to
   make others. */
#include "parallel/check/check_internal.h"
#include <math.h>

static void compare_tokens(wf_check_report *report, const wf_check_reference *r,
                           const wf_check_batch *b, const float *theirs, int64_t wide,
                           double tolerance)
{
    for (int64_t s = 0; s < b->sequences; s++)
        for (int64_t t = 0; t < wide; t++) {
            const double ours = (double)r->token_loss[s * b->tokens + t];
            const double x = (double)theirs[s * wide + t];

            if (fabs(x - ours) <= tolerance * (fabs(ours) > 1 ? fabs(ours) : 1))
                continue;
            if (report->token_losses_wrong++ == 0) {
                report->wrong_sequence = s;
                report->wrong_token = t;
                report->wrong_theirs = x;
                report->wrong_ours = ours;
            }
        }
}

static double sum_sequence(const wf_check_reference *r, const wf_check_batch *b, int64_t s)
{
    double sum = 0;

    for (int64_t t = 0; t < b->tokens; t++)
        sum += (double)r->token_loss[s * b->tokens + t];
    return sum;
}

/* A candidate for how their loss came about, if it is nearer than what is there. */
static bool is_nearer(const wf_check_report *report, double loss, double *nearest)
{
    const double off = fabs(report->their_loss / loss - 1);

    if (!(off < *nearest))
        return false;
    *nearest = off;
    return true;
}

/* Means of groups of sequences: their mean is the loss, or one of them is; the nearest
   counts. */
static bool explain_groups(const wf_check_report *report, const wf_check_reference *r,
                           const wf_check_batch *b, double slack, wf_check_finding *f)
{
    double nearest = slack;

    for (int64_t groups = 2; groups <= b->sequences; groups++) {
        const int64_t size = b->sequences / groups;
        double mean = 0;

        for (int64_t g = 0; b->sequences % groups == 0 && g < groups; g++) {
            double sum = 0, counted = 0;

            for (int64_t s = g * size; s < (g + 1) * size; s++) {
                sum += sum_sequence(r, b, s);
                counted += (double)r->sequence_counted[s];
            }
            mean += counted > 0 ? sum / counted / (double)groups : 0;
            if (counted > 0 && is_nearer(report, sum / counted, &nearest))
                snprintf(
                    f->cause, sizeof f->cause,
                    "it is the mean of %lld of %lld sequences, of rank or micro-batch %lld "
                    "of %lld alone",
                    (long long)size, (long long)b->sequences, (long long)g, (long long)groups);
        }
        if (b->sequences % groups == 0 && is_nearer(report, mean, &nearest))
            snprintf(f->cause, sizeof f->cause,
                     "it is a mean of %lld means over the tokens of each rank or micro-batch, "
                     "and not over all %lld tokens",
                     (long long)groups, (long long)r->counted);
    }
    return *f->cause;
}

wf_status wf_check_explain_loss(wf_check_report *report, const wf_check_reference *r,
                                const wf_check_batch *batch, const float *theirs, int64_t wide,
                                const wf_check_numbers *n, wf_error *error)
{
    const double slack = n->tolerance < 5e-3 ? n->tolerance : 5e-3;
    wf_check_finding *f;
    char name[96];

    if (theirs)
        compare_tokens(report, r, batch, theirs, wide, n->tolerance);
    report->loss_equal = report->has_loss &&
                         fabs(report->their_loss - report->loss) <= slack * fabs(report->loss);
    if (report->token_losses_wrong) {
        f = wf_check_add(report, "token-losses", error);
        if (!f)
            return error->code;
        snprintf(f->what, sizeof f->what,
                 "losses of %lld of %lld tokens differ, at first of sequence %lld, token %lld: "
                 "%.6g, and %.6g of Weft",
                 (long long)report->token_losses_wrong, (long long)report->counted,
                 (long long)report->wrong_sequence, (long long)report->wrong_token,
                 report->wrong_theirs, report->wrong_ours);
        snprintf(f->cause, sizeof f->cause, "%s",
                 report->wrong_token > 0 || report->wrong_sequence > 0
                     ? "what comes before is right: positions, documents, a window or a mask "
                       "differ from there on"
                     : "the forward pass is another one: config.json, weights or precision");
    }
    if (!report->has_loss || report->loss_equal)
        return error->code;
    f = wf_check_add(report, "loss", error);
    if (!f)
        return error->code;
    wf_check_factor_name(report->their_loss / report->loss, n, name);
    snprintf(f->what, sizeof f->what, "the loss is %.7g, and %.7g of Weft: %.6g times%s%s%s",
             report->their_loss, report->loss, report->their_loss / report->loss,
             *name ? " (" : "", name, *name ? ")" : "");
    if (!explain_groups(report, r, batch, slack, f) && *name)
        snprintf(f->cause, sizeof f->cause,
                 "it is scaled before it is shown, or differentiated");
    return error->code;
}
