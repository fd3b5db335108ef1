/* parallel/check/print.c - a report as text: losses, findings, a table of parameters. */
#include "parallel/check/check.h"
#include "parallel/flag_names.h"
#include <math.h>

static void print_losses(FILE *out, const wf_check_report *r)
{
    fprintf(out, "batch: %lld sequences of %lld tokens, of which %lld are predicted\n",
            (long long)r->sequences, (long long)r->tokens, (long long)r->counted);
    fprintf(out, "loss: %.7g", r->loss);
    if (r->has_loss)
        fprintf(out, ", theirs %.7g: %s", r->their_loss, r->loss_equal ? "equal" : "DIFFERS");
    fprintf(out, "\n");
    if (r->has_token_losses && !r->token_losses_wrong)
        fprintf(out, "losses of tokens: equal\n");
    else if (r->has_token_losses)
        fprintf(out, "losses of tokens: %lld DIFFER\n", (long long)r->token_losses_wrong);
    if (r->choices && !r->choices_differ)
        fprintf(out, "choices of experts: equal\n");
    else if (r->choices)
        fprintf(
            out,
            "choices of experts: %lld of %lld differ, by at most %.2g standard deviations of "
            "scores: %s\n",
            (long long)r->choices_differ, (long long)r->choices, r->choice_gap,
            r->choices_wrong ? "DIFFERENT" : "rounding");
    fprintf(out, "norm of gradients: %.7g", r->norm);
    if (r->rows)
        fprintf(out, ", theirs %.7g", r->their_norm);
    fprintf(out, "\n");
}

static void print_finding(FILE *out, const wf_check_finding *f, int64_t number)
{
    char text[600];

    fprintf(out, "\n%lld. %s\n", (long long)number,
            wf_flags_reported(f->what, text, sizeof text));
    if (*f->where)
        fprintf(out, "   where: %s\n", f->where);
    fprintf(out, "   cause: %s\n",
            *f->cause ? wf_flags_reported(f->cause, text, sizeof text) : "none that is known");
}

static void print_row(FILE *out, const wf_check_report *r, const wf_check_row *row, int width)
{
    fprintf(out, "%-*s ", width, row->name);
    if (row->missing) {
        fprintf(out, "%9s\n", "missing");
        return;
    }
    fprintf(out, "%9.1e %9.6f %9.5f ", row->error, row->cosine, row->ratio);
    if (r->updates && row->update >= 0)
        fprintf(out, "%9.1e ", row->update);
    else if (r->updates)
        fprintf(out, "%9s ", "-");
    fprintf(out, "%s%s%s\n",
            !row->equal                        ? "DIFFERS"
            : r->updates && !row->update_equal ? "UPDATE DIFFERS"
                                               : "equal",
            *row->text ? ": " : "", row->text);
}

static bool is_shown(const wf_check_report *r, const wf_check_row *row, bool all)
{
    return all || row->missing || (!row->equal && !row->explained) ||
           (r->updates && !row->update_equal);
}

void wf_check_print(FILE *out, const wf_check_report *r, bool all)
{
    int64_t equal = 0, missing = 0, shown = 0, width = 9;

    print_losses(out, r);
    for (int64_t i = 0; i < r->findings; i++)
        print_finding(out, &r->finding[i], i + 1);
    for (int64_t i = 0; i < r->rows; i++) {
        const int64_t n = snprintf(NULL, 0, "%s", r->row[i].name);

        equal += r->row[i].equal && !r->row[i].missing;
        missing += r->row[i].missing;
        shown += is_shown(r, &r->row[i], all);
        width = n > width ? n : width;
    }
    if (!r->rows)
        return;
    fprintf(out, "\n");
    if (shown)
        fprintf(out, "%-*s %9s %9s %9s %s%s\n", (int)width, "parameter", "error", "cosine",
                "norm", r->updates ? "   update " : "", "gradient");
    for (int64_t i = 0; i < r->rows; i++)
        if (is_shown(r, &r->row[i], all))
            print_row(out, r, &r->row[i], (int)width);
    fprintf(out, "%lld of %lld gradients are equal (within %g)", (long long)equal,
            (long long)(r->rows - missing), r->tolerance);
    if (missing)
        fprintf(out, ", %lld are missing", (long long)missing);
    fprintf(out, "\n%s\n", r->equal ? "EQUAL" : "DIFFERENT");
}
