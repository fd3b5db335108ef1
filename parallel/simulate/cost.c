/* parallel/simulate/cost.c - costs of blocks, head and stages; see the header. */
#include "parallel/simulate/cost_internal.h"
#include "core/tensor.h"

double wf_sim_block_weights(const wf_sim_model *m)
{
    double keys = 2.0 * (double)(m->kv_heads * m->head_dim);

    return (double)m->width *
           (2 * wf_sim_head_width(m) + keys + (m->gated ? 3.0 : 2.0) * (double)m->ffn);
}

double wf_sim_head_weights(const wf_sim_model *m)
{
    return (double)m->width * (double)m->vocabulary;
}

double wf_sim_flops(const wf_sim_model *m, const wf_sim_layout *l)
{
    double tokens =
        (double)(l->micro * l->micros * (wf_sim_inner(l) / wf_sim_sharing(l))) * (double)m->seq;
    double attention = 12 * wf_sim_keys(m) * wf_sim_head_width(m); /* scores are made once */
    double weights = wf_sim_block_weights(m) + wf_sim_chosen_weights(m);

    return tokens *
           ((double)m->layers * (6 * weights + attention) + 6 * wf_sim_head_weights(m));
}

double wf_sim_product_time(const wf_sim_costing *c, double flops)
{
    return flops / (c->rate * c->machine->products) / (double)c->layout->tp;
}

static double attention_time(const wf_sim_costing *c, double flops)
{
    return flops / (c->rate * c->machine->attention) / (double)c->layout->tp;
}

/* Returns the FLOPs of two products of these pairs, of the heads of a micro-batch. */
static double score_flops(const wf_sim_costing *c, double pairs)
{
    return 4 * pairs * (double)c->layout->micro * wf_sim_head_width(c->model);
}

/* Bytes of activations through the device's memory, `split` of them divided by tensor
   parallelism. */
static double element_time(const wf_sim_costing *c, double split, double whole)
{
    double tp = (double)c->layout->tp;

    return c->tokens * (split / tp + whole / (c->layout->sequence_parallel ? tp : 1)) /
           c->machine->bandwidth;
}

/* Ops of a block in F, I and W, and of its attention, of head and loss; each of a block's
   tensors is updated by one. A product with what follows it (SwiGLU, a bias and GELU, the add
   of the residual stream, both rotations), an add with the norm after it, both rotations of
   gradients, and both gradients of a norm are one op each. A block whose MLP has no gate has
   biases, whose gradients W makes, and no rotation. */
enum {
    F_OPS = 7,
    I_OPS = 11, /* two of them are recomputed */
    W_OPS = 7,
    ATTENTION_OPS = 3,
    HEAD_OPS = 8,
    TENSORS = 9,
    PLAIN = 2,   /* fewer tensors without a gate, .. */
    BIASES = 4,  /* .. more ops in W, where one product is gone, .. */
    ROTATION = 1 /* .. and fewer in I */
};

static wf_sim_step block_cost(const wf_sim_costing *c)
{
    const wf_sim_model *m = c->model;
    double weights = wf_sim_block_weights(m);
    double a = (double)wf_dtype_size(c->layout->dtype), d = (double)m->width,
           launch = c->machine->launch;
    double h = wf_sim_head_width(m), k = (double)(m->kv_heads * m->head_dim);
    double rotated = m->gated ? 2 * (h + k) : 0, f = (double)m->ffn;
    double norms = a < 4 ? 1 : 2; /* recomputed (wf_op.recompute) */
    /* the add after the MLP is an op of its own: of sums over tp, and of a mixture */
    double adds = c->layout->tp > 1 ? 1 : m->mixtures;
    wf_sim_step s = {.parameters = weights / (double)c->layout->tp,
                     .tensors = TENSORS - (m->gated ? 0 : PLAIN)};

    s.forward.of[WF_SIM_PRODUCTS] = s.inputs.of[WF_SIM_PRODUCTS] =
        s.weights.of[WF_SIM_PRODUCTS] = wf_sim_product_time(c, 2 * c->tokens * weights);
    s.forward.of[WF_SIM_ATTENTION] =
        attention_time(c, score_flops(c, wf_sim_forward_pairs(m, c->layout)));
    s.inputs.of[WF_SIM_ATTENTION] =
        attention_time(c, 2.5 * score_flops(c, wf_sim_backward_pairs(m, c->layout)));
    s.forward.of[WF_SIM_CONTEXT] = wf_sim_context_forward(c);
    s.inputs.of[WF_SIM_CONTEXT] = wf_sim_context_backward(c);
    /* a norm, and an add with the next: 2 and 4 d, backward 3 and 4 d; backward rotations,
       and what is between the MLP's products; gradients of biases */
    s.forward.of[WF_SIM_ELEMENTS] = element_time(c, 0, (6 + 3 * adds) * a * d);
    s.inputs.of[WF_SIM_ELEMENTS] =
        element_time(c, a * (rotated + (m->gated ? 8 : 5) * f), (7 + 2 * norms) * a * d);
    s.weights.of[WF_SIM_ELEMENTS] = m->gated ? 0 : element_time(c, a * (h + 2 * k), 2 * a * d);
    s.forward.of[WF_SIM_LAUNCH] = (F_OPS + adds) * launch;
    s.inputs.of[WF_SIM_LAUNCH] = (I_OPS + norms - 1 - (m->gated ? 0 : ROTATION)) * launch;
    s.weights.of[WF_SIM_LAUNCH] = (W_OPS + (m->gated ? 0 : BIASES)) * launch;
    wf_sim_add_tensor_moves(c, &s);
    if (m->experts)
        wf_sim_add_mixture(c, &s);
    return s;
}

static void add(wf_sim_cost *to, const wf_sim_cost *cost, double times)
{
    for (int i = 0; i < WF_SIM_TERMS; i++)
        to->of[i] += times * cost->of[i];
}

/* Returns the cost of recomputing the module of attention, with its products, beside that of
   backward: its input is kept, which is not recomputed then, and its output is. */
static wf_sim_cost attention_recompute(const wf_sim_costing *c, const wf_sim_step *block)
{
    const wf_sim_model *m = c->model;
    double h = wf_sim_head_width(m), k = (double)(m->kv_heads * m->head_dim);
    double a = (double)wf_dtype_size(c->layout->dtype);
    wf_sim_cost cost = {{0}};

    cost.of[WF_SIM_PRODUCTS] =
        wf_sim_product_time(c, 2 * c->tokens * (double)m->width * 2 * (h + k));
    cost.of[WF_SIM_ATTENTION] = block->forward.of[WF_SIM_ATTENTION];
    cost.of[WF_SIM_CONTEXT] = wf_sim_context_forward(c);
    cost.of[WF_SIM_ELEMENTS] = element_time(c, 0, -2 * a * (double)m->width);
    cost.of[WF_SIM_LAUNCH] = (ATTENTION_OPS - 1) * c->machine->launch;
    if (c->layout->tp > 1) /* sequence parallelism: of the input, which is kept in parts */
        cost.of[WF_SIM_TENSOR] = wf_sim_attention_moves(c);
    return cost;
}

/* Adds the recomputation of a block before its backward pass. */
static void add_recompute(const wf_sim_costing *c, wf_sim_step *block)
{
    wf_sim_cost attention = attention_recompute(c, block);

    if (c->layout->recompute == WF_SIM_RECOMPUTE_BLOCK) {
        add(&block->inputs, &block->forward, 1);
        block->exchange_back += block->exchange_forward;
    } else if (c->layout->recompute == WF_SIM_RECOMPUTE_ATTENTION) {
        add(&block->inputs, &attention, 1);
    }
}

/* Head and loss make logits and both gradients at the begin of backward, with four passes over
   logits of fp32; tensor-parallel ranks agree on the largest logit and on two sums of each
   token. */
static wf_sim_step head_cost(const wf_sim_costing *c)
{
    double weights = wf_sim_head_weights(c->model), tp = (double)c->layout->tp;
    wf_sim_step s = {.parameters = weights / tp, .tensors = 1};

    s.inputs.of[WF_SIM_PRODUCTS] = wf_sim_product_time(c, 6 * c->tokens * weights);
    s.inputs.of[WF_SIM_ELEMENTS] = element_time(c, 4.0 * 4 * (double)c->model->vocabulary, 0);
    s.inputs.of[WF_SIM_LAUNCH] = HEAD_OPS * c->machine->launch;
    if (c->layout->tp > 1)
        s.inputs.of[WF_SIM_TENSOR] =
            wf_sim_tensor_sum(c) + wf_sim_tensor_gather(c) +
            wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, 4 * c->tokens, c->layout->tp,
                              wf_sim_tp_stride(c->layout)) +
            wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, 8 * c->tokens, c->layout->tp,
                              wf_sim_tp_stride(c->layout));
    return s;
}

/* Rows of the table in forward; backward makes a gradient of all of it. */
static wf_sim_step embedding_cost(const wf_sim_costing *c)
{
    const wf_sim_model *m = c->model;
    double a = (double)wf_dtype_size(c->layout->dtype), d = (double)m->width;
    wf_sim_step s = {.parameters = wf_sim_head_weights(m) / (double)c->layout->tp,
                     .tensors = 1};

    s.forward.of[WF_SIM_ELEMENTS] = element_time(c, 0, 2 * a * d);
    s.weights.of[WF_SIM_ELEMENTS] =
        element_time(c, 0, a * d) + 4 * s.parameters / c->machine->bandwidth;
    s.forward.of[WF_SIM_LAUNCH] = s.weights.of[WF_SIM_LAUNCH] = c->machine->launch;
    if (c->layout->tp < 2)
        return s;
    s.forward.of[WF_SIM_TENSOR] =
        wf_sim_tensor_sum(c) + (c->layout->sequence_parallel ? 0 : wf_sim_tensor_gather(c));
    if (c->layout->sequence_parallel)
        s.weights.of[WF_SIM_TENSOR] = wf_sim_tensor_gather(c);
    return s;
}

static wf_sim_step last_norm_cost(const wf_sim_costing *c)
{
    double a = (double)wf_dtype_size(c->layout->dtype), d = (double)c->model->width,
           launch = c->machine->launch;
    wf_sim_step s = {.tensors = 1};

    s.forward.of[WF_SIM_ELEMENTS] = element_time(c, 0, 2 * a * d);
    s.inputs.of[WF_SIM_ELEMENTS] = element_time(c, 0, 3 * a * d);
    s.forward.of[WF_SIM_LAUNCH] = s.inputs.of[WF_SIM_LAUNCH] = launch;
    return s;
}

/* Gradients of vectors are sums over tokens, which cp and sequence parallelism split: of a
   stage, or of each unit that is reduced by itself. */
static void add_vector_sums(const wf_sim_costing *c, double blocks, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    bool each = l->reduce == WF_SIM_EACH || wf_sim_ep(l) > 1;
    double bytes = 4 * 2 * (double)(c->model->width * l->micro) * (each ? 1 : blocks);

    double times = each ? blocks + 1 : 1;

    stage->weights.of[WF_SIM_CONTEXT] +=
        times * wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, bytes, wf_sim_cp(l),
                                  wf_sim_cp_stride(l));
    if (l->sequence_parallel)
        stage->weights.of[WF_SIM_TENSOR] +=
            times * wf_sim_collective(c->machine, WF_SIM_ALL_REDUCE, bytes, l->tp, 1);
}

static void add_step(wf_sim_stage *stage, const wf_sim_step *step, double times)
{
    add(&stage->forward, &step->forward, times);
    add(&stage->inputs, &step->inputs, times);
    add(&stage->weights, &step->weights, times);
    stage->exchange_forward += times * step->exchange_forward;
    stage->exchange_back += times * step->exchange_back;
}

static void cost_stage(const wf_sim_costing *c, const wf_sim_step *block, int64_t first,
                       int64_t end, bool last, wf_sim_stage *stage)
{
    const wf_sim_layout *l = c->layout;
    int64_t steps = c->model->layers + 2;
    wf_sim_step embedding = embedding_cost(c), head = head_cost(c), norm = last_norm_cost(c);
    double blocks = (double)(end - first) - (first == 0 && end > first) - (end == steps);
    double others = 0, uses = 0; /* uses: a tied table has two */
    double border = c->tokens * (double)c->model->width * (double)wf_dtype_size(l->dtype);

    blocks = blocks > 0 ? blocks : 0;
    *stage = (wf_sim_stage){.gather = 0};
    add_step(stage, block, blocks);
    if (first == 0 && end > first) {
        add_step(stage, &embedding, 1);
        others += embedding.parameters;
        uses += embedding.parameters;
    }
    if (end == steps && end > first)
        add_step(stage, &norm, 1);
    if (last) {
        add_step(stage, &head, 1);
        others += c->model->tied && first == 0 ? 0 : head.parameters;
        uses += head.parameters;
    }
    if (blocks > 0 || others > 0)
        add_vector_sums(c, blocks, stage);
    wf_sim_context_sums(c, block, blocks, uses, stage);
    wf_sim_units(c, block, blocks, others,
                 l->folded && others > 0 ? embedding.parameters + head.parameters : others,
                 stage);
    wf_sim_step_end(c, block, blocks, others, stage);
    if (l->sequence_parallel)
        border /= (double)l->tp;
    stage->send_forward = stage->send_backward =
        border / wf_sim_link_of(c->machine, 2, wf_sim_inner(l)).bandwidth;
}

static void slow_down(wf_sim_cost *cost, double times)
{
    for (int i = WF_SIM_PRODUCTS; i <= WF_SIM_ELEMENTS; i++)
        cost->of[i] *= times;
}

/* The ranks of a pipeline coordinate share a host's cores with those of the others: as many
   coordinates compute at a time as there are cores for all of theirs, and where there are too
   few for one, it is slower. */
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

/* Returns the time in which all ranks agree on what each has found, add up their norms, and get
   the mean of the loss. */
static double norm_time(const wf_sim_machine *machine, const wf_sim_layout *l)
{
    enum { AGREED = 560, NORM = 24, LOSS = 32 };
    int64_t sharing = wf_sim_sharing(l), dp = wf_sim_inner(l) / sharing;
    int64_t ranks = wf_sim_inner(l) * l->pp;

    return wf_sim_collective(machine, WF_SIM_ALL_REDUCE, AGREED, ranks, 1) +
           wf_sim_collective(machine, WF_SIM_ALL_GATHER, NORM * (double)ranks, ranks, 1) +
           wf_sim_collective(machine, WF_SIM_ALL_REDUCE, LOSS, dp, sharing) +
           wf_sim_collective(machine, WF_SIM_BROADCAST, LOSS, l->pp, sharing * dp);
}

void wf_sim_stages(const wf_sim_machine *machine, const wf_sim_model *model,
                   const wf_sim_layout *layout, const int64_t *first, int stages,
                   wf_sim_stage *stage, wf_sim_costs *costs)
{
    wf_sim_costing c = {.machine = machine,
                        .model = model,
                        .layout = layout,
                        .tokens =
                            (double)(layout->micro * model->seq) / (double)wf_sim_cp(layout),
                        .rate = machine->rate[layout->dtype]};
    wf_sim_step block = block_cost(&c);
    int64_t inner = wf_sim_inner(layout);
    wf_sim_link border = wf_sim_link_of(machine, 2, inner);

    add_recompute(&c, &block);
    for (int s = 0; s < stages; s++)
        cost_stage(&c, &block, first[s], first[s + 1], s + 1 == stages, &stage[s]);
    *costs = (wf_sim_costs){.stage = stage,
                            .latency = border.latency,
                            .norm = norm_time(machine, layout),
                            .background = machine->background,
                            .beside = machine->background && layout->exchange};
    if (machine->cores > 0)
        share_cores(machine, inner, layout->pp, stage, stages, costs);
    if (model->tied && layout->pp > 1)
        costs->tie =
            2 * wf_sim_collective(
                    machine, WF_SIM_MESSAGE,
                    wf_sim_head_weights(model) / (double)layout->tp * layout->gradient_bytes /
                        (double)(layout->sharded ? layout->shard * wf_sim_ep(layout) : 1),
                    2, inner);
}
