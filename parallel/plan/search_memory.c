/*
 * parallel/plan/search_memory.c - what a candidate's ranks take, before it is planned: what
 * four and five blocks take in a plan says what a block keeps of a micro-batch and what is
 * there once; parameters, gradients and the optimizer's state follow from sizes.
 */
#include "parallel/plan/request_internal.h"
#include "parallel/plan/search_internal.h"
#include <string.h>

enum { FEW = 4, SMALL_VOCABULARY = 256, SHARDS = 64, GROUP_OF_4 = 1, REDUCED = 2 };

/* Returns the candidate with those fields alone that change the memory of a block. Its
   parameters and gradients have enough shards that they do not show; experts that no rank
   gathers, or that stay gathered, are not there a second time. */
static wf_search_candidate key_of(const wf_search *s, const wf_search_candidate *c)
{
    const wf_par_strategy *strategy = wf_search_strategy(c);
    bool keeps = s->model.experts && strategy->split_parameters && strategy->keep_gathered;
    int64_t ep = wf_search_ep(c);

    return (wf_search_candidate){
        .pp = 1,
        .tp = c->tp,
        .shard = (int32_t)(c->shard == ep && ep > 1 ? ep : SHARDS * ep),
        .ep = (int32_t)ep,
        .features = c->features,
        .replicate = 1,
        .micro = c->micro,
        .micros = 1,
        .strategy = (int8_t)wf_strategy_index(keeps ? "shard_grad_op" : "full_shard"),
        .accumulate = REDUCED,
        .recompute = c->recompute == WF_SIM_RECOMPUTE_STAGE ? 0 : c->recompute,
        .dtype = c->dtype,
        .cp = c->cp,
        .gather_keys = c->gather_keys,
        .sequence_parallel = c->sequence_parallel};
}

/* Parameters of a block: those that tensor parallelism leaves, and of them what a rank that
   splits experts computes with. */
typedef struct weights {
    double whole, held;
    double copied; /* a second copy of these, where gathered parameters stay */
    bool chain;    /* gradients of micro-batches are added as they come */
} weights;

/* Returns the number of sums that are open after a number of terms of a tree, in order. */
static double open_sums(weights w, int64_t terms)
{
    return w.chain ? terms > 0 : __builtin_popcountll((unsigned long long)terms);
}

static weights weights_of(const wf_search *s, const wf_search_candidate *c)
{
    double held = wf_search_parameters(s, c, wf_search_ep(c)), experts = 0;

    if (wf_search_ep(c) == c->shard && c->dtype == WF_F32) /* no rank gathers them */
        experts = wf_sim_expert_weights(&s->model) / c->tp / c->shard / (double)wf_search_cp(c);
    return (weights){wf_search_parameters(s, c, 1), held, held - experts,
                     s->options->job.mesh.exact_off};
}

/* Returns the bytes of a block's gradients after `done` micro-batches. */
static double gradient_bytes(const wf_search_candidate *c, const wf_sim_layout *l, weights w,
                             int64_t done)
{
    double part = l->sharded ? w.whole / c->shard : w.held;

    if (l->sharded && c->accumulate == GROUP_OF_4 && !w.chain)
        return 4 * w.held * open_sums(w, done % 4) + 4 * part * open_sums(w, done / 4);
    if (l->sharded && l->reduce == WF_SIM_EACH)
        return 4 * part * open_sums(w, done);
    if (l->sharded) /* sums over the ranks that split experts are over */
        return 4 * w.whole / (double)wf_search_ep(c) * open_sums(w, done);
    return 4 * w.held * open_sums(w, done);
}

double wf_search_state_bytes(const wf_search *s)
{
    wf_nn_optimizer_options o = s->options->job.train.optimizer;

    o.method = (wf_nn_method)wf_plan_word_value(WF_SETTING_optimizer, s->options->optimizer);
    return s->options->job.mesh.offload_optimizer ? 0 /* it is in host memory */
                                                  : wf_nn_optimizer_least_bytes(&o);
}

/* Bytes of a block's parameters: their state, and themselves as they are computed with. */
static double parameter_bytes(const wf_search *s, const wf_search_candidate *c,
                              const wf_sim_layout *l, weights w)
{
    double part = l->sharded ? w.whole / c->shard : w.held;
    double updated = l->split_update ? w.whole / c->shard : part;
    double state = wf_search_state_bytes(s);
    double bytes = l->parameter_bytes == 2 ? 2 : 4, stored = bytes * w.held;

    if (l->parameter_bytes == 2 && !s->options->job.mesh.offload_optimizer)
        state += 4; /* fp32 masters */
    if (l->sharded)
        stored = (l->parameter_bytes == 2 ? 0 : 4 * part) +
                 (l->regather ? 0 : l->parameter_bytes * w.copied);
    return state * updated + stored;
}

static double plan_blocks(const wf_search *s, const wf_search_candidate *key, int64_t blocks)
{
    wf_plan_request o = wf_search_options(s, key);
    wf_error ignored = {WF_OK, ""};
    wf_plan run;

    o.job.blocks = blocks;
    o.job.vocabulary = SMALL_VOCABULARY;
    o.global_batch_size = (int64_t)key->shard * key->replicate * key->micro;
    o.job.steps = 1;
    o.rank = wf_plan_ranks(&o) - 1;
    if (wf_plan_request_step(&o, &run, &ignored) != WF_OK)
        return 0;
    return (double)run.report.memory.peak;
}

static const wf_search_measured *measure(wf_search *s, const wf_search_candidate *c)
{
    wf_search_candidate key = key_of(s, c);
    wf_search_measured *m = s->measured;
    wf_sim_layout l = wf_search_layout(s, &key);
    weights w = weights_of(s, &key);
    double few, more, own;
    int i = 0;

    while (i < s->n_measured && memcmp(&m[i].key, &key, sizeof key) != 0)
        i++;
    if (i < s->n_measured)
        return &m[i];
    if (i == WF_SEARCH_MEASURED)
        i = 0;
    else
        s->n_measured++;
    few = plan_blocks(s, &key, FEW);
    more = plan_blocks(s, &key, FEW + 1);
    own = parameter_bytes(s, &key, &l, w) + gradient_bytes(&key, &l, w, 1);
    m[i] = (wf_search_measured){
        .key = key, .kept = more - few - own, .once = few - FEW * (more - few)};
    return &m[i];
}

/* A row, replayed: what its stages hold of micro-batches and of gradients. */
typedef struct stage_bytes {
    const wf_search_candidate *c;
    const wf_sim_layout *l;
    double kept, border;            /* a block: activations, its input alone */
    weights weights;                /* a block's */
    int64_t done[WF_SEARCH_STAGES]; /* micro-batches of a stage whose gradients are made */
    bool reduced[WF_SEARCH_STAGES];
    double activations, gradients, peak;
} stage_bytes;

static double of_stage(const stage_bytes *h, int stage, double blocks)
{
    double part = h->l->sharded ? h->weights.whole / h->c->shard : h->weights.held;

    return blocks * (h->reduced[stage]
                         ? 4 * part
                         : gradient_bytes(h->c, h->l, h->weights, h->done[stage]));
}

static void replay(stage_bytes *h, const wf_pipe_action *a, double blocks)
{
    bool recomputes = h->c->recompute == WF_SIM_RECOMPUTE_STAGE;
    double whole = blocks * h->kept, count = a->last - a->micro + 1;

    h->gradients -= of_stage(h, a->stage, blocks);
    if (a->kind == WF_PIPE_F)
        h->activations += recomputes ? h->border : whole;
    else if (a->kind == WF_PIPE_R)
        h->activations += whole - h->border;
    else if (a->kind == WF_PIPE_B || a->kind == WF_PIPE_W)
        h->done[a->stage] += (int64_t)count;
    else if (a->kind == WF_PIPE_REDUCE) /* it progresses after each action that computes */
        h->reduced[a->stage] = true;
    if (a->kind == WF_PIPE_B || a->kind == WF_PIPE_W)
        h->activations -= count * whole;
    h->gradients += of_stage(h, a->stage, blocks);
    if (h->activations + h->gradients > h->peak)
        h->peak = h->activations + h->gradients;
}

static stage_bytes bytes_of_stages(const wf_search *s, const wf_search_candidate *c,
                                   const wf_sim_layout *l, const wf_search_measured *m)
{
    return (stage_bytes){.c = c,
                         .l = l,
                         .kept = m->kept,
                         .border = (double)(c->micro * s->model.seq * s->model.width) *
                                   (double)wf_dtype_size(l->dtype) / (double)wf_search_cp(c) /
                                   (c->sequence_parallel ? c->tp : 1),
                         .weights = weights_of(s, c)};
}

/* Estimates of layouts of small models were at most a hundredth above their plans; so a
   candidate is planned where its estimate exceeds the limit by less than this slack. */
bool wf_search_may_fit_in(double bytes, size_t limit)
{
    const double slack = 1.02;

    return limit == 0 || bytes <= slack * (double)limit;
}

bool wf_search_may_fit(const wf_search *s, double bytes)
{
    return wf_search_may_fit_in(bytes, (size_t)s->options->device_memory);
}

double wf_search_memory_estimate(wf_search *s, const wf_search_candidate *c,
                                 const wf_pipe_table *table, const int64_t *first, int *rank)
{
    const wf_search_measured *m = measure(s, c);
    wf_sim_layout l = wf_search_layout(s, c);
    int stages = wf_pipe_table_shape(table).stages;
    double most = -1;

    for (int r = 0; r < c->pp; r++) {
        stage_bytes h = bytes_of_stages(s, c, &l, m);
        int64_t n;
        const wf_pipe_action *a = wf_pipe_table_row(table, r, &n);
        double blocks = 0;

        for (int i = 0; i < stages; i++)
            if (wf_pipe_table_rank(table, i) == r)
                blocks += wf_search_blocks(s, first, i);
        for (int64_t i = 0; i < n; i++)
            replay(&h, &a[i], wf_search_blocks(s, first, a[i].stage));
        h.peak += m->once + blocks * parameter_bytes(s, c, &l, h.weights);
        if (h.peak > most) {
            most = h.peak;
            *rank = r;
        }
    }
    return most;
}

/* The least that it can be, whose table is not made yet: activations as backward begins, or
   gradients at the end. */
double wf_search_least_memory(wf_search *s, const wf_search_candidate *c)
{
    const wf_search_measured *m = measure(s, c);
    wf_sim_layout l = wf_search_layout(s, c);
    double blocks = (double)(s->model.layers / c->pp);
    weights w = weights_of(s, c);
    double live = wf_search_least_live(c) * blocks * m->kept;
    double end = blocks * gradient_bytes(c, &l, w, c->micros);

    if (c->recompute == WF_SIM_RECOMPUTE_STAGE)
        live = 0;
    if (c->per_rank > 1) /* sums of stages that are done may be in shards by then */
        end /= c->per_rank;
    return blocks * parameter_bytes(s, c, &l, w) + m->once + (live > end ? live : end);
}
