/*
 * parallel/simulate/mixture.c - what the experts of a mixture cost: products of those that
 * tokens choose, and the moves of tokens to them.
 *
 * Backward has 6 products of an expert's matrix where forward has 3, all of them with the
 * gradients of inputs, and makes gate and up again where ranks split experts. Ranks of an axis
 * ep gather the tokens of all of them, and scatter the sums; with tensor parallelism sums over
 * tp come first, of the tokens of all. Or they exchange them: each rank has those tokens that
 * chose its experts. Where tp splits features, rows of choices are summed over it, k of a
 * token. Where the machine moves in the background the shared expert's products
 * are made meanwhile.
 */
#include "parallel/simulate/cost_internal.h"
#include "core/tensor.h"
#include "kernels/moe.h"
#include "mesh/array/mesh.h"
#include <math.h>

enum {
    MATRICES = 3, /* gate, up and down */
    BACKWARD = 6, /* products of a matrix's size */
    /* those that are recomputed where a rank has not all experts, or a buffer */
    RECOMPUTED = 2,
    CHOICE = 8 /* bytes of a choice: its expert and its weight */
};

double wf_sim_expert_weights(const wf_sim_model *m)
{
    return MATRICES * (double)m->experts * (double)m->width * m->expert_ffn;
}

double wf_sim_router_weights(const wf_sim_model *m)
{
    return m->mixtures * (double)m->experts * (double)m->width;
}

/* Weights of the experts that a token chooses. */
static double chosen(const wf_sim_model *m)
{
    return MATRICES * (double)m->top_k * (double)m->width * m->expert_ffn;
}

double wf_sim_chosen_weights(const wf_sim_model *m)
{
    return m->experts ? chosen(m) + wf_sim_router_weights(m) : 0;
}

double wf_sim_fullest(const wf_sim_model *m, int64_t ranks)
{
    int i = 0;

    while (i + 1 < WF_SIM_SPLITS && (int64_t)1 << i < ranks)
        i++;
    return m->fullest[i] > 1 ? m->fullest[i] : 1;
}

void wf_sim_imbalance(wf_sim_model *m, double factor)
{
    for (int i = 0; i < WF_SIM_SPLITS; i++) { /* no rank has more than all */
        double most = (double)((int64_t)1 << i);

        m->fullest[i] = factor < most ? factor : most;
    }
}

void wf_sim_loads(wf_sim_model *m, const double *load, int64_t experts, double share)
{
    double sum = 0, ratio = 1;

    for (int64_t e = 0; e < experts; e++)
        sum += load[e];
    for (int i = 0; i < WF_SIM_SPLITS && sum > 0; i++) {
        int64_t ranks = (int64_t)1 << i;
        double most = 0;

        for (int64_t r = 0; r < ranks && ranks <= experts; r++) {
            double mine = 0;

            for (int64_t e = r * experts / ranks; e < (r + 1) * experts / ranks; e++)
                mine += load[e];
            most = mine > most ? mine : most;
        }
        ratio = ranks <= experts ? most * (double)ranks / sum : ratio;
        m->fullest[i] += share * ratio;
    }
}

static double move(const wf_sim_costing *c, wf_sim_move move, double bytes, bool over_ep)
{
    const wf_sim_layout *l = c->layout;

    return over_ep ? wf_sim_collective(c->machine, move, bytes, wf_sim_ep(l), wf_sim_sharing(l))
                   : wf_sim_collective(c->machine, move, bytes, l->tp, wf_sim_tp_stride(l));
}

/* Returns the part of rows that a rank takes with 1 / ranks of the experts: all, where they are
   gathered; of an exchange the fullest rank's. */
static double taken(const wf_sim_costing *c, int64_t ranks)
{
    const wf_sim_model *m = c->model;
    double share = wf_rows_share((m->experts + ranks - 1) / ranks, m->experts, m->top_k);

    return c->layout->exchange ? fmin(1, share * wf_sim_fullest(m, ranks)) : 1;
}

/* Adds the moves over cp: of tokens that ranks of ep have gathered, and of sums over experts,
   before those over tp and ep. */
static void add_context_moves(const wf_sim_costing *c, double share, wf_sim_step *s)
{
    const wf_sim_layout *l = c->layout;
    double a = (double)wf_dtype_size(l->dtype), d = (double)c->model->width;
    double k = (double)c->model->top_k, cp = (double)wf_sim_cp(l);
    double all = c->tokens * (double)wf_sim_ep(l) * cp;
    double of_move[] = {
        [WF_SIM_ALL_GATHER] = all * d * a, [WF_SIM_REDUCE_SCATTER] = all * d * 4};
    double there = 0;

    for (int i = WF_SIM_ALL_GATHER; i <= WF_SIM_REDUCE_SCATTER; i++)
        there += wf_sim_collective(c->machine, (wf_sim_move)i, of_move[i], wf_sim_cp(l),
                                   wf_sim_cp_stride(l));
    s->forward.of[WF_SIM_CONTEXT] +=
        share * (there + wf_sim_collective(c->machine, WF_SIM_ALL_GATHER, all * k * CHOICE,
                                           wf_sim_cp(l), wf_sim_cp_stride(l)));
    s->inputs.of[WF_SIM_CONTEXT] +=
        share * (there + wf_sim_collective(c->machine, WF_SIM_REDUCE_SCATTER, all * k * 4,
                                           wf_sim_cp(l), wf_sim_cp_stride(l)));
}

int64_t wf_sim_expert_features(const wf_sim_model *m)
{
    return m->mixtures > 0 ? llround(m->expert_ffn / m->mixtures) : 0;
}

/* Returns in how many waves tokens are exchanged (wf_experts_wave). */
static double waves_of(const wf_sim_costing *c)
{
    const wf_sim_layout *l = c->layout;
    const wf_sim_model *m = c->model;
    const int64_t ranks = wf_sim_ep(l) * l->tp, all = l->micro * wf_sim_ep(l);
    const wf_experts_rows rows = {.tokens = all * m->seq,
                                  .k = m->top_k,
                                  .mine = (m->experts + ranks - 1) / ranks,
                                  .all = m->experts,
                                  .features = wf_sim_expert_features(m),
                                  .together = m->seq};

    return l->exchange && !l->features ? (double)all / (double)wf_experts_wave(&rows, m->buffer)
                                       : 1;
}

/* Returns the time of an exchange of rows in waves. The tokens of one are those of a part of
   the ranks, or of one, whose links then move all of it. */
static double exchange(const wf_sim_costing *c, wf_sim_move kind, double bytes)
{
    double waves = waves_of(c), turns = fmin(waves, (double)wf_sim_ep(c->layout));

    return waves * move(c, kind, bytes / waves * turns, true);
}

/* Returns what is waited for of an exchange that runs beside `products` of the size of one of
   the shared expert's matrices. Of backward those are counted alone that give gradients of
   inputs, since a schedule may make the others later. */
static double exposed(const wf_sim_costing *c, double time, double products)
{
    const wf_sim_model *m = c->model;
    double hidden = products * 2 * c->tokens * (double)m->width * m->shared_ffn /
                    (c->rate * c->machine->products) / (double)c->layout->tp;

    if (!c->layout->exchange || !c->layout->overlap || !c->machine->background ||
        waves_of(c) > 1)
        return time;
    return fmax(0, time - hidden);
}

/* Adds the moves over tp where it splits features: rows of choices are summed, forward and in
   backward, and by tokens the two operands of the products that are weights' gradients are
   brought together. */
static void add_feature_moves(const wf_sim_costing *c, double share, double all, wf_sim_step *s)
{
    const wf_sim_layout *l = c->layout;
    const wf_sim_model *m = c->model;
    double k = (double)m->top_k, d = (double)m->width, a = (double)wf_dtype_size(l->dtype);
    double features = (double)wf_sim_expert_features(m);
    double rows = move(c, WF_SIM_REDUCE_SCATTER, all * k * d * 4, false);
    double terms =
        2 * move(c, WF_SIM_REDUCE_SCATTER, all * k * features * 4 / (double)l->tp, false);

    s->forward.of[WF_SIM_TENSOR] += share * rows;
    s->inputs.of[WF_SIM_TENSOR] +=
        share * (rows + terms + move(c, WF_SIM_ALL_GATHER, all * d * a, false) +
                 move(c, WF_SIM_ALL_GATHER, all * k * 4, false));
}

/* Adds the moves of tokens of a block whose MLP is a mixture; `share` of blocks are. */
static void add_moves(const wf_sim_costing *c, double share, wf_sim_step *s)
{
    const wf_sim_layout *l = c->layout;
    double a = (double)wf_dtype_size(l->dtype), d = (double)c->model->width;
    double k = (double)c->model->top_k, tp = (double)l->tp, mine = c->tokens,
           all = mine * (double)wf_sim_ep(l);
    double back = all * taken(c, wf_sim_ep(l));
    double sent = l->features ? back : all * taken(c, wf_sim_ep(l) * l->tp);
    /* tp gathers after ep */
    double split = (l->sequence_parallel || l->features) && !l->exchange ? tp : 1;
    double combined = move(c, WF_SIM_ALL_GATHER, mine * d * a, false);
    double sums = move(c, WF_SIM_REDUCE_SCATTER, back * d * 4, false);
    double scatter = exchange(c, WF_SIM_REDUCE_SCATTER, back * d * 4 / tp);
    double choices = all * k * CHOICE; /* gathered with all tokens, or before some are sent */
    double rows = exposed(c, exchange(c, WF_SIM_ALL_GATHER, sent * d * a / split), 1) +
                  exposed(c, scatter, 2);
    double there = l->exchange ? exposed(c, exchange(c, WF_SIM_ALL_GATHER, sent * d * a), 2)
                               : move(c, WF_SIM_ALL_GATHER, sent * d * a + choices, true);

    if (waves_of(c) > 1) { /* backward sends tokens once more */
        rows += there;
        s->inputs.of[WF_SIM_TENSOR] += l->sequence_parallel ? share * combined : 0;
    }
    if (l->exchange) {
        s->forward.of[WF_SIM_EXPERTS] += share * move(c, WF_SIM_ALL_GATHER, choices, true);
        s->exchange_forward += share * (there + exposed(c, scatter, 1));
        s->exchange_back += share * rows;
    }
    s->forward.of[WF_SIM_TENSOR] += share * combined;
    s->forward.of[WF_SIM_EXPERTS] += share * (there + exposed(c, scatter, 1));
    if (l->features) {
        add_feature_moves(c, share, all, s);
        s->inputs.of[WF_SIM_TENSOR] += l->sequence_parallel ? 0 : share * combined;
    } else {
        s->forward.of[WF_SIM_TENSOR] += share * sums;
        s->inputs.of[WF_SIM_TENSOR] +=
            share * (sums + move(c, WF_SIM_ALL_REDUCE, all * k * 4, false) +
                     (split > 1 ? move(c, WF_SIM_ALL_GATHER, all * d * a, false) : combined));
    }
    s->inputs.of[WF_SIM_EXPERTS] +=
        share * (rows + move(c, WF_SIM_REDUCE_SCATTER, all * k * 4, true));
    if (l->sequence_parallel) /* the router's operand */
        s->weights.of[WF_SIM_TENSOR] += share * combined;
}

void wf_sim_add_mixture(const wf_sim_costing *c, wf_sim_step *s)
{
    const wf_sim_model *m = c->model;
    const wf_sim_layout *l = c->layout;
    double tp = (double)l->tp;
    double ranks = (l->features ? 1 : tp) * (double)(wf_sim_ep(l) * wf_sim_cp(l));
    double rate = c->rate * c->machine->products;
    double route = 2 * c->tokens * wf_sim_router_weights(m) / rate;
    double experts =
        2 * c->tokens * chosen(m) / MATRICES / rate / tp * wf_sim_fullest(m, (int64_t)ranks);
    double recomputed = ranks * tp > 1 || m->buffer > 0 ? RECOMPUTED : 0;
    double logits = c->tokens * m->mixtures * 4 * (double)m->experts / c->machine->bandwidth;

    s->forward.of[WF_SIM_PRODUCTS] += MATRICES * experts + route;
    s->inputs.of[WF_SIM_PRODUCTS] += (BACKWARD + recomputed) * experts + route;
    s->weights.of[WF_SIM_PRODUCTS] += route;
    s->forward.of[WF_SIM_ELEMENTS] += logits;
    s->inputs.of[WF_SIM_ELEMENTS] += 2 * logits;
    s->forward.of[WF_SIM_LAUNCH] += m->mixtures * c->machine->launch;
    s->inputs.of[WF_SIM_LAUNCH] -= m->mixtures * c->machine->launch;
    s->weights.of[WF_SIM_LAUNCH] -= 2 * m->mixtures * c->machine->launch;
    s->tensors += m->mixtures;
    s->experts = wf_sim_expert_weights(m) / ranks / (l->features ? tp : 1);
    s->parameters += s->experts + wf_sim_router_weights(m);
    add_moves(c, m->mixtures, s);
    add_context_moves(c, m->mixtures, s);
}
