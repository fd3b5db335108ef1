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
 * They follow each other on one lane. The parameters that are in no block (the root) are
 * gathered in front.
 */
#include "parallel/simulate/cost_internal.h"

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static double gather_time(const wf_sim_costing *c, double parameters)
{
    return wf_sim_collective(c->machine, WF_SIM_ALL_GATHER,
                             parameters * c->layout->parameter_bytes, c->layout->shard,
                             c->layout->tp);
}

/* To the rank that has the shard, or to all where nothing is in shards. */
static double sum_time(const wf_sim_costing *c, double parameters)
{
    return wf_sim_collective(
        c->machine, c->layout->sharded ? WF_SIM_REDUCE_SCATTER : WF_SIM_ALL_REDUCE,
        parameters * c->layout->gradient_bytes, c->layout->shard, c->layout->tp);
}

/* Over groups that hold the same: once a step, or for each unit of a group of micro-batches. */
static double replicas_time(const wf_sim_costing *c, double parameters)
{
    double part = c->layout->sharded ? parameters / (double)c->layout->shard : parameters;

    return wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, part * c->layout->gradient_bytes,
                             c->layout->replicate, c->layout->tp * c->layout->shard);
}

/* Units of a stage, one after the other: seconds each; those of the root before and after
   all. */
typedef struct passing {
    double units, compute, gather, reduce, root_gather, root_reduce;
    double across,
        root_across; /* over replicas, after each reduction; nothing else runs meanwhile */
} passing;

/* Returns the time of a pass beyond its computation. */
static double beyond(const wf_sim_costing *c, const passing *p)
{
    double lane = p->root_gather, t = p->root_gather, next = 0, mine, reduced = 0;

    if (!c->machine->background)
        return p->units * (p->gather + p->reduce + p->across) + p->root_gather +
               p->root_reduce + p->root_across;
    if (p->units > 0 && p->gather > 0)
        lane = next = lane + p->gather;
    for (double i = 0; i < p->units; i++) {
        mine = next;
        if (p->gather > 0 && i + 1 < p->units)
            lane = next = larger(lane, t) + p->gather;
        t = larger(t, mine) + p->compute;
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

void wf_sim_units(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                  double others, double gathered, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    double inputs = wf_sim_total(&block->inputs), weights = wf_sim_total(&block->weights);
    double gather = l->gather == WF_SIM_EACH ? gather_time(c, block->parameters) : 0;
    double root = l->gather == WF_SIM_EACH ? gather_time(c, gathered) : 0;
    double reduce = l->reduce == WF_SIM_EACH ? sum_time(c, block->parameters) : 0;
    double root_reduce = l->reduce == WF_SIM_EACH ? sum_time(c, others) : 0;
    double again = l->regather ? gather : 0;
    double back = l->pp > 1 ? root : 0; /* it stays where one rank has all */
    bool each = l->group == 1;          /* else in the action that completes a group alone */
    double across = each || l->reduce != WF_SIM_EACH ? 0 : replicas_time(c, block->parameters);
    double root_across = each || l->reduce != WF_SIM_EACH ? 0 : replicas_time(c, others);
    passing of_inputs = {blocks, inputs, again, 0, back, 0, 0, 0},
            of_weights = {blocks, weights, 0, reduce, 0, root_reduce, across, root_across},
            of_both = {blocks, inputs + weights, again,  reduce,
                       back,   root_reduce,      across, root_across},
            without = {blocks, inputs + weights, again, 0, back, 0, 0, 0},
            behind = {blocks, 0, 0, reduce, 0, root_reduce, across, root_across};
    double seen_i = beyond(c, &of_inputs), seen_w = beyond(c, &of_weights);
    double seen = beyond(c, &of_both), unsummed = beyond(c, &without);

    stage->forward.of[WF_SIM_GATHER] +=
        beyond(c, &(passing){blocks, wf_sim_total(&block->forward), gather, 0, root, 0, 0, 0});
    stage->inputs.of[WF_SIM_GATHER] += seen_i;
    stage->weights.of[WF_SIM_REDUCE] += each ? seen_w : 0;
    stage->joined.of[WF_SIM_REDUCE] += each ? seen - seen_i - seen_w : unsummed - seen_i;
    stage->group = each ? 0 : (int)l->group;
    stage->sum = seen_w;
    stage->sum_joined = seen - unsummed;
    stage->sum_behind = beyond(c, &behind);
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
    double parameters = blocks * block->parameters + others;
    double own = l->sharded || l->split_update ? parameters / (double)l->shard : parameters;
    double bytes = ADAMW_BYTES + NORM_BYTES + (l->parameter_bytes == 2 ? COPY_BYTES : 0);

    if (l->gather == WF_SIM_ONCE) {
        stage->units = blocks;
        stage->unit = gather_time(c, block->parameters);
        stage->gather = gather_time(c, others) + blocks * stage->unit;
    }
    stage->buckets = (int)(parameters * l->gradient_bytes / BUCKET_BYTES) + 1;
    if (l->reduce == WF_SIM_ONCE)
        stage->reduce = stage->buckets * sum_time(c, parameters / stage->buckets);
    if (l->reduce != WF_SIM_EACH || l->group == 1)
        stage->reduce += replicas_time(c, parameters);
    stage->update =
        own * bytes / c->machine->bandwidth + block->tensors * blocks * c->machine->launch;
    if (l->split_update)
        stage->update += gather_time(c, parameters);
}
