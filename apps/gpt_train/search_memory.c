/*
 * apps/gpt_train/search_memory.c - what a candidate's ranks take, before it is planned: what two and three blocks take in a
 * plan says what a block keeps of a micro-batch and what is there once; parameters, gradients and the
 * optimizer's state follow from sizes.
 */
#include "apps/gpt_train/search.h"
#include <stdlib.h>
#include <string.h>

enum { FEW = 2, SMALL_VOCABULARY = 256, GROUP_OF_4 = 1, HYBRIDS = 4 };

/* Whatever does not change what a block keeps is left out of the key. */
static search_candidate key_of(const search_candidate *c)
{
    search_candidate key = {.tp = c->tp,
                            .micro = c->micro,
                            .strategy = c->strategy,
                            .recompute = c->recompute == WF_SIM_AGAIN_STAGE ? 0 : c->recompute,
                            .accumulate = c->accumulate,
                            .dtype = c->dtype,
                            .sequence_parallel = c->sequence_parallel,
                            .pp = 1,
                            .micros = 1};

    if (c->accumulate == GROUP_OF_4)
        key.accumulate = 0; /* one micro-batch is no group */
    key.shard = c->shard > 1 ? 2 : 1;
    key.replicate = c->strategy >= HYBRIDS ? 2 : 1;
    return key;
}

/* Sums of earlier micro-batches that are open as the last one of so many comes. */
static double open_sums(int64_t terms)
{
    double open = 0;

    for (; terms > 1; terms /= 2)
        open++;
    return open;
}

/* Bytes of a parameter's gradient: of sums that are open, and with `own` that of the last micro-batch. */
static double gradient_bytes(const search_candidate *c, const wf_sim_layout *l, bool own)
{
    double split = l->sharded ? c->shard : 1;

    if (l->sharded && c->accumulate == GROUP_OF_4)
        return 4 * (open_sums(4) + own) + 4 / split * open_sums(c->micros / 4);
    if (l->sharded && l->reduce == WF_SIM_EACH)
        return 4 / split * (open_sums(c->micros) + own);
    return 4 * (open_sums(c->micros) + own);
}

/* Bytes of a parameter: its state, and itself as it is computed with. */
static double parameter_bytes(const search *s, const search_candidate *c,
                              const wf_sim_layout *l)
{
    double split = l->sharded ? c->shard : 1, update = l->split_update ? c->shard : split;
    double state = strcmp(s->options->optimizer, "adamw") == 0 ? 8 : 0;
    double weights = l->parameter_bytes == 2 ? 2 : 4;

    if (l->parameter_bytes == 2)
        state += 4; /* fp32 masters */
    if (l->sharded)
        weights = (l->parameter_bytes == 2 ? 0 : 4 / split) +
                  (l->gather_again ? 0 : l->parameter_bytes);
    return state / update + weights;
}

static double plan_blocks(const search *s, const search_candidate *key, int64_t blocks)
{
    app_options o = search_options(s, key);
    wf_error ignored = {WF_OK, ""};
    dry_run run;

    o.n_layer = blocks;
    o.vocab_size = SMALL_VOCABULARY;
    o.global_batch_size = (int64_t)key->shard * key->replicate * key->micro;
    o.steps = 1;
    o.rank = app_options_ranks(&o) - 1;
    if (dry_run_step(&o, &run, &ignored) != WF_OK)
        return 0;
    return (double)run.report.memory.peak;
}

static const search_measured *measure(search *s, const search_candidate *c)
{
    search_candidate key = key_of(c);
    search_measured *m = s->measured;
    wf_sim_layout l = search_layout(s, &key);
    double few, more, own;
    int i = 0;

    while (i < s->n_measured && memcmp(&m[i].key, &key, sizeof key) != 0)
        i++;
    if (i < s->n_measured)
        return &m[i];
    if (i == SEARCH_MEASURED)
        i = 0;
    else
        s->n_measured++;
    few = plan_blocks(s, &key, FEW);
    more = plan_blocks(s, &key, FEW + 1);
    own = wf_sim_block_weights(&s->model) / key.tp *
          (parameter_bytes(s, &key, &l) + gradient_bytes(&key, &l, false));
    m[i] = (search_measured){
        .key = key, .kept = more - few - own, .once = few - FEW * (more - few)};
    return &m[i];
}

/* As the last micro-batch turns from forward to backward; or as its gradients are all there, if that is more. */
double search_memory_estimate(search *s, const search_candidate *c, double blocks, double live)
{
    const search_measured *m = measure(s, c);
    wf_sim_layout l = search_layout(s, c);
    double parameters = blocks * wf_sim_block_weights(&s->model) / c->tp;
    double own = parameters * parameter_bytes(s, c, &l), turn, end;
    double border = (double)(c->micro * s->model.seq * s->model.width) *
                    (c->dtype == 0 ? 2 : 4) / (c->sequence_parallel ? c->tp : 1);

    turn = own + m->once + live * m->kept + parameters * gradient_bytes(c, &l, false);
    end = own + parameters * gradient_bytes(c, &l, true);
    if (c->recompute == WF_SIM_AGAIN_STAGE) /* stages keep their input, and run one at a time */
        turn = own + m->once + blocks / (c->per_rank ? c->per_rank : 1) * m->kept +
               live / blocks * border + parameters * gradient_bytes(c, &l, false);
    return turn > end ? turn : end;
}
