/* parallel/report/rank_trace.c - see the header. */
#include "parallel/report/rank_trace.h"
#include "parallel/report/profile.h"
#include <stdlib.h>

enum {
    TRACE_EVENTS = 1 << 17, /* a rank keeps so many */
    DEAREST = 20            /* ops of a profile */
};

/* The rows of ranks in other processes come to rank 0, which has the file. */
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

wf_status wf_rank_trace_close(wf_rank_trace *t)
{
    wf_context *ctx = wf_par_context(t->par);
    wf_error error = {WF_OK, ""};
    wf_trace *trace = t->trace;
    bool well = wf_context_status(ctx) == WF_OK;
    const wf_profile_sums *sums = NULL;

    t->trace = NULL;
    if (trace && hand_in_rows(t, trace, well, &error) != WF_OK)
        wf_fail(ctx, error.code, "%s", error.text);
    if (trace && wf_context_status(ctx) == WF_OK) {
        const wf_profile_sums mine = wf_profile_sum(trace, t->spent);

        sums = wf_mesh_gather(wf_par_mesh(t->par), &mine, sizeof mine);
    }
    if (trace && t->out && wf_context_status(ctx) == WF_OK) {
        wf_timeline_summary(t->out, trace);
        if (wf_profile_print(t->out, trace, t->spent, 0, DEAREST, &error) != WF_OK)
            wf_fail(ctx, error.code, "%s", error.text);
        if (sums)
            wf_profile_print_ranks(t->out, sums, t->rank->size);
        fprintf(t->out, "  (of rank %d, in steps %lld to %lld; %lld events found no room)\n",
                t->rank->index, (long long)t->first, (long long)t->last,
                (long long)wf_trace_lost(trace));
        fflush(t->out);
    }
    wf_trace_close(trace);
    return wf_context_status(ctx);
}

wf_status wf_rank_trace_open(wf_rank_trace *t)
{
    wf_error error = {WF_OK, ""};

    if (!t->traced)
        return WF_OK;
    t->zero = wf_timeline_clock();
    t->trace = wf_trace_open(TRACE_EVENTS, &error);
    if (!t->trace ||
        wf_broadcast(t->rank->world, sizeof t->zero, 0, &t->zero, 1, &error) != WF_OK)
        return wf_fail(wf_par_context(t->par), error.code, "%s", error.text);
    return WF_OK;
}

wf_status wf_rank_trace_step(wf_rank_trace *t, wf_par_trainer *trainer, int64_t step,
                             const wf_par_data *data, wf_par_step *result)
{
    wf_status status;
    int64_t begin;

    if (t->trace && step >= t->first)
        wf_mesh_trace(wf_par_mesh(t->par), t->trace);
    begin = wf_trace_now();
    status = wf_par_train_step(trainer, step, data, result);
    if (t->trace) {
        wf_mesh_trace(wf_par_mesh(t->par), NULL);
        t->spent += step >= t->first ? wf_trace_now() - begin : 0;
    }
    if (status == WF_OK && step == t->last)
        status = wf_rank_trace_close(t);
    return status;
}
