/* parallel/check/json.c - a report as JSON; numbers that are not finite are null. */
#include "parallel/check/check.h"
#include "parallel/formats/json_number.h"
#include <jansson.h>
#include <math.h>

static json_t *number(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

static json_t *of_row(const wf_check_row *row)
{
    return json_pack("{s:s, s:b, s:b, s:o, s:o, s:o, s:o, s:b, s:s}", "name", row->name,
                     "missing", row->missing, "equal", row->equal, "error", number(row->error),
                     "cosine", number(row->cosine), "ratio", number(row->ratio), "update",
                     row->update < 0 ? json_null() : number(row->update), "update_equal",
                     row->update_equal, "fit", row->text);
}

static json_t *of_finding(const wf_check_finding *f)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:I}", "id", f->id, "what", f->what, "cause",
                     f->cause, "where", f->where, "count", (json_int_t)f->count);
}

wf_status wf_check_json(FILE *out, const wf_check_report *r, wf_error *error)
{
    json_t *rows = json_array(), *findings = json_array();

    for (int64_t i = 0; i < r->rows; i++)
        json_array_append_new(rows, of_row(&r->row[i]));
    for (int64_t i = 0; i < r->findings; i++)
        json_array_append_new(findings, of_finding(&r->finding[i]));
    return wf_json_line(
        json_pack(
            "{s:b, s:I, s:I, s:I, s:o, s:o, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:o, "
            "s:o}",
            "equal", r->equal, "sequences", (json_int_t)r->sequences, "tokens",
            (json_int_t)r->tokens, "counted", (json_int_t)r->counted, "loss", number(r->loss),
            "their_loss", r->has_loss ? number(r->their_loss) : json_null(), "loss_equal",
            r->loss_equal, "token_losses_wrong", (json_int_t)r->token_losses_wrong, "choices",
            (json_int_t)r->choices, "choices_differ", (json_int_t)r->choices_differ,
            "choices_wrong", (json_int_t)r->choices_wrong, "choice_gap", number(r->choice_gap),
            "norm", number(r->norm), "their_norm", number(r->their_norm), "tolerance",
            r->tolerance, "findings", findings, "parameters", rows),
        out, 9, "the report", error);
}
