/* parallel/simulate/cost.c - costs of blocks, head and stages; see the header. */
#include "parallel/simulate/cost.h"

/* The costs of a step of the chain, for a micro-batch. */
typedef struct step_cost {
    wf_sim_cost forward, inputs, weights;
    double parameters; /* on a tensor-parallel rank */
} step_cost;

typedef struct costing {
    const wf_sim_machine *machine;
    const wf_sim_model *model;
    const wf_sim_layout *layout;
    double tokens, rate;
} costing;

static double head_width(const wf_sim_model *m)
{
    return (double)(m->heads * m->head_dim);
}

double wf_sim_block_weights(const wf_sim_model *m)
{
    double keys = 2.0 * (double)(m->kv_heads * m->head_dim);

    return (double)m->width *
           (2 * head_width(m) + keys + (m->gated ? 3.0 : 2.0) * (double)m->ffn);
}

double wf_sim_head_weights(const wf_sim_model *m)
{
    return (double)m->width * (double)m->vocabulary;
}

double wf_sim_flops(const wf_sim_model *m, const wf_sim_layout *l)
{
    double tokens = (double)(l->micro * l->micros * l->replicate * l->shard) * (double)m->seq;
    double attention = 7.0 * (double)m->seq * head_width(m);

    return tokens * ((double)m->layers * (6 * wf_sim_block_weights(m) + attention) +
                     6 * wf_sim_head_weights(m));
}

static double product_time(const costing *c, double flops)
{
    return flops / (c->rate * c->machine->products) / (double)c->layout->tp;
}

static double attention_time(const costing *c, double flops)
{
    return flops / (c->rate * c->machine->attention) / (double)c->layout->tp;
}

/* Bytes of activations through the device's memory, `split` of them divided by tensor parallelism. */
static double element_time(const costing *c, double split, double whole)
{
    double tp = (double)c->layout->tp;

    return c->tokens * (split / tp + whole / (c->layout->sequence_parallel ? tp : 1)) /
           c->machine->bandwidth;
}

static double tensor_move(const costing *c, wf_sim_move move, int bytes)
{
    return wf_sim_collective(c->machine, move, c->tokens * (double)c->model->width * bytes,
                             c->layout->tp, 1);
}

/* Two sums leave a block's forward pass and two its backward pass, as fp32. With sequence parallelism each is a
   reduce-scatter, and what it was made of is gathered: for the products, and again for weights' gradients. */
static void add_tensor_moves(const costing *c, step_cost *s)
{
    double sum = tensor_move(c, WF_SIM_REDUCE_SCATTER, 4),
           gather = tensor_move(c, WF_SIM_ALL_GATHER, c->layout->bytes);

    if (c->layout->tp < 2)
        return;
    s->forward.of[WF_SIM_TENSOR] = 2 * (sum + gather);
    s->inputs.of[WF_SIM_TENSOR] = 2 * (sum + gather);
    if (c->layout->sequence_parallel)
        s->weights.of[WF_SIM_TENSOR] = 2 * gather;
}

enum { KERNELS = 20 }; /* a block launches about so many in each of F, I and W */

static step_cost block_cost(const costing *c)
{
    const wf_sim_model *m = c->model;
    double weights = wf_sim_block_weights(m), scores = (double)m->seq * head_width(m);
    double a = c->layout->bytes, d = (double)m->width, launch = KERNELS * c->machine->launch;
    double inner = a * (2 * (head_width(m) + (double)(m->kv_heads * m->head_dim)) +
                        (m->gated ? 3 : 2) * (double)m->ffn);
    step_cost s = {.parameters = weights / (double)c->layout->tp};

    s.forward.of[WF_SIM_PRODUCTS] = s.inputs.of[WF_SIM_PRODUCTS] =
        s.weights.of[WF_SIM_PRODUCTS] = product_time(c, 2 * c->tokens * weights);
    s.forward.of[WF_SIM_ATTENTION] = attention_time(c, 2 * c->tokens * scores);
    s.inputs.of[WF_SIM_ATTENTION] = attention_time(c, 5 * c->tokens * scores);
    /* two norms and two sums in front of the residual stream: 10 d; rotations and the MLP's product inside */
    s.forward.of[WF_SIM_ELEMENTS] = element_time(c, inner, 10 * a * d);
    s.inputs.of[WF_SIM_ELEMENTS] = 2 * s.forward.of[WF_SIM_ELEMENTS];
    s.forward.of[WF_SIM_LAUNCH] = s.weights.of[WF_SIM_LAUNCH] = launch;
    s.inputs.of[WF_SIM_LAUNCH] = launch;
    add_tensor_moves(c, &s);
    return s;
}

static void add(wf_sim_cost *to, const wf_sim_cost *cost, double times)
{
    for (int i = 0; i < WF_SIM_TERMS; i++)
        to->of[i] += times * cost->of[i];
}

/* What a block makes again before its backward pass. */
static void add_again(const costing *c, step_cost *block)
{
    if (c->layout->again == WF_SIM_AGAIN_BLOCK)
        add(&block->inputs, &block->forward, 1);
    else if (c->layout->again == WF_SIM_AGAIN_ATTENTION)
        block->inputs.of[WF_SIM_ATTENTION] += block->forward.of[WF_SIM_ATTENTION];
}

/* Head and loss make logits and both gradients at the begin of backward, with four passes over logits of fp32. */
static step_cost head_cost(const costing *c)
{
    double weights = wf_sim_head_weights(c->model);
    step_cost s = {.parameters = weights / (double)c->layout->tp};

    s.inputs.of[WF_SIM_PRODUCTS] = product_time(c, 6 * c->tokens * weights);
    s.inputs.of[WF_SIM_ELEMENTS] = element_time(c, 4.0 * 4 * (double)c->model->vocabulary, 0);
    if (c->layout->tp > 1)
        s.inputs.of[WF_SIM_TENSOR] = tensor_move(c, WF_SIM_REDUCE_SCATTER, 4) +
                                     tensor_move(c, WF_SIM_ALL_GATHER, c->layout->bytes);
    return s;
}

static step_cost embedding_cost(const costing *c)
{
    const wf_sim_model *m = c->model;
    step_cost s = {.parameters = wf_sim_head_weights(m) / (double)c->layout->tp};

    s.forward.of[WF_SIM_ELEMENTS] =
        element_time(c, 0, 2.0 * c->layout->bytes * (double)m->width);
    s.weights.of[WF_SIM_ELEMENTS] = s.forward.of[WF_SIM_ELEMENTS];
    return s;
}

/* ---- data parallelism ---- */

static double gather_time(const costing *c, double parameters)
{
    return wf_sim_collective(c->machine, WF_SIM_ALL_GATHER,
                             parameters * c->layout->parameter_bytes, c->layout->shard,
                             c->layout->tp);
}

/* To the rank that has the shard; once a step then also over groups that hold the same. */
static double scatter_time(const costing *c, double parameters)
{
    return wf_sim_collective(c->machine, WF_SIM_REDUCE_SCATTER,
                             parameters * c->layout->gradient_bytes, c->layout->shard,
                             c->layout->tp);
}

static double replicas_time(const costing *c, double parameters)
{
    double part = c->layout->sharded ? parameters / (double)c->layout->shard : parameters;

    return wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, part * c->layout->gradient_bytes,
                             c->layout->replicate, c->layout->tp * c->layout->shard);
}

static double sum_time(const costing *c, double parameters)
{
    if (c->layout->sharded)
        return scatter_time(c, parameters);
    return wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE,
                             parameters * c->layout->gradient_bytes, c->layout->shard,
                             c->layout->tp);
}

/* What of a move beside so many units' compute is seen: the first, and of each other what takes longer. */
static double seen(const costing *c, double move, double compute, double units)
{
    double beyond = c->machine->background && compute < move ? move - compute
                    : c->machine->background                 ? 0
                                                             : move;

    return units > 0 ? move + (units - 1) * beyond : 0;
}

/* Gathers and reductions of a stage's units in every micro-batch. */
static void add_units(const costing *c, const step_cost *block, double blocks, double others,
                      wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    double gather = gather_time(c, block->parameters),
           reduce = scatter_time(c, block->parameters);
    double backward = wf_sim_total(&block->inputs) + wf_sim_total(&block->weights);

    if (l->gather == WF_SIM_EACH) {
        stage->forward.of[WF_SIM_GATHER] +=
            seen(c, gather, wf_sim_total(&block->forward), blocks) + gather_time(c, others);
        if (l->gather_again)
            stage->inputs.of[WF_SIM_GATHER] +=
                seen(c, gather, wf_sim_total(&block->inputs), blocks);
    }
    if (l->reduce == WF_SIM_EACH)
        stage->weights.of[WF_SIM_REDUCE] +=
            (seen(c, reduce, backward, blocks) + scatter_time(c, others)) / (double)l->group;
}

enum {
    ADAMW_BYTES = 30,
    NORM_BYTES = 4
}; /* for a parameter: master, moments, gradient, copy */

static void add_step_end(const costing *c, double parameters, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    double own = l->sharded || l->split_update ? parameters / (double)l->shard : parameters;

    if (l->gather == WF_SIM_ONCE)
        stage->gather = gather_time(c, parameters);
    if (l->reduce == WF_SIM_ONCE)
        stage->reduce = sum_time(c, parameters);
    stage->reduce += replicas_time(c, parameters);
    stage->update = own * (ADAMW_BYTES + NORM_BYTES) / c->machine->bandwidth;
    if (l->split_update)
        stage->update += gather_time(c, parameters);
}

static void add_step(wf_sim_stage *stage, const step_cost *step, double times)
{
    add(&stage->forward, &step->forward, times);
    add(&stage->inputs, &step->inputs, times);
    add(&stage->weights, &step->weights, times);
}

static void cost_stage(const costing *c, const step_cost *block, int64_t first, int64_t end,
                       bool last, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    int64_t steps = c->model->layers + 2;
    step_cost embedding = embedding_cost(c), head = head_cost(c);
    double blocks = (double)(end - first) - (first == 0 && end > first) - (end == steps);
    double others = 0, border = c->tokens * (double)c->model->width * l->bytes;

    blocks = blocks > 0 ? blocks : 0;
    *stage = (wf_sim_stage){.gather = 0};
    add_step(stage, block, blocks);
    if (first == 0 && end > first) {
        add_step(stage, &embedding, 1);
        others += embedding.parameters;
    }
    if (last) {
        add_step(stage, &head, 1);
        others += c->model->tied && first == 0 ? 0 : head.parameters;
    }
    add_units(c, block, blocks, others, stage);
    add_step_end(c, blocks * block->parameters + others, stage);
    if (l->sequence_parallel)
        border /= (double)l->tp;
    stage->send_forward = stage->send_backward =
        border / wf_sim_link_of(c->machine, 2, l->tp * l->shard * l->replicate).bandwidth;
}

static void slow_down(wf_sim_cost *cost, double times)
{
    for (int i = WF_SIM_PRODUCTS; i <= WF_SIM_ELEMENTS; i++)
        cost->of[i] *= times;
}

/* The ranks of a pipeline coordinate share a host's cores with those of the others: so many coordinates compute at a
   time as there are cores for all of theirs, and where there are not even those for one, it is slower. */
static void share_cores(const wf_sim_machine *machine, int64_t inner, int64_t pp,
                        wf_sim_stage *stage, int stages, wf_sim_costs *costs)
{
    int64_t here = inner < machine->devices ? inner : machine->devices;
    double times = (double)here / machine->cores;

    costs->cores = times < 1 ? (int)(machine->cores / here) : 1;
    if (inner * pp > machine->devices) /* other hosts have cores of their own */
        costs->cores = 0;
    for (int s = 0; s < stages && times > 1; s++) {
        slow_down(&stage[s].forward, times);
        slow_down(&stage[s].inputs, times);
        slow_down(&stage[s].weights, times);
    }
}

void wf_sim_stages(const wf_sim_machine *machine, const wf_sim_model *model,
                   const wf_sim_layout *layout, const int64_t *first, int stages,
                   wf_sim_stage *stage, wf_sim_costs *costs)
{
    costing c = {.machine = machine,
                 .model = model,
                 .layout = layout,
                 .tokens = (double)(layout->micro * model->seq),
                 .rate = layout->bytes == 2 ? machine->rate_bf16 : machine->rate_fp32};
    step_cost block = block_cost(&c);
    int64_t inner = layout->tp * layout->shard * layout->replicate;
    wf_sim_link border = wf_sim_link_of(machine, 2, inner);

    add_again(&c, &block);
    for (int s = 0; s < stages; s++)
        cost_stage(&c, &block, first[s], first[s + 1], s + 1 == stages, &stage[s]);
    *costs = (wf_sim_costs){
        .stage = stage,
        .latency = border.latency,
        .norm = wf_sim_collective(machine, WF_SIM_ALL_REDUCE, 560, inner * layout->pp, 1),
        .background = machine->background};
    if (machine->cores > 0)
        share_cores(machine, inner, layout->pp, stage, stages, costs);
    if (model->tied && layout->pp > 1)
        costs->tie = 2 * wf_sim_collective(machine, WF_SIM_MESSAGE,
                                           wf_sim_head_weights(model) / (double)layout->tp *
                                               layout->gradient_bytes /
                                               (double)(layout->sharded ? layout->shard : 1),
                                           2, inner);
}
