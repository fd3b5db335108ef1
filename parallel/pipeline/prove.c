/* parallel/pipeline/prove.c - proves rows, then messages, then that a walk reaches the end;
   finds the depths of messages. */
#include "parallel/pipeline/prove_internal.h"
#include "parallel/pipeline/walk_internal.h"
#include <stdio.h>

wf_status wf_pipe_prove(const wf_pipe_table *table, wf_pipe_proof *proof, wf_error *error)
{
    static const wf_pipe_costs unit = {1, 1, 1, 0, true};
    wf_pipe_proof found = {0};
    wf_status status;

    if (table->facts.group & (table->facts.group - 1))
        return wf_error_set(error, WF_EINVAL,
                            "gradients are reduced in groups of a power of two micro-batches, "
                            "not %d",
                            table->facts.group);
    status = wf_pipe_prove_rows(table, error);
    if (status == WF_OK && table->facts.lowered)
        status = wf_pipe_prove_messages(table, &found, error);
    if (status == WF_OK)
        status = wf_pipe_walk_run(table, &unit, NULL, error);
    if (status != WF_OK)
        return status;
    for (int r = 0; r < table->shape.ranks; r++) {
        int peak = wf_pipe_peak(&table->row[r]);

        found.peak = peak > found.peak ? peak : found.peak;
        for (int64_t i = 0; i < table->row[r].n; i++) {
            const wf_pipe_action *a = &table->row[r].action[i];

            if (!wf_pipe_kind_table[a->kind].derived)
                found.compute += a->last - a->micro + 1;
        }
    }
    if (proof)
        *proof = found;
    return WF_OK;
}

char *wf_pipe_proof_text(const char *name, const wf_pipe_table *table,
                         const wf_pipe_proof *proof, char *text, size_t size)
{
    char messages[96] = "no messages yet";

    if (table->facts.lowered)
        snprintf(messages, sizeof messages, "%lld messages, at most %d in flight",
                 (long long)proof->messages, proof->in_flight);
    snprintf(text, size,
             "schedule %s: %d ranks, %d stages, %d micro-batches, %lld actions, %s; no "
             "deadlock; peak %d activations",
             name, table->shape.ranks, table->shape.stages, table->shape.micro,
             (long long)proof->compute, messages, proof->peak);
    return text;
}

/* The makespan at a depth; -1: a deadlock. */
static wf_status time_at(const wf_pipe_table *table, wf_pipe_lowering how, int depth,
                         const wf_pipe_costs *costs, int64_t *makespan, wf_error *error)
{
    wf_error deadlock = {WF_OK, ""};
    wf_pipe_timing timing;
    wf_pipe_table *lowered;
    wf_status status;

    how.depth = depth;
    status = wf_pipe_lower(table, &how, &lowered, error);
    if (status != WF_OK)
        return status;
    status = wf_pipe_simulate(lowered, costs, &timing, &deadlock);
    wf_pipe_table_free(lowered);
    if (status == WF_OK) {
        *makespan = timing.makespan;
        wf_pipe_timing_free(&timing);
    }
    if (status != WF_EINVAL)
        return status == WF_OK ? WF_OK : wf_error_set(error, status, "%s", deadlock.text);
    *makespan = -1;
    return WF_OK;
}

/* The smallest depth up to `high`, at least 1, whose makespan is `most` or less: more messages
   in flight never cost time, and never make a deadlock. Mostly it is small, so depths double
   until one is enough. */
static wf_status smallest(const wf_pipe_table *table, const wf_pipe_lowering *how,
                          const wf_pipe_costs *costs, int *high, int64_t most, wf_error *error)
{
    wf_status status = WF_OK;
    bool enough = false;
    int low = 0;

    while (status == WF_OK && *high - low > 1) {
        int depth = enough || 2 * low >= *high ? low + (*high - low) / 2 : low ? 2 * low : 1;
        int64_t makespan;

        status = time_at(table, *how, depth, costs, &makespan, error);
        if (status == WF_OK && makespan >= 0 && makespan <= most) {
            *high = depth;
            enough = true;
        } else {
            low = depth;
        }
    }
    return status;
}

wf_status wf_pipe_find_depths(const wf_pipe_table *table, const wf_pipe_lowering *how,
                              const wf_pipe_costs *costs, wf_pipe_depths *depths,
                              wf_error *error)
{
    /* No rank sends another one more messages than all of its stages have. */
    int64_t all = 2 * (int64_t)table->shape.stages * table->shape.micro;
    wf_status status;

    *depths = (wf_pipe_depths){.fastest = (int)all};
    status = time_at(table, *how, (int)all, costs, &depths->makespan, error);
    if (status == WF_OK)
        status = smallest(table, how, costs, &depths->fastest, depths->makespan, error);
    depths->least = depths->fastest;
    if (status == WF_OK)
        status = smallest(table, how, costs, &depths->least, INT64_MAX, error);
    return status;
}
