/* parallel/train/skip.c - steps without an update; see train.h. */
#include "parallel/main.h"
#include "parallel/train/step_alike_internal.h"
#include "parallel/train/step_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

wf_status wf_par_skip_read(const char *text, wf_par_skip *skip, wf_error *error)
{
    *skip = (wf_par_skip){false, 0};
    *error = (wf_error){WF_OK, ""};
    for (const char *at = text; at;) {
        size_t length = strcspn(at, ",");
        char *end = NULL;

        if (length == 9 && strncmp(at, "nonfinite", 9) == 0)
            skip->nonfinite = true;
        else if (strncmp(at, "loss>", 5) == 0)
            skip->loss_above = strtof(at + 5, &end);
        if (end ? end != at + length || !(skip->loss_above > 0) || !isfinite(skip->loss_above)
                : length != 9 || strncmp(at, "nonfinite", 9) != 0)
            return wf_error_set(error, WF_EINVAL,
                                "steps to skip '%.80s': nonfinite, loss>X with X above 0, or "
                                "both with a comma in between",
                                text);
        at = at[length] ? at + length + 1 : NULL;
    }
    return WF_OK;
}

bool wf_par_skips(const wf_par_trainer *t, float loss, double norm, char *why, size_t size)
{
    const wf_par_skip *skip = &t->options.skip;

    if (wf_context_status(t->par->ctx) != WF_OK || wf_context_dry_run(t->par->ctx))
        return false;
    if (skip->nonfinite && !wf_par_is_finite(t, loss, norm))
        snprintf(why, size, "loss %g or gradient norm %g is not finite", (double)loss, norm);
    else if (skip->loss_above > 0 && loss > skip->loss_above)
        snprintf(why, size, "loss %g is above %g", (double)loss, (double)skip->loss_above);
    else
        return false;
    return true;
}

wf_status wf_par_skip_step(wf_par_trainer *t, const char *why)
{
    wf_context *ctx;

    if (!t)
        return WF_EINVAL;
    ctx = t->par->ctx;
    if (wf_context_status(ctx) == WF_OK && t->step.at != WF_PAR_AT_REDUCED)
        return wf_par_misplaced(t, "wf_par_skip_step");
    if (wf_context_status(ctx) == WF_OK && !t->alike.done)
        wf_par_alike_agree(t);
    if (wf_context_status(ctx) != WF_OK)
        return wf_context_status(ctx);
    wf_nn_optimizer_skip(t->optimizer);
    t->committed = (wf_par_committed){.step = t->step.number,
                                      .skip = true,
                                      .skipped = wf_nn_optimizer_skipped(t->optimizer),
                                      .fresh = t->committed.fresh};
    if (wf_context_rank(ctx) == 0)
        wf_par_report_line(NULL,
                           "step %" PRId64 " is skipped, and changes no parameter: %s (%" PRId64
                           " skipped so far)",
                           t->step.number, why, t->committed.skipped);
    return wf_par_step_end(t);
}
