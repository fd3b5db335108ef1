/* parallel/simulate/simulate.c - a simulation from begin to end; see the headers. */
#include "parallel/simulate/events_internal.h"
#include <stdlib.h>

const char *wf_sim_term_name(wf_sim_term term)
{
    static const char *const words[] = {
#define TERM(name, text) [WF_SIM_##name] = text,
#include "parallel/simulate/terms.def"
#undef TERM
    };

    return (unsigned)term < WF_SIM_TERMS ? words[term] : "unknown term";
}

double wf_sim_total(const wf_sim_cost *cost)
{
    double sum = 0;

    for (int i = 0; i < WF_SIM_TERMS; i++)
        sum += cost->of[i];
    return sum;
}

static bool open_times(wf_sim_state *s)
{
    size_t ranks = (size_t)s->shape.ranks;
    wf_sim_result *r = s->result;

    r->start = calloc(2 * ranks, sizeof *r->start);
    s->cause = calloc(ranks, sizeof *s->cause);
    r->end = r->start ? r->start + ranks : NULL;
    for (size_t i = 0; r->start && s->cause && i < ranks; i++) {
        r->start[i] = calloc(2 * (size_t)s->n[i] + 1, sizeof **r->start);
        r->end[i] = r->start[i] ? r->start[i] + s->n[i] : NULL;
        s->cause[i] = calloc((size_t)s->n[i] + 1, sizeof **s->cause);
        if (!r->start[i] || !s->cause[i])
            return false;
    }
    return r->start && s->cause;
}

static bool open_nodes(wf_sim_state *s)
{
    size_t stages = (size_t)s->shape.stages, nodes = stages * (size_t)s->shape.micro;

    s->node = malloc(nodes * sizeof *s->node);
    s->message = malloc(2 * nodes * sizeof *s->message);
    if (!s->node || !s->message)
        return false;
    for (size_t i = 0; i < nodes; i++)
        s->node[i] = (wf_sim_node){.forward = WF_SIM_NOT_YET, .inputs = WF_SIM_NOT_YET};
    for (size_t i = 0; i < 2 * nodes; i++)
        s->message[i] = (wf_sim_message){
            .sent = WF_SIM_NOT_YET, .received = WF_SIM_NOT_YET, .arrives = WF_SIM_NOT_YET};
    return true;
}

static bool open_arrays(wf_sim_state *s)
{
    size_t ranks = (size_t)s->shape.ranks, stages = (size_t)s->shape.stages;

    s->row = calloc(ranks, sizeof *s->row);
    s->n = calloc(2 * ranks, sizeof *s->n);
    s->clock = calloc((2 + ranks) * ranks, sizeof *s->clock);
    s->gathered = calloc(2 * stages, sizeof *s->gathered);
    s->gather_at = calloc(2 * stages, sizeof *s->gather_at);
    s->left = calloc(stages, sizeof *s->left);
    s->unpaid = calloc(stages + 2 * ranks, sizeof *s->unpaid);
    s->rank_of = calloc(stages, sizeof *s->rank_of);
    s->result->rank = calloc(ranks, sizeof *s->result->rank);
    return s->row && s->n && s->clock && s->gathered && s->gather_at && s->left && s->unpaid &&
           s->rank_of && s->result->rank;
}

static wf_status open_state(wf_sim_state *s, int flags, wf_error *error)
{
    int ranks = s->shape.ranks, stages = s->shape.stages;

    if (!open_arrays(s) || !open_nodes(s))
        return wf_error_set(error, WF_ENOMEM, "no memory to simulate a schedule");
    s->next = s->n + ranks;
    s->lane = s->clock + ranks;
    s->link = s->lane + ranks;
    s->reduced = s->gathered + stages;
    s->reduce_at = s->gather_at + stages;
    s->met[0] = s->unpaid + stages;
    s->met[1] = s->met[0] + ranks;
    for (int r = 0; r < ranks; r++)
        s->row[r] = wf_pipe_table_row(s->table, r, &s->n[r]);
    for (int i = 0; i < stages; i++)
        s->rank_of[i] = wf_pipe_table_rank(s->table, i);
    s->result->ranks = ranks;
    if (flags & WF_SIM_PATH && !open_times(s))
        return wf_error_set(error, WF_ENOMEM, "no memory for the times of a schedule");
    return WF_OK;
}

static void close_state(wf_sim_state *s)
{
    for (int r = 0; s->cause && r < s->shape.ranks; r++)
        free(s->cause[r]);
    free(s->cause);
    free((void *)s->row);
    free(s->n);
    free(s->clock);
    free(s->gathered);
    free(s->gather_at);
    free(s->left);
    free(s->unpaid);
    free(s->rank_of);
    free(s->node);
    free(s->message);
}

void wf_sim_result_free(wf_sim_result *r)
{
    for (int i = 0; r->start && i < r->ranks; i++)
        free(r->start[i]);
    free(r->start);
    free(r->rank);
    free(r->action);
    *r = (wf_sim_result){.rank = NULL};
}

/* Continues a rank until it waits for another one. */
static bool go_on(wf_sim_state *s, int rank)
{
    bool moved = false;

    while (s->next[rank] < s->n[rank]) {
        wf_sim_turn t = wf_sim_look(s, rank);

        if (t.begin < 0)
            return moved;
        wf_sim_commit(s, rank, &t, t.begin + t.duration);
        moved = true;
    }
    return moved;
}

bool wf_sim_walk(wf_sim_state *s)
{
    bool moved = true, ended = true;

    while (moved) {
        moved = false;
        for (int r = 0; r < s->shape.ranks; r++)
            moved |= go_on(s, r);
        for (int r = s->shape.ranks - 1; r >= 0; r--)
            moved |= go_on(s, r);
    }
    for (int r = 0; r < s->shape.ranks; r++)
        ended &= s->next[r] == s->n[r];
    return ended;
}

static void measure(wf_sim_state *s)
{
    wf_sim_result *result = s->result;
    double busy = 0;

    for (int r = 0; r < s->shape.ranks; r++) {
        if (s->clock[r] > result->makespan)
            result->makespan = s->clock[r];
        busy += result->rank[r].busy;
    }
    for (int r = 0; r < s->shape.ranks; r++)
        result->rank[r].drain = result->makespan - result->rank[r].end;
    if (result->makespan > 0)
        result->bubble = 1 - busy / (result->makespan * s->shape.ranks);
}

wf_status wf_sim_run(const wf_pipe_table *table, const wf_sim_costs *costs, int flags,
                     wf_sim_result *result, wf_error *error)
{
    wf_sim_state s = {.table = table,
                      .costs = costs,
                      .shape = wf_pipe_table_shape(table),
                      .facts = wf_pipe_table_facts(table),
                      .result = result};
    bool shared = costs->cores > 0 && costs->cores < s.shape.ranks;

    *result = (wf_sim_result){.rank = NULL};
    if (!s.facts.lowered)
        return wf_error_set(error, WF_EINVAL,
                            "a table of compute actions alone has no messages to simulate: "
                            "lower it first (wf_pipe_lower)");
    if (open_state(&s, flags, error) == WF_OK) {
        if (!(shared ? wf_sim_share(&s) : wf_sim_walk(&s)))
            wf_error_set(error, WF_EINVAL,
                         "the table stands still where ranks wait for each other: "
                         "wf_pipe_prove says for what");
        else
            measure(&s);
        if (error->code == WF_OK && flags & WF_SIM_PATH)
            wf_sim_path(&s, error);
    }
    close_state(&s);
    if (error->code != WF_OK)
        wf_sim_result_free(result);
    return error->code;
}
