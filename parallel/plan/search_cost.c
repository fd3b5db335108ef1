/* parallel/plan/search_cost.c - a candidate's layout, its bounds, and its step in time. */
#include "parallel/plan/search_internal.h"
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/split.h"
#include <stdlib.h>
#include <string.h>

enum { GROUP = 4 };

static int bytes_of(const char *word)
{
    return (int)wf_dtype_size(wf_dtype_find(word));
}

wf_sim_layout wf_search_layout(const wf_search *s, const wf_search_candidate *c)
{
    const wf_par_strategy *strategy = wf_search_strategy(c);
    bool sharded = strategy->split_parameters && c->shard > 1, keeps = strategy->keep_gathered;
    bool dp = c->shard * c->replicate > 1;
    wf_sim_layout l = {.pp = c->pp,
                       .replicate = c->replicate,
                       .shard = c->shard / wf_search_ep(c),
                       .ep = wf_search_ep(c),
                       .exchange = wf_search_cp(c) == 1 && /* else they are gathered */
                                   wf_par_exchanges(&s->options->job.mesh, wf_search_ep(c),
                                                    s->model.experts, s->model.top_k),
                       .overlap = !s->options->job.mesh.moe_overlap_off,
                       .tp = c->tp,
                       .features = c->features,
                       .cp = wf_search_cp(c),
                       .gather_keys = c->gather_keys,
                       .sequence_parallel = c->sequence_parallel,
                       .row_block = wf_par_row_block(&s->options->job.mesh),
                       .micro = c->micro,
                       .micros = c->micros,
                       .dtype = (wf_dtype)c->dtype,
                       .parameter_bytes = bytes_of(wf_dtype_word((wf_dtype)c->dtype)),
                       .gradient_bytes = bytes_of(s->options->reduce_dtype),
                       .sharded = sharded,
                       .split_update = strategy->split_optimizer &&
                                       !strategy->split_parameters && c->shard > 1,
                       .regather = !keeps,
                       .group = 1,
                       .recompute = (wf_sim_recompute)c->recompute};

    if (s->options->given[WF_SETTING_param_dtype])
        l.parameter_bytes = bytes_of(s->options->param_dtype);
    l.gather = !sharded ? WF_SIM_NEVER : keeps && c->pp > 1 ? WF_SIM_ONCE : WF_SIM_EACH;
    l.reduce = !dp ? WF_SIM_NEVER : c->accumulate > 0 ? WF_SIM_EACH : WF_SIM_ONCE;
    if (c->accumulate == 1) /* group:4, or the command line's */
        l.group = s->options->given[WF_SETTING_accumulate] &&
                          strncmp(s->options->accumulate, "group:", 6) == 0
                      ? atoi(s->options->accumulate + 6)
                      : GROUP;
    return l;
}

/* Cuts the model as gpt_train does: by the FLOPs of blocks, with the head after the last
   step. */
bool wf_search_split(const wf_search *s, const wf_search_candidate *c, int stages,
                     int64_t *first)
{
    const wf_sim_model *m = &s->model;
    double attention = 2 * wf_sim_keys(m) * (double)(m->heads * m->head_dim);
    double chosen = wf_sim_chosen_weights(m) - wf_sim_router_weights(m);
    double plain = wf_sim_block_weights(m) + wf_sim_router_weights(m);
    double block = 6 * plain + 22 * chosen / 3 + 7 * attention; /* 3 and 8 products of 3 */
    wf_pipe_chain chain = {.steps = m->layers + 2, .end = 6 * wf_sim_head_weights(m)};
    double *cost = calloc((size_t)chain.steps, sizeof *cost);
    wf_error ignored = {WF_OK, ""};

    if (c->recompute == WF_SIM_RECOMPUTE_BLOCK)
        block += 2 * (plain + chosen) + 2 * attention;
    else if (c->recompute == WF_SIM_RECOMPUTE_ATTENTION)
        block += 2 * attention;
    for (int64_t i = 1; cost && i <= m->layers; i++)
        cost[i] = block;
    chain.cost = cost;
    if (cost && stages == 1) {
        first[0] = 0;
        first[1] = chain.steps;
    } else if (cost) {
        wf_pipe_split_auto(&chain, stages, first, &ignored);
    }
    free(cost);
    return cost && ignored.code == WF_OK;
}

/* A cut without trying all: blocks as even as can be. */
static void even_split(const wf_search *s, int stages, int64_t *first)
{
    for (int i = 0; i <= stages; i++)
        first[i] = i * (s->model.layers + 2) / stages;
}

static int stages_of(const wf_search_candidate *c)
{
    return c->pp == 1 ? 1 : c->pp * c->per_rank;
}

/* Returns a lower bound of a pipeline's time. The last rank begins when a micro-batch has
   passed the stages before its own; after its last gradient these compute theirs. Of uneven
   stages some are cheaper than the mean, which `even` allows for. */
static double pipeline_bound(const wf_search_candidate *c, double forward, double inputs,
                             double weights)
{
    const double even = .97;
    double n = stages_of(c), chain = c->pp - 1, mine = c->micros * (double)c->per_rank;
    double all = mine * (forward + inputs + weights) / n, back = inputs;

    if (wf_search_schedule(c).whole)
        back += weights;
    else if (mine * (forward + inputs) + chain * inputs > mine * (forward + inputs + weights))
        all = mine * (forward + inputs) / n;
    else
        back = 0;
    return even * (all + chain * (forward + back) / n);
}

/* Returns a lower bound of a step's time. Its gathers and reductions are those seen in a whole
   model: stages have these, and more. */
double wf_search_time_bound(const wf_search *s, const wf_search_candidate *c)
{
    wf_sim_layout l = wf_search_layout(s, c);
    int64_t whole[2] = {0, s->model.layers + 2};
    wf_sim_stage all;
    wf_sim_costs costs;
    double forward, inputs, weights, joined;

    wf_sim_stages(&s->machine, &s->model, &l, whole, 1, &all, &costs);
    forward = wf_sim_total(&all.forward);
    inputs = wf_sim_total(&all.inputs);
    weights = wf_sim_total(&all.weights);
    joined = wf_sim_total(&all.joined);
    if (joined < 0 || c->pp == 1 ||
        wf_search_schedule(c).whole) /* some tables have both kinds */
        weights += joined;
    if (c->recompute == WF_SIM_RECOMPUTE_STAGE)
        inputs += forward;
    if (c->pp > 1)
        return pipeline_bound(c, forward, inputs, weights) + all.update / c->pp;
    return c->micros * (forward + inputs + weights) + all.reduce + all.update;
}

/* Activations that a block keeps for its backward pass, of a token, at the least. */
static double kept(const wf_search *s, const wf_search_candidate *c)
{
    const wf_sim_model *m = &s->model;
    double a = (double)wf_dtype_size((wf_dtype)c->dtype), d = (double)m->width;
    double heads = (double)(m->heads * m->head_dim), keys = (double)(m->kv_heads * m->head_dim);
    double residual = a * d / (c->sequence_parallel ? c->tp : 1);

    if (c->recompute == WF_SIM_RECOMPUTE_BLOCK)
        return residual;
    if (c->recompute == WF_SIM_RECOMPUTE_STAGE)
        return 0;
    return 2 * residual +
           a / c->tp * (heads + 2 * keys + (m->gated ? 2.0 : 1.0) * (double)m->ffn);
}

double wf_search_least_live(const wf_search_candidate *c)
{
    const wf_pipe_shape shape = {c->pp, c->pp * c->per_rank, c->micros, 0};
    const wf_pipe_schedule schedule = wf_search_schedule(c);

    return c->pp > 1 ? wf_pipe_least_live(&schedule, &shape) : 1;
}

double wf_search_parameters(const wf_search *s, const wf_search_candidate *c, int64_t ep)
{
    double others = wf_sim_block_weights(&s->model) / c->tp + wf_sim_router_weights(&s->model);

    return others + wf_sim_expert_weights(&s->model) / c->tp / (double)(ep * wf_search_cp(c));
}

double wf_search_memory_bound(const wf_search *s, const wf_search_candidate *c)
{
    wf_sim_layout l = wf_search_layout(s, c);
    double blocks = (double)(s->model.layers / c->pp);
    double parameters = blocks * wf_search_parameters(s, c, 1);
    double held = blocks * wf_search_parameters(s, c, wf_search_ep(c));
    double split = l.sharded ? c->shard : 1, update = l.split_update ? c->shard : split;
    double state = wf_search_state_bytes(s) + (l.parameter_bytes == 2 ? 4 : 0);
    double weights = l.parameter_bytes * held, gradients = 4 * held, activations;

    if (l.sharded)
        weights = (l.parameter_bytes == 2 ? 0 : 4 / split) * parameters +
                  (l.gather == WF_SIM_ONCE ? l.parameter_bytes : 0) * held;
    if (l.sharded && l.reduce == WF_SIM_EACH)
        gradients = l.group == 1 ? 4 / split * parameters : 4 * held;
    else if (l.sharded)
        gradients = 4 * parameters / (double)wf_search_ep(c);
    activations = kept(s, c) * wf_search_least_live(c) * blocks *
                  (double)(c->micro * s->model.seq) / (double)wf_search_cp(c);
    gradients /= c->per_rank > 1 ? c->per_rank : 1;
    return (update > 1 ? state / update * parameters : state * held) + weights +
           (activations > gradients ? activations : gradients);
}

/* ---- simulation ---- */

static wf_pipe_table *make_table(const wf_search_table *t)
{
    const wf_pipe_shape shape = {t->pp, t->pp * t->per_rank, t->micros, 0};
    const wf_pipe_costs costs = {100, 100, 100, .message = 5, false};
    wf_pipe_lowering how = {.ahead = 1,
                            .recompute = t->recompute,
                            .tied = t->tied,
                            .group = t->group,
                            .resident = t->resident,
                            .prefetch = 1};
    wf_pipe_table *table = NULL, *lowered = NULL;
    wf_error error = {WF_OK, ""};
    wf_pipe_depths depths = {1, 1, 0};

    if (wf_pipe_generate(t->schedule, &shape, &table, &error) == WF_OK &&
        (t->pp == 1 || wf_pipe_find_depths(table, &how, &costs, &depths, &error) == WF_OK)) {
        how.depth = depths.fastest <= WF_PIPE_MOST_IN_FLIGHT ? depths.fastest : depths.least;
        wf_pipe_lower(table, &how, &lowered, &error);
    }
    wf_pipe_table_free(table);
    return lowered;
}

static const wf_pipe_table *table_of(wf_search *s, const wf_search_candidate *c,
                                     const wf_sim_layout *l)
{
    wf_search_table *t = s->table, key = {.schedule = c->pp == 1 ? WF_PIPE_SCHEDULE
                                                                 : wf_search_schedule(c).name,
                                          .pp = c->pp,
                                          .per_rank = c->pp == 1 ? 1 : c->per_rank,
                                          .micros = c->micros,
                                          .recompute = c->recompute == WF_SIM_RECOMPUTE_STAGE,
                                          .tied = c->pp > 1 && s->model.tied};
    int i = 0;

    if (l->reduce == WF_SIM_ONCE && (c->micros & (c->micros - 1)) == 0)
        key.group = c->micros;
    if (l->gather == WF_SIM_ONCE)
        key.resident = key.per_rank;
    for (; i < s->tables; i++)
        if (t[i].schedule == key.schedule && t[i].pp == key.pp &&
            t[i].per_rank == key.per_rank && t[i].micros == key.micros &&
            t[i].group == key.group && t[i].resident == key.resident &&
            t[i].recompute == key.recompute && t[i].tied == key.tied)
            return t[i].table;
    if (i == WF_SEARCH_TABLES) {
        i = 0; /* the oldest one goes */
        wf_pipe_table_free(t[0].table);
    } else {
        s->tables++;
    }
    key.table = make_table(&key);
    t[i] = key;
    return key.table;
}

double wf_search_blocks(const wf_search *s, const int64_t *first, int stage)
{
    int64_t begin = first[stage], end = first[stage + 1], steps = s->model.layers + 2;

    return (double)(end - begin - (begin == 0 && end > begin) - (end == steps && end > begin));
}

/* Returns the time of reductions after all micro-batches, where all ranks meet: those of the
   rank that has most. */
static double longest_reduction(const wf_pipe_table *table, const wf_sim_stage *stage)
{
    wf_pipe_shape shape = wf_pipe_table_shape(table);
    double longest = 0;

    for (int r = 0; r < shape.ranks; r++) {
        double own = 0;

        for (int i = 0; i < shape.stages; i++)
            own += wf_pipe_table_rank(table, i) == r ? stage[i].reduce : 0;
        longest = own > longest ? own : longest;
    }
    return longest;
}

bool wf_search_simulate_table(wf_search *s, const wf_search_candidate *c,
                              const wf_pipe_table *table, const int64_t *first, int flags,
                              wf_search_found *found)
{
    wf_sim_layout l = wf_search_layout(s, c);
    int stages = wf_pipe_table_shape(table).stages;
    wf_sim_stage stage[WF_SEARCH_STAGES];
    wf_sim_result result;
    wf_sim_costs costs;
    wf_error error = {WF_OK, ""};

    *found = (wf_search_found){.candidate = *c};
    if (stages > WF_SEARCH_STAGES)
        return false;
    l.folded = c->pp > 1 && !s->model.tied &&
               wf_pipe_table_rank(table, 0) == wf_pipe_table_rank(table, stages - 1);
    wf_sim_stages(&s->machine, &s->model, &l, first, stages, stage, &costs);
    if (wf_pipe_table_rank(table, 0) == wf_pipe_table_rank(table, stages - 1))
        costs.tie = 0; /* both ends are there */
    if (!wf_pipe_table_facts(table).group)
        costs.norm += longest_reduction(table, stage);
    if (wf_sim_run(table, &costs, flags, &result, &error) != WF_OK)
        return false;
    s->simulated++;
    found->seconds = result.makespan;
    found->bubble = result.bubble;
    found->path = result.path;
    found->utilisation = wf_sim_flops(&s->model, &l) /
                         ((double)s->ranks * result.makespan * s->machine.rate[c->dtype]);
    wf_sim_result_free(&result);
    return true;
}

/* Simulates a candidate by the sizes of its model. */
static bool simulate_sizes(wf_search *s, const wf_search_candidate *c, int flags,
                           wf_search_found *found)
{
    wf_sim_layout l = wf_search_layout(s, c);
    const wf_pipe_table *table = table_of(s, c, &l);
    int stages = stages_of(c);
    int64_t first[WF_SEARCH_STAGES + 1];

    *found = (wf_search_found){.candidate = *c};
    if (!table || stages > WF_SEARCH_STAGES)
        return false;
    if (!wf_search_split(s, c, stages, first))
        even_split(s, stages, first);
    if (!wf_search_simulate_table(s, c, table, first, flags, found))
        return false;
    if (s->options->device_memory)
        found->estimate = wf_search_memory_estimate(s, c, table, first, &found->rank);
    return true;
}

/* Times a candidate by its plans. */
static bool simulate_plans(wf_search *s, const wf_search_candidate *c, int flags,
                           wf_search_found *found)
{
    const wf_plan_request o = wf_search_options(s, c);
    wf_error ignored = {WF_OK, ""};

    *found = (wf_search_found){.candidate = *c};
    if (wf_search_time_plans(&o, &s->machine, flags, found, &ignored) != WF_OK)
        return false;
    found->estimate = (double)found->peak;
    s->simulated++;
    return true;
}

bool wf_search_simulate(wf_search *s, const wf_search_candidate *c, int flags,
                        wf_search_found *found)
{
    if (s->timed)
        return simulate_plans(s, c, flags, found);
    return simulate_sizes(s, c, flags, found);
}
