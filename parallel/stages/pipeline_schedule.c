/* parallel/stages/pipeline_schedule.c - the table of a pipeline: from a name or a file,
   lowered, proved. */
#include "parallel/stages/pipeline_internal.h"
#include "parallel/pipeline/text.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *name_of(const wf_par_pipeline *p)
{
    return p->options.schedule ? p->options.schedule : WF_PIPE_SCHEDULE;
}

wf_status wf_par_pipeline_count(wf_par_pipeline *p, int ranks, wf_error *error)
{
    const char *name = name_of(p);
    wf_pipe_schedule schedule = wf_pipe_schedule_at(wf_pipe_schedule_find(name));
    wf_pipe_shape shape;

    p->stages = ranks * (p->options.stages_per_rank ? p->options.stages_per_rank
                         : schedule.name            ? schedule.per_rank
                                                    : 1);
    if (schedule.name || access(name, F_OK) != 0) /* neither: refused as a name, later */
        return p->options.stages_per_rank >= 0
                   ? WF_OK
                   : wf_error_set(error, WF_EINVAL, "%d stages per rank: give 1 or more",
                                  p->options.stages_per_rank);
    if (wf_pipe_table_read(name, &p->given, error) != WF_OK)
        return error->code;
    shape = wf_pipe_table_shape(p->given);
    if (shape.ranks != ranks)
        return wf_error_set(error, WF_EINVAL,
                            "schedule %s is for %d ranks, and the run has pp %d: give its "
                            "number, or another schedule",
                            name, shape.ranks, ranks);
    if (p->options.stages_per_rank && shape.stages != ranks * p->options.stages_per_rank)
        return wf_error_set(error, WF_EINVAL,
                            "schedule %s has %d stages on %d ranks, and %d a rank were asked "
                            "for: leave that number to the file, or take another schedule",
                            name, shape.stages, ranks, p->options.stages_per_rank);
    p->stages = shape.stages;
    return WF_OK;
}

static wf_status generate(wf_par_pipeline *p, int ranks, wf_pipe_table **table, wf_error *error)
{
    const wf_pipe_shape shape = {.ranks = ranks, .stages = p->stages, .micro = p->micros};

    *table = p->given;
    p->given = NULL;
    return *table ? WF_OK : wf_pipe_generate(name_of(p), &shape, table, error);
}

/* The most stages that a rank has. */
static int most_stages(const wf_pipe_table *table)
{
    wf_pipe_shape shape = wf_pipe_table_shape(table);
    int most = 0;

    for (int r = 0; r < shape.ranks; r++) {
        int own = 0;

        for (int s = 0; s < shape.stages; s++)
            own += wf_pipe_table_rank(table, s) == r;
        most = own > most ? own : most;
    }
    return most;
}

static wf_status lower(const wf_par_pipeline *p, wf_pipe_table **table, wf_error *error)
{
    static const wf_pipe_costs costs = {100, 100, 100, .message = 5};
    bool even = (p->micros & (p->micros - 1)) == 0;
    wf_pipe_lowering how = {.ahead = 1,
                            .depth = p->options.depth,
                            .recompute = p->options.recompute,
                            .group = p->reduces && even ? p->micros : 0,
                            .prefetch = 1,
                            .frozen = p->frozen,
                            .tied = p->tied};
    wf_pipe_depths depths;
    wf_pipe_table *lowered;
    wf_status status = WF_OK;

    if (wf_pipe_table_facts(*table).lowered)
        return WF_OK;
    if (p->gathers)
        how.resident = p->options.resident ? p->options.resident
                       : p->keeps          ? most_stages(*table)
                                           : 0;
    if (!how.depth) {
        status = wf_pipe_find_depths(*table, &how, &costs, &depths, error);
        how.depth = depths.fastest <= WF_PIPE_MOST_IN_FLIGHT ? depths.fastest : depths.least;
    }
    if (status == WF_OK)
        status = wf_pipe_lower(*table, &how, &lowered, error);
    if (status != WF_OK)
        return status;
    wf_pipe_table_free(*table);
    *table = lowered;
    return WF_OK;
}

/* Checks a table given by the user. A lowered one has in it what options say of others, and its
   forwards, gathers and messages have to be those of a run. */
static wf_status check_table(const wf_par_pipeline *p, const wf_pipe_table *table,
                             wf_error *error)
{
    wf_pipe_facts facts = wf_pipe_table_facts(table);
    int micros = wf_pipe_table_shape(table).micro;

    if (facts.lowered && (p->options.depth || p->options.resident || p->options.recompute))
        return wf_error_set(
            error, WF_EINVAL,
            "it is lowered, so its messages, gathers and recomputed forwards stand in it: "
            "leave out depth, resident and recompute, or give the table "
            "as it was before");
    if (facts.lowered && facts.frozen != p->frozen)
        return wf_error_set(error, WF_EINVAL,
                            "it is lowered for a model whose first %d stages have nothing to "
                            "train, and of this one they are %d: say frozen %d in it, or give "
                            "it as compute actions alone",
                            facts.frozen, p->frozen, p->frozen);
    if (facts.group && facts.group != micros)
        return wf_error_set(error, WF_EINVAL,
                            "it reduces gradients of %d micro-batches at a time, and a run "
                            "those of all %d: lower it with group %d",
                            facts.group, micros, micros);
    return WF_OK;
}

static wf_status prepare(const wf_par_pipeline *p, wf_pipe_table **table, wf_pipe_proof *proof,
                         wf_error *error)
{
    wf_error why = {WF_OK, ""};

    if (check_table(p, *table, &why) == WF_OK && lower(p, table, &why) == WF_OK &&
        wf_pipe_prove(*table, proof, &why) == WF_OK)
        return WF_OK;
    return wf_error_set(error, why.code, "schedule %s: %s", name_of(p), why.text);
}

/* Refuses a table of another number of micro-batches: by the proof's words where it is none of
   any number, for instance since one of them is left out. */
static wf_status check_micros(const wf_par_pipeline *p, wf_pipe_table **table, wf_error *error)
{
    wf_par_pipeline of_table = *p;
    wf_pipe_proof proof;

    of_table.micros = wf_pipe_table_shape(*table).micro;
    if (of_table.micros == p->micros || prepare(&of_table, table, &proof, error) != WF_OK)
        return error->code;
    return wf_error_set(error, WF_EINVAL,
                        "schedule %s is for %d micro-batches, and a step has %d: change "
                        "the global batch or the micro-batch size, or the schedule",
                        name_of(p), of_table.micros, p->micros);
}

wf_status wf_par_pipeline_schedule(wf_par_pipeline *p, int ranks, wf_error *error)
{
    wf_pipe_table *table = NULL;
    wf_pipe_proof proof;
    wf_status status = generate(p, ranks, &table, error);

    if (status == WF_OK)
        status = check_micros(p, &table, error);
    if (status == WF_OK)
        status = prepare(p, &table, &proof, error);
    if (status == WF_OK)
        wf_pipe_proof_text(name_of(p), table, &proof, p->text, sizeof p->text);
    else
        wf_pipe_table_free(table);
    p->table = status == WF_OK ? table : NULL;
    return status;
}
