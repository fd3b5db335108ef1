/*
 * parallel/simulate/tensor.c - the cost of tensor parallelism: what moves over tp in a block,
 * at once, or by blocks of rows beside the products that take and make these.
 */
#include "parallel/simulate/cost_internal.h"
#include "core/tensor.h"
#include "mesh/array/by_blocks.h"
#include <math.h>

static double bytes_of(const wf_sim_costing *c, int element)
{
    return c->tokens * (double)c->model->width * element;
}

static double move(const wf_sim_costing *c, wf_sim_move move, int element)
{
    return wf_sim_collective(c->machine, move, bytes_of(c, element), c->layout->tp,
                             wf_sim_tp_stride(c->layout));
}

double wf_sim_tensor_sum(const wf_sim_costing *c)
{
    return move(c, WF_SIM_REDUCE_SCATTER, 4);
}

static int stored(const wf_sim_costing *c)
{
    return (int)wf_dtype_size(c->layout->dtype);
}

double wf_sim_tensor_gather(const wf_sim_costing *c)
{
    return move(c, WF_SIM_ALL_GATHER, stored(c));
}

/* Returns in how many blocks rows of this many bytes an element move: of one sequence, or of
   whole ones. */
static double blocks_of(const wf_sim_costing *c, int element)
{
    const wf_sim_layout *l = c->layout;

    return l->row_block && c->machine->background
               ? wf_row_blocks(bytes_of(c, element), l->row_block, l->micro)
               : 1;
}

/* Returns what is waited for of a move in n blocks beside a product: what is longer than that,
   and the block that nothing runs beside. */
static double exposed(double time, double product, double n)
{
    return n < 2 ? time : fmax(0, time - product) + fmin(time, product) / n;
}

/* The moves beside the products of a module, of which `in` weights are column-parallel and
   `out` are row-parallel, and what is waited for of them. */
static void add_module(const wf_sim_costing *c, double times, double in, double out,
                       wf_sim_step *s)
{
    const double first = wf_sim_product_time(c, 2 * c->tokens * in),
                 last = wf_sim_product_time(c, 2 * c->tokens * out);
    const double sum = wf_sim_tensor_sum(c), gather = wf_sim_tensor_gather(c);
    const double sums = blocks_of(c, 4), gathers = blocks_of(c, stored(c));

    if (!c->layout->sequence_parallel) { /* an all-reduce after the last, and back, the first */
        s->forward.of[WF_SIM_TENSOR] += times * exposed(sum + gather, last, sums);
        s->inputs.of[WF_SIM_TENSOR] += times * exposed(sum + gather, first, sums);
        return;
    }
    s->forward.of[WF_SIM_TENSOR] +=
        times * (exposed(gather, first, gathers) + exposed(sum, last, sums));
    s->inputs.of[WF_SIM_TENSOR] +=
        times * (exposed(gather, last, gathers) + exposed(sum, first, sums));
    /* inputs are gathered once more, beside the gradient of inputs and its sum */
    s->weights.of[WF_SIM_TENSOR] += times * (c->layout->row_block && c->machine->background
                                                 ? fmax(0, gather - fmax(0, first - sum))
                                                 : gather);
}

static double attention_in(const wf_sim_model *m)
{
    return (double)m->width *
           (wf_sim_head_width(m) + 2.0 * (double)(m->kv_heads * m->head_dim));
}

static double attention_out(const wf_sim_model *m)
{
    return (double)m->width * wf_sim_head_width(m);
}

double wf_sim_attention_moves(const wf_sim_costing *c)
{
    wf_sim_step s = {.parameters = 0};

    add_module(c, 1, attention_in(c->model), attention_out(c->model), &s);
    return s.forward.of[WF_SIM_TENSOR];
}

void wf_sim_add_tensor_moves(const wf_sim_costing *c, wf_sim_step *s)
{
    const wf_sim_model *m = c->model;
    const double up = (double)m->width * (double)m->ffn;

    if (c->layout->tp < 2)
        return;
    add_module(c, 1, attention_in(m), attention_out(m), s);
    add_module(c, 1 - m->mixtures, (m->gated ? 2 : 1) * up, up, s);
}
