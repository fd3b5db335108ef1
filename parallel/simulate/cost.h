/*
 * parallel/simulate/cost.h - estimates the costs of the stages of a transformer on a machine,
 * by layout: from sizes and rates, before anything is run.
 *
 * Of a micro-batch of T tokens a block with n weights in products, of width h, costs 2 n T
 * FLOPs in each of F, I and W, and its attention over s tokens 2 s h T in F and 5 s h T in I,
 * or, with a window or chunks, as much less as there are fewer pairs of a query and a key;
 * the head, of V words, 2 V h T of each. Tensor parallelism divides them. Other ops cost bytes
 * of activations through the device's memory.
 */
#ifndef WF_PARALLEL_SIMULATE_COST_H
#define WF_PARALLEL_SIMULATE_COST_H

#include "core/shape.h"
#include "parallel/simulate/machine.h"
#include "parallel/simulate/simulate.h"

WF_BEGIN_DECLS

enum { WF_SIM_SPLITS = 20 };

/** wf_sim_model - sizes of a decoder-only transformer. */
typedef struct wf_sim_model {
    int64_t layers, width, heads, kv_heads, head_dim, ffn, vocabulary, seq;
    bool gated;      /* three matrices in an MLP, not two */
    bool tied;       /* the head's matrix is the embedding's table */
    bool head_norms; /* norms of heads, whose gradients move where keys are gathered over cp */
    /* Mixtures of experts; 0: there are none. Figures of a block are means of all blocks: `ffn`
       are features of MLPs and of shared experts. */
    int64_t experts, top_k;
    double expert_ffn, /* features of an expert, 0 in blocks that have none */
        mixtures;      /* the part of the blocks that have experts */
    /* [i]: with experts over 2^i ranks, tokens of the fullest rank over the mean; 0: 1 */
    double fullest[WF_SIM_SPLITS];
    /* features of the expert that all tokens of a mixture take, in `ffn` too */
    double shared_ffn;
    double buffer; /* room for rows of experts, and .. */
    int64_t taken; /* .. tokens of a sequence that each has at most (wf_experts_bound) */
    /* the part of the blocks whose tokens see the last `window` tokens alone, or, below 0,
       their own of the chunks of -window tokens */
    double windowed;
    int64_t window;
} wf_sim_model;

/** wf_sim_when - the time of gathers or reductions. */
typedef enum wf_sim_when {
    WF_SIM_NEVER,
    WF_SIM_ONCE, /* in a step, of a whole stage */
    WF_SIM_EACH  /* unit by unit, in every micro-batch */
} wf_sim_when;

typedef enum wf_sim_recompute {
    WF_SIM_KEEP_ALL,
    WF_SIM_RECOMPUTE_ATTENTION,
    /* activation checkpointing: a block's forward pass is recomputed in its backward pass */
    WF_SIM_RECOMPUTE_BLOCK,
    WF_SIM_RECOMPUTE_STAGE /* by R of a table, so that backward costs no more */
} wf_sim_recompute;

/** wf_sim_layout - the layout of a model on ranks. */
typedef struct wf_sim_layout {
    /* sizes of the axes, the innermost last; ep: data-parallel ranks that split experts, 0 as
       1 */
    int64_t pp, replicate, shard, ep, tp;
    /* ranks that split the tokens of each sequence, 0 as 1: inside of tp, and with sequence
       parallelism around it */
    int64_t cp;
    bool features;    /* tp splits the features of each expert, not experts (.etp) */
    bool gather_keys; /* attention gathers keys and values over cp; else it splits heads */
    bool exchange;    /* tokens go to the ranks of their experts alone (wf_par_exchanges) .. */
    bool overlap;     /* .. while the shared expert computes */
    bool sequence_parallel;
    /* rows move over tp in blocks of at least this many bytes, beside products; 0: at once */
    size_t row_block;
    int64_t micro, micros; /* sequences of a micro-batch; micro-batches of a step */
    wf_dtype dtype;        /* activations, and operands of products */
    /* bytes of parameters as they are gathered, and of gradients as they are moved: 2 or 4 */
    int parameter_bytes, gradient_bytes;
    wf_sim_when gather, reduce;
    bool regather; /* unit by unit for backward, too */
    int64_t group; /* WF_SIM_EACH: micro-batches whose gradients are reduced together */
    /* each rank of `shard` updates its part, and the parts are gathered (ZeRO-1) */
    bool split_update;
    bool sharded; /* parameters lie split over `shard` */
    wf_sim_recompute recompute;
    /* one rank has the first and the last stage, and gathers the parameters of both outside of
       blocks together */
    bool folded;
} wf_sim_layout;

/** wf_sim_block_weights - returns the weights of a block but those of experts and of their
 * router; wf_sim_expert_weights, wf_sim_router_weights - these; wf_sim_chosen_weights - the
 * router's, and those of the experts that a token chooses; wf_sim_head_weights - those of the
 * head or the embedding. */
WF_API double wf_sim_block_weights(const wf_sim_model *model);
WF_API double wf_sim_expert_weights(const wf_sim_model *model);
WF_API double wf_sim_router_weights(const wf_sim_model *model);
WF_API double wf_sim_chosen_weights(const wf_sim_model *model);
WF_API double wf_sim_head_weights(const wf_sim_model *model);

/** wf_sim_expert_features - returns the features of an expert; 0 without mixtures. */
WF_API int64_t wf_sim_expert_features(const wf_sim_model *model);

/** wf_sim_keys - returns how many keys a token sees, in the mean of tokens and blocks. */
WF_API double wf_sim_keys(const wf_sim_model *model);

/** wf_sim_imbalance - sets how many tokens the fullest of the ranks that split experts has,
 * over the mean, but not more than all of them */
WF_API void wf_sim_imbalance(wf_sim_model *model, double factor);

/** wf_sim_loads - adds the tokens of each expert of a mixture, which is `share` of all: to a
 * `fullest` that begins with zeros; wf_sim_fullest - returns the factor for a number of ranks,
 * at least 1 */
WF_API void wf_sim_loads(wf_sim_model *model, const double *load, int64_t experts,
                         double share);
WF_API double wf_sim_fullest(const wf_sim_model *model, int64_t ranks);

/** wf_sim_flops - returns the model FLOPs of a step: of products and attention, without
 * recomputation, of all ranks. */
WF_API double wf_sim_flops(const wf_sim_model *model, const wf_sim_layout *layout);

/**
 * wf_sim_stages - computes the costs of stages
 *
 * @param first   [stages + 1] steps, of which the first is the embedding, the last the last
 *                norm, and those between are blocks; the head follows the last step
 * @param stage   [stages] filled in
 * @param costs   filled in but for `blocks`
 */
WF_API void wf_sim_stages(const wf_sim_machine *machine, const wf_sim_model *model,
                          const wf_sim_layout *layout, const int64_t *first, int stages,
                          wf_sim_stage *stage, wf_sim_costs *costs);

WF_END_DECLS

#endif
