/* parallel/train/rampup.c - global batches that grow with the sequences that were trained on;
   see train.h. */
#include "parallel/train/train_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 1024 };

int64_t wf_par_rampup_sizes(const wf_par_train_options *o)
{
    return o->rampup.start ? (o->global_batch - o->rampup.start) / o->rampup.increment : 0;
}

/* Level i, of n below the whole batch, lasts while less than (i + 1) / n of the sequences are
   done. */
int64_t wf_par_step_batch(const wf_par_train_options *o, int64_t step, int64_t *before)
{
    const wf_par_rampup *r = &o->rampup;
    int64_t n = wf_par_rampup_sizes(o), done = 0, made = 0;

    for (int64_t i = 0; i < n; i++) {
        int64_t batch = r->start + i * r->increment, left = (i + 1) * r->sequences - done * n;
        int64_t steps = left > 0 ? (left + n * batch - 1) / (n * batch) : 0;

        if (made + steps >= step) {
            *before = done + (step - 1 - made) * batch;
            return batch;
        }
        made += steps;
        done += steps * batch;
    }
    *before = done + (step - 1 - made) * o->global_batch;
    return o->global_batch;
}

int64_t wf_par_trainer_sequences(const wf_par_trainer *t, int64_t steps)
{
    int64_t before = 0;

    if (t)
        wf_par_step_batch(&t->options, steps + 1, &before);
    return before;
}

/* A plan takes a step of each size, and then whole ones. */
int64_t wf_par_batch_at(const wf_par_trainer *t, int64_t step)
{
    const wf_par_train_options *o = &t->options;
    int64_t unread;

    if (!wf_context_dry_run(t->par->ctx))
        return wf_par_step_batch(o, step, &unread);
    return step <= wf_par_rampup_sizes(o) ? o->rampup.start + (step - 1) * o->rampup.increment
                                          : o->global_batch;
}

wf_status wf_par_rampup_check(const wf_par_trainer *t)
{
    const wf_par_train_options *o = &t->options;
    const wf_par_rampup *r = &o->rampup;
    wf_context *ctx = t->par->ctx;

    if (!r->start && !r->increment && !r->sequences)
        return wf_context_status(ctx);
    if (r->start < 1 || r->increment < 1 || r->sequences < 1 || r->start >= o->global_batch ||
        (o->global_batch - r->start) % r->increment || wf_par_rampup_sizes(o) > MOST_SIZES ||
        r->sequences > INT64_MAX / (8 * (MOST_SIZES + 1)))
        return wf_fail(ctx, WF_EINVAL,
                       "batches that grow from %" PRId64 " by %" PRId64 " over %" PRId64
                       " sequences: all are positive, the first is smaller than the global "
                       "batch of %" PRId64
                       ", which increments reach, and there are at most %d sizes",
                       r->start, r->increment, r->sequences, o->global_batch, (int)MOST_SIZES);
    if (o->pipeline)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "batches that grow are trained without a pipeline: its schedule has one "
                       "number of micro-steps");
    return wf_context_status(ctx);
}

wf_status wf_par_rampup_read(const char *text, wf_par_rampup *rampup, wf_error *error)
{
    int64_t *const field[] = {&rampup->start, &rampup->increment, &rampup->sequences};
    const char *at = text;
    bool good = true;

    for (int i = 0; i < 3 && good; i++) {
        char *end;

        *field[i] = strtoll(at, &end, 10);
        good = end != at && *field[i] > 0;
        at = end + strspn(end, i < 2 ? ", " : "");
    }
    return good && !*at ? WF_OK
                        : wf_error_set(error, WF_EINVAL,
                                       "'%s' is no START,INCREMENT,SEQUENCES of three positive "
                                       "numbers, as 16,16,100000",
                                       text);
}
