/* parallel/report/rank_trace.c - see the header. */
#include "parallel/report/rank_trace.h"
#include "parallel/train/ahead.h"
#include <stdlib.h>

enum { TRACE_EVENTS = 1 << 17 }; /* most events that a rank keeps */

/* Gathers the rows of ranks in other processes on rank 0, which has the file. */
static wf_status collect_rows(wf_rank_trace *t, const int64_t *here, wf_error *error)
{
    wf_status status = WF_OK;

    for (int r = 0; r < t->rank->size && status == WF_OK; r++) {
        int64_t bytes = 0;
        char *text;

        if (here[r])
            continue;
        status = wf_recv(t->rank->world, sizeof bytes, r, &bytes, 1, error);
        if (status != WF_OK)
            break;
        text = malloc((size_t)bytes + 1);
        if (!text)
            return wf_error_set(error, WF_ENOMEM, "no memory for the timeline of rank %d", r);
        status = wf_recv(t->rank->world, 1, r, text, bytes, error);
        if (status == WF_OK)
            wf_timeline_put(t->timeline, r, text, (size_t)bytes);
        else
            free(text);
    }
    return status;
}

/* The rows of this rank go to rank 0, which has the file; of a run that has failed, not from
   other processes. */
static wf_status hand_in_rows(wf_rank_trace *t, const wf_trace *trace, bool well,
                              wf_error *error)
{
    const int64_t mine = t->timeline != NULL, *here = NULL;
    char *text;
    size_t bytes;
    wf_status status = wf_timeline_text(t->rank->index, trace, t->zero, &text, &bytes, error);

    if (well && !(here = wf_mesh_gather(wf_par_mesh(t->par), &mine, sizeof mine)))
        well = false;
    if (status == WF_OK && t->timeline) {
        wf_timeline_put(t->timeline, t->rank->index, text, bytes);
        text = NULL;
    } else if (status == WF_OK && well) {
        int64_t size = (int64_t)bytes;

        status = wf_send(t->rank->world, sizeof size, 0, &size, 1, error);
        if (status == WF_OK)
            status = wf_send(t->rank->world, 1, 0, text, size, error);
    }
    free(text);
    return status == WF_OK && well && t->rank->index == 0 ? collect_rows(t, here, error)
                                                          : status;
}

static wf_status fail(const wf_rank_trace *t, const wf_error *error)
{
    wf_context *ctx = wf_par_context(t->par);

    return error->code != WF_OK ? wf_fail(ctx, error->code, "%s", error->text)
                                : wf_context_status(ctx);
}

/* Prints the profile of all ranks, where rank 0 is. */
static wf_status print_profile(wf_rank_trace *t)
{
    FILE *out = t->rank->index == 0 ? t->out : NULL;

    if (out)
        fprintf(out, "profile of steps %lld to %lld on %d rank%s (means over ranks):\n",
                (long long)t->first, (long long)t->last, t->rank->size,
                t->rank->size == 1 ? "" : "s");
    if (wf_profile_report(t->dearest, t->par, out, t->profile) == WF_OK && out && t->lost)
        fprintf(out, "  (%lld events found no room: \"neither\" has their time)\n",
                (long long)t->lost);
    return wf_context_status(wf_par_context(t->par));
}

/* Hands in the timeline, and prints a summary of it. */
static void close_timeline(wf_rank_trace *t, const wf_trace *trace)
{
    wf_context *ctx = wf_par_context(t->par);
    wf_error error = {WF_OK, ""};
    bool well = wf_context_status(ctx) == WF_OK;

    if (hand_in_rows(t, trace, well, &error) != WF_OK)
        fail(t, &error);
    if (!t->summary || wf_context_status(ctx) != WF_OK)
        return;
    wf_timeline_summary(t->summary, trace);
    fprintf(t->summary, "  (of rank %d, in steps %lld to %lld; %lld events found no room)\n",
            t->rank->index, (long long)t->first, (long long)t->last,
            (long long)wf_trace_lost(trace));
    fflush(t->summary);
}

wf_status wf_rank_trace_close(wf_rank_trace *t)
{
    wf_context *ctx = wf_par_context(t->par);
    wf_trace *trace = t->trace;

    t->trace = NULL;
    if (trace && t->traced)
        close_timeline(t, trace);
    if (trace && t->dearest && wf_context_status(ctx) == WF_OK)
        print_profile(t);
    wf_trace_close(trace);
    wf_profile_close(t->dearest);
    t->dearest = NULL;
    return wf_context_status(ctx);
}

wf_status wf_rank_trace_open(wf_rank_trace *t)
{
    wf_error error = {WF_OK, ""};

    if (!t->traced && !t->profile)
        return WF_OK;
    t->zero = wf_timeline_clock();
    t->trace = wf_trace_open(TRACE_EVENTS, &error);
    t->dearest = t->trace && t->profile ? wf_profile_open(&error) : NULL;
    if (t->trace && t->profile && !t->traced)
        wf_trace_wait_for_ops(t->trace);
    if (error.code == WF_OK)
        wf_broadcast(t->rank->world, sizeof t->zero, 0, &t->zero, 1, &error);
    return fail(t, &error);
}

/* Begins to trace a part of a step that is asked for; returns when, 0 for none. */
static int64_t begin_part(const wf_rank_trace *t, int64_t step)
{
    if (!t->trace || step < t->first || step > t->last)
        return 0;
    wf_mesh_trace(wf_par_mesh(t->par), t->trace);
    return wf_trace_now();
}

static void end_part(wf_rank_trace *t, int64_t begun)
{
    if (!begun)
        return;
    wf_mesh_trace(wf_par_mesh(t->par), NULL);
    t->spent += wf_trace_now() - begun;
}

wf_status wf_rank_trace_launch(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                               const wf_par_data *data)
{
    const int64_t begun = begin_part(t, step);
    wf_status status = wf_par_train_launch(trainer, step, data);

    end_part(t, begun);
    return status;
}

wf_status wf_rank_trace_finish(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                               wf_par_step *result)
{
    const int64_t begun = begin_part(t, step);
    wf_status status = wf_par_train_finish(trainer, result);

    end_part(t, begun);
    return status;
}

bool wf_rank_trace_may_follow(const wf_rank_trace *t, int64_t step)
{
    return !t->trace || (step + 1 != t->first && step != t->last);
}

/* Takes events into the profile, which needs them no more if no timeline is written. */
wf_status wf_rank_trace_end_step(wf_rank_trace *t, int64_t step)
{
    wf_error error = {WF_OK, ""};

    if (t->dearest && t->spent) {
        wf_profile_add(t->dearest, t->trace, t->seen, t->spent, &error);
        t->seen = wf_trace_count(t->trace);
        t->lost += wf_trace_lost(t->trace);
    }
    if (t->dearest && t->spent && !t->traced) {
        wf_trace_clear(t->trace);
        t->seen = 0;
    }
    t->spent = 0;
    if (fail(t, &error) == WF_OK && t->trace && step == t->last)
        return wf_rank_trace_close(t);
    return wf_context_status(wf_par_context(t->par));
}
