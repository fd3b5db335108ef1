/*
 * parallel/simulate/context.c - the cost of context parallelism: the moves of attention over
 * ranks that split tokens, and the sums of gradients over them.
 *
 * Where attention splits heads, queries, keys, values and results are redistributed, from
 * tokens to heads and back; keys and values that several ranks need are gathered, and their
 * gradients summed. Where keys and values are gathered, backward gathers queries, results,
 * their gradients and logarithms of sums, too; gradients of norms of heads have moves of their
 * own. Then ranks have unequal pairs of a query and a key: of a causal mask the last rank's
 * queries see most, and the first rank's keys are seen by most; of a short window ranks between
 * the first and the last have as many.
 *
 * Gradients of weights are summed in each micro-batch: of several sequences they have a row for
 * each, which are scattered, added and gathered.
 */
#include "parallel/simulate/cost_internal.h"
#include "core/tensor.h"
#include "kernels/attention_part.h"
#include <math.h>

static double move(const wf_sim_costing *c, wf_sim_move move, double bytes)
{
    const wf_sim_layout *l = c->layout;

    return wf_sim_collective(c->machine, move, bytes, wf_sim_cp(l), wf_sim_cp_stride(l));
}

/* Returns the pairs of the slowest rank of cp, backward as many of which each has five
   products. There scores and their gradients are two products of each pair whose query or key a
   rank has, dq is one of its queries', dk and dv two of its keys'. */
static double slowest(const wf_sim_model *m, const wf_sim_layout *l, double window, bool back)
{
    double all = (double)m->seq, n = all / (double)wf_sim_cp(l), most = 0;

    if (!l->gather_keys)
        return wf_attention_pairs_of(all, 0, all, window).queries / (double)wf_sim_cp(l);
    for (int64_t rank = 0; rank < wf_sim_cp(l); rank++) {
        wf_attention_part_pairs p = wf_attention_pairs_of(all, (double)rank * n, n, window);

        most = fmax(most, back ? (2 * p.both + p.queries + 2 * p.keys) / 5 : p.queries);
    }
    return most;
}

/* Returns the mean of blocks: ranks meet in each. */
static double mean(const wf_sim_model *m, const wf_sim_layout *l, bool back)
{
    return (1 - m->windowed) * slowest(m, l, 0, back) +
           m->windowed * slowest(m, l, (double)m->window, back);
}

double wf_sim_keys(const wf_sim_model *m)
{
    return m->seq > 0 ? mean(m, &(wf_sim_layout){.cp = 1}, false) / (double)m->seq : 0;
}

double wf_sim_forward_pairs(const wf_sim_model *m, const wf_sim_layout *l)
{
    return mean(m, l, false);
}

double wf_sim_backward_pairs(const wf_sim_model *m, const wf_sim_layout *l)
{
    return mean(m, l, true);
}

/* Bytes of a rank's queries; of the keys or values that it has where tp splits projections, and
   where it has whole heads; each of its own tokens. */
static double query_bytes(const wf_sim_costing *c)
{
    const wf_sim_model *m = c->model;

    return c->tokens * (double)(m->heads * m->head_dim) / (double)c->layout->tp *
           (double)wf_dtype_size(c->layout->dtype);
}

static double key_bytes(const wf_sim_costing *c)
{
    return query_bytes(c) * (double)c->model->kv_heads / (double)c->model->heads;
}

static double whole_key_bytes(const wf_sim_costing *c)
{
    double heads = (double)c->model->kv_heads, tp = (double)c->layout->tp;

    return key_bytes(c) * (heads < tp ? tp / heads : 1);
}

/* Returns whether ranks share key-value heads, whose tokens are gathered then; gradients of all
   these heads are summed over cp before each rank of tp has its own. */
static bool shares_keys(const wf_sim_costing *c)
{
    return c->model->kv_heads % wf_sim_sharing(c->layout) != 0;
}

double wf_sim_context_forward(const wf_sim_costing *c)
{
    double cp = (double)wf_sim_cp(c->layout), q = query_bytes(c), k = key_bytes(c);

    if (c->layout->gather_keys)
        return move(c, WF_SIM_ALL_GATHER, 2 * cp * whole_key_bytes(c));
    if (shares_keys(c))
        return 2 * move(c, WF_SIM_ALL_GATHER, q) + move(c, WF_SIM_ALL_GATHER, 2 * cp * k);
    return move(c, WF_SIM_ALL_GATHER, q + 2 * k) + move(c, WF_SIM_ALL_GATHER, q);
}

/* Returns the time of gradients of norms of heads: tokens of queries and keys, and of their
   gradients, become features, and each rank has a gain's gradient of some. */
static double head_norms(const wf_sim_costing *c, double q, double k)
{
    enum { BYTES = 4 };
    double dim = (double)c->model->head_dim, rows = (double)c->layout->micro, times = 0;
    double statistics =
        (double)wf_sim_cp(c->layout) * BYTES / dim / (double)wf_dtype_size(c->layout->dtype);

    for (int i = 0; i < 2 && c->model->head_norms; i++)
        times += 2 * move(c, WF_SIM_ALL_GATHER, i ? k : q) +
                 move(c, WF_SIM_ALL_GATHER, (i ? k : q) * statistics) +
                 move(c, WF_SIM_ALL_GATHER, rows * dim * BYTES);
    return times;
}

double wf_sim_context_backward(const wf_sim_costing *c)
{
    double cp = (double)wf_sim_cp(c->layout), q = query_bytes(c), k = key_bytes(c);
    double a = (double)wf_dtype_size(c->layout->dtype), dim = (double)c->model->head_dim;

    if (c->layout->gather_keys) /* a logarithm for each head */
        return move(c, WF_SIM_ALL_GATHER,
                    cp * (3 * q + 2 * whole_key_bytes(c) + q / a / dim * 4)) +
               head_norms(c, q, k);
    if (shares_keys(c))
        return 2 * move(c, WF_SIM_ALL_GATHER, q) +
               move(c, WF_SIM_REDUCE_SCATTER, 2 * cp * k * (double)c->layout->tp / a * 4) +
               move(c, WF_SIM_ALL_GATHER, 2 * cp * k);
    return wf_sim_context_forward(c);
}

/* Returns the time of summing the gradients of a number of parameters. */
static double sum(const wf_sim_costing *c, double parameters)
{
    enum { BYTES = 4 };
    double rows = (double)c->layout->micro;

    return move(c, WF_SIM_REDUCE_SCATTER, rows * parameters * BYTES) +
           move(c, WF_SIM_ALL_GATHER, parameters * BYTES);
}

void wf_sim_context_sums(const wf_sim_costing *c, const wf_sim_step *block, double blocks,
                         double others, wf_sim_stage *stage)
{
    double of_block = block->parameters - block->experts;
    bool each = c->layout->reduce == WF_SIM_EACH || wf_sim_ep(c->layout) > 1;

    if (wf_sim_cp(c->layout) < 2)
        return;
    stage->weights.of[WF_SIM_CONTEXT] +=
        each ? blocks * sum(c, of_block) + sum(c, others) : sum(c, blocks * of_block + others);
}
