/*
 * parallel/simulate/units.c - the cost of data parallelism: gathers and reductions of units
 * beside the computation, in the order in which the runtime begins them and waits for them
 * (parallel/shard/unshard.c, gradient_reduce.c).
 *
 *     forward    unit i begins the gather of i + 1, waits for its own, computes
 *     backward   unit i begins the gather of i - 1, waits for its own, computes, waits for the
 *                reduction of i + 1 and begins its own; after the last one, that of what is in
 *                no block, and all are waited for; what is waited for is summed over the other
 *                replicas at once, where groups of micro-batches are summed
 *
 * Where ranks of ep split experts, a gather continues over ep once it is waited for, and a
 * reduction begins over ep, in each micro-batch, and continues over the others.
 *
 * They follow each other on one lane. The parameters that are in no block (the root) are
 * gathered in front.
 */
#include "parallel/simulate/cost_internal.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Parameters that move together: experts, which the ranks of ep split, and others. */
typedef struct moved {
    double experts, others;
} moved;

static moved of_block(const wf_sim_step *block)
{
    return (moved){block->experts, block->parameters - block->experts};
}

/* Returns what a rank has of them where ep splits the others, too. */
static double over_ep(const wf_sim_costing *c, moved p)
{
    return p.experts + p.others / (double)wf_sim_ep(c->layout);
}

/* A gather over the ranks that shard, of what ep splits, and then one over ep, which begins as
   the first is waited for. */
static double shard_gather(const wf_sim_costing *c, moved p)
{
    const wf_sim_layout *l = c->layout;

    return wf_sim_collective(c->machine, WF_SIM_ALL_GATHER, over_ep(c, p) * l->parameter_bytes,
                             l->shard, wf_sim_sharing(l) * wf_sim_ep(l));
}

static double ep_gather(const wf_sim_costing *c, moved p)
{
    return wf_sim_collective(c->machine, WF_SIM_ALL_GATHER,
                             p.others * c->layout->parameter_bytes, wf_sim_ep(c->layout),
                             wf_sim_sharing(c->layout));
}

static double gather_time(const wf_sim_costing *c, moved p)
{
    return shard_gather(c, p) + ep_gather(c, p);
}

static wf_sim_move sum_move(const wf_sim_costing *c)
{
    return c->layout->sharded ? WF_SIM_REDUCE_SCATTER : WF_SIM_ALL_REDUCE;
}

/* Over ep, in each micro-batch. */
static double ep_sum(const wf_sim_costing *c, moved p)
{
    return wf_sim_collective(c->machine, sum_move(c), p.others * c->layout->gradient_bytes,
                             wf_sim_ep(c->layout), wf_sim_sharing(c->layout));
}

/* To the rank that has the shard, or to all where nothing is in shards. */
static double shard_sum(const wf_sim_costing *c, moved p)
{
    const wf_sim_layout *l = c->layout;
    double parameters = l->sharded ? over_ep(c, p) : p.experts + p.others;

    return wf_sim_collective(c->machine, sum_move(c), parameters * l->gradient_bytes, l->shard,
                             wf_sim_sharing(l) * wf_sim_ep(l));
}

/* Over groups that hold the same: once a step, or for each unit of a group of micro-batches. */
static double replicas_time(const wf_sim_costing *c, moved p)
{
    const wf_sim_layout *l = c->layout;
    double part = l->sharded ? over_ep(c, p) / (double)l->shard : p.experts + p.others;

    return wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, part * l->gradient_bytes,
                             l->replicate, wf_sim_sharing(l) * wf_sim_ep(l) * l->shard);
}

/* Units of a stage, one after the other: seconds each; those of the root before and after
   all. */
typedef struct passing {
    double units, compute, gather, reduce, root_gather, root_reduce;
    double across,
        root_across; /* transfers after each reduction; nothing else runs meanwhile */
    double later;    /* a transfer after each gather */
} passing;

/* Returns the time of a pass beyond its computation. */
static double beyond(const wf_sim_costing *c, const passing *p)
{
    double lane = p->root_gather, t = p->root_gather, next = 0, mine, reduced = 0;

    if (!c->machine->background)
        return p->units * (p->gather + p->later + p->reduce + p->across) + p->root_gather +
               p->root_reduce + p->root_across;
    if (p->units > 0 && p->gather > 0)
        lane = next = lane + p->gather;
    for (double i = 0; i < p->units; i++) {
        mine = next;
        if (p->gather > 0 && i + 1 < p->units)
            lane = next = larger(lane, t) + p->gather;
        t = larger(t, mine) + p->later + p->compute;
        if (p->reduce > 0) {
            t = larger(t, reduced) + (i > 0 ? p->across : 0);
            lane = reduced = larger(lane, t) + p->reduce;
        }
    }
    t = larger(t, reduced) + (p->units > 0 ? p->across : 0);
    if (p->root_reduce > 0)
        t = larger(lane, t) + p->root_reduce;
    t += p->root_across;
    return t - p->units * p->compute;
}

/* Sums of units in each micro-batch, and those after them: over ep and then over the ranks
   that shard, or over these and then over replicas. */
typedef struct sums {
    double reduce, across, root_reduce, root_across;
} sums;

static sums sums_of(const wf_sim_costing *c, moved block, moved root)
{
    const wf_sim_layout *l = c->layout;
    bool each = l->reduce == WF_SIM_EACH;

    if (wf_sim_ep(l) > 1)
        return (sums){ep_sum(c, block), each ? shard_sum(c, block) : 0, ep_sum(c, root),
                      each ? shard_sum(c, root) : 0};
    if (!each)
        return (sums){0, 0, 0, 0};
    if (l->group == 1) /* else in the action that completes a group alone */
        return (sums){shard_sum(c, block), 0, shard_sum(c, root), 0};
    return (sums){shard_sum(c, block), replicas_time(c, block), shard_sum(c, root),
                  replicas_time(c, root)};
}

void wf_sim_units(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                  double others, double gathered, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    double inputs = wf_sim_total(&block->inputs), weights = wf_sim_total(&block->weights);
    moved own = of_block(block);
    bool gathers = l->gather == WF_SIM_EACH, each = l->group == 1;
    double ahead = l->shard > 1 ? shard_gather(c, own) : ep_gather(c, own);
    double gather = gathers ? ahead : 0;
    double then = gathers && l->shard > 1 ? ep_gather(c, own) : 0;
    double root = gathers ? gather_time(c, (moved){0, gathered}) : 0;
    double regathered = l->regather ? gather : 0, after = l->regather ? then : 0;
    double back = l->pp > 1 ? root : 0; /* it stays where one rank has all */
    sums s = sums_of(c, own, (moved){0, others});
    passing of_inputs = {blocks, inputs, regathered, 0, back, 0, 0, 0, after},
            of_weights = {blocks,   weights,       0, s.reduce, 0, s.root_reduce,
                          s.across, s.root_across, 0},
            of_both = {blocks,        inputs + weights, regathered,    s.reduce, back,
                       s.root_reduce, s.across,         s.root_across, after},
            without = {blocks, inputs + weights, regathered, 0, back, 0, 0, 0, after},
            later = {blocks, 0, 0, s.reduce, 0, s.root_reduce, s.across, s.root_across, 0};
    double seen_i = beyond(c, &of_inputs), seen_w = beyond(c, &of_weights);
    double seen = beyond(c, &of_both), unsummed = beyond(c, &without);

    stage->forward.of[WF_SIM_GATHER] += beyond(
        c, &(passing){blocks, wf_sim_total(&block->forward), gather, 0, root, 0, 0, 0, then});
    stage->inputs.of[WF_SIM_GATHER] += seen_i;
    stage->weights.of[WF_SIM_REDUCE] += each ? seen_w : 0;
    stage->joined.of[WF_SIM_REDUCE] += each ? seen - seen_i - seen_w : unsummed - seen_i;
    stage->group = each ? 0 : (int)l->group;
    stage->sum = seen_w;
    stage->sum_joined = seen - unsummed;
    stage->sum_after = beyond(c, &later);
}

enum {
    BUCKET_BYTES = 25 << 20, /* gradients are reduced together up to this size */
    ADAMW_BYTES = 28, /* for a parameter: gradient, and master and moments read and written */
    NORM_BYTES = 4,
    COPY_BYTES = 2 /* to make bf16 compute copies */
};

void wf_sim_step_end(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                     double others, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    moved unit = of_block(block), all = {blocks * unit.experts, blocks * unit.others + others};
    double parameters = all.experts + all.others;
    double own =
        l->sharded || l->split_update ? over_ep(c, all) / (double)l->shard : parameters;
    double bytes = ADAMW_BYTES + NORM_BYTES + (l->parameter_bytes == 2 ? COPY_BYTES : 0);

    if (l->gather == WF_SIM_ONCE) {
        stage->units = blocks;
        stage->unit = gather_time(c, unit);
        stage->gather = gather_time(c, (moved){0, others}) + blocks * stage->unit;
    }
    stage->buckets = (int)(parameters * l->gradient_bytes / BUCKET_BYTES) + 1;
    if (l->reduce == WF_SIM_ONCE)
        stage->reduce = stage->buckets * shard_sum(c, (moved){all.experts / stage->buckets,
                                                              all.others / stage->buckets});
    if (l->reduce != WF_SIM_EACH || l->group == 1)
        stage->reduce += replicas_time(c, all);
    stage->update =
        own * bytes / c->machine->bandwidth + block->tensors * blocks * c->machine->launch;
    if (l->split_update)
        stage->update += gather_time(c, all);
}
