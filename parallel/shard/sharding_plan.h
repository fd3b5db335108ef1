/*
 * parallel/shard/sharding_plan.h - sharding plans: which modules are tensor-parallel over which
 * axis, and which are sharded over which, without a word in the model.
 *
 * Tensor parallelism is a table of (module path pattern, style):
 *
 *     static const wf_par_rule gpt_tp[] = WF_RULES(
 *         {"embed", WF_VOCAB}, {"block.*.attn.qkv", WF_COLUMN}, ...);
 *
 * A style says which parameters of the module (and of its children) are split over tp, and how
 * the tensors at its points are laid out. Applications may write styles of their own.
 */
#ifndef WF_PARALLEL_SHARD_SHARDING_PLAN_H
#define WF_PARALLEL_SHARD_SHARDING_PLAN_H

#include "nn/module.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/** wf_par_state - the layout over tp that a border brings tensors to. */
typedef enum wf_par_state {
    WF_PAR_WHOLE,    /* whole */
    WF_PAR_RESIDUAL, /* `dim` split with sequence parallelism, else whole */
    WF_PAR_SPLIT,    /* `dim` split */
    /* x[1], the result of a border of x[0], for uses with a whole gradient on each rank */
    WF_PAR_HANDLE,
    WF_PAR_GROUPS, /* keys and values (x[1], x[2]): whole where their cuts miss those of x[0] */
    /* x[1], the result of a border of x[0], and x[2], ..: all sequences and tokens of the ranks
       that split experts over the batch's axis ep, and over cp */
    WF_PAR_DISPATCH,
    /* x[0], what experts made of these tokens, as WF_PAR_RESIDUAL; x[1] are their indices */
    WF_PAR_COMBINE,
    /* x[0], tokens at experts, with weights and indices: where features of experts are split
       (wf_par_options.etp), the sum over experts, and NULL */
    WF_PAR_FEATURES,
    /* x[0], the result of one of these two, which is waited for here, where ranks exchange
       tokens while a shared expert computes */
    WF_PAR_ARRIVE,
    /* The following are over the axis cp, whatever the style's. Queries, keys and values whose
       tokens are split have all tokens, and `dim`, of heads, is split further; keys and values
       are whole over cp where their cuts would miss those of the queries. Where keys and values
       are to be gathered instead (wf_par_options.cp_form) tokens stay split, and positions, a
       fourth tensor, become so */
    WF_PAR_HEADS,
    WF_PAR_TOKENS,  /* `dim`, of tokens, split again after WF_PAR_HEADS */
    WF_PAR_CONTEXT, /* `dim`, of tokens, split */
    WF_PAR_SINKS,   /* sinks (x[1]) split over cp like `dim`, the heads of queries (x[0]) */
    /* queries, keys and values whose tokens are still split attend here (wf_nn_attention's
       point "attend"), with keys and values gathered */
    WF_PAR_ATTEND
} wf_par_state;

typedef struct wf_par_split {
    /* field name, with a "?" before it where modules may lack it; NULL ends the list */
    const char *parameter;
    int dim;
} wf_par_split;

typedef struct wf_par_border {
    const char *point; /* NULL ends the list; with "?" in front of one that a module may lack */
    wf_par_state state;
    int dim;
    /* keep the tensor from before the border for the gradients of weights, and move it a second
       time then (wf_keep_origin) */
    bool regather;
} wf_par_border;

typedef struct wf_par_style {
    const char *name;
    const wf_par_split *splits;
    const wf_par_border *borders;
    /* NULL, or, where wf_par_options.etp says so, the dims of experts that the style's own axis
       splits instead, of features; a parameter that is in `splits` alone is whole there */
    const wf_par_split *features;
    /* splits and sums are over the axis ep too where it splits the batch, outside of the
       style's own axes, and over cp; at WF_PAR_RESIDUAL and WF_PAR_COMBINE the batch and tokens
       are split over them again */
    bool experts;
} wf_par_style;

/* The styles of transformers (Shoeybi et al. 2019; Korthikanti et al. 2022). */
extern WF_API const wf_par_style wf_par_column;   /* linear: outputs split, input whole */
extern WF_API const wf_par_style wf_par_row;      /* linear: inputs split, output summed */
extern WF_API const wf_par_style wf_par_vocab;    /* embedding: vocabulary split, rows summed */
extern WF_API const wf_par_style wf_par_position; /* position table: its rows like the tokens */
extern WF_API const wf_par_style wf_par_groups; /* attention: key-value heads for its queries */
/* norm over features that are split: gathered before the norm, split after it */
extern WF_API const wf_par_style wf_par_wide_norm;
extern WF_API const wf_par_style wf_par_experts; /* mixture: experts split, output summed */
extern WF_API const wf_par_style wf_par_loss;    /* cross-entropy over a split vocabulary */
#define WF_COLUMN    (&wf_par_column)
#define WF_ROW       (&wf_par_row)
#define WF_VOCAB     (&wf_par_vocab)
#define WF_POSITION  (&wf_par_position)
#define WF_GROUPS    (&wf_par_groups)
#define WF_WIDE_NORM (&wf_par_wide_norm)
#define WF_EXPERTS   (&wf_par_experts)
#define WF_LOSS      (&wf_par_loss)

typedef struct wf_par_rule {
    /* module path; "*" is any one name, and a "?" in front says that models may lack the
       module, which else is an error */
    const char *pattern;
    const wf_par_style *style;
} wf_par_rule;

/** WF_RULES - the initialiser of an array of rules, with the row that ends it. */
#define WF_RULES(...)                                                                          \
    {                                                                                          \
        __VA_ARGS__,                                                                           \
        {                                                                                      \
            NULL, NULL                                                                         \
        }                                                                                      \
    }

/* The rules of layers, as entries of a table: {"embed", WF_VOCAB},
   WF_ATTENTION_RULES("block.*.attn"), WF_GELU_MLP_RULES("block.*.mlp"), .. A pattern may begin
   with "?" here too. */
#define WF_ATTENTION_RULES(pattern)                                                            \
    {pattern, WF_GROUPS}, {pattern ".qkv", WF_COLUMN},                                         \
    {                                                                                          \
        pattern ".out", WF_ROW                                                                 \
    }
#define WF_CROSS_ATTENTION_RULES(pattern)                                                      \
    {pattern, WF_GROUPS}, {pattern ".q", WF_COLUMN}, {pattern ".kv", WF_COLUMN},               \
    {                                                                                          \
        pattern ".out", WF_ROW                                                                 \
    }
#define WF_GELU_MLP_RULES(pattern)                                                             \
    {pattern ".up", WF_COLUMN},                                                                \
    {                                                                                          \
        pattern ".down", WF_ROW                                                                \
    }
#define WF_SWIGLU_MLP_RULES(pattern)                                                           \
    {pattern ".gate_up", WF_COLUMN},                                                           \
    {                                                                                          \
        pattern ".down", WF_ROW                                                                \
    }

#define WF_MOE_RULES(pattern) {pattern, WF_EXPERTS}, WF_SWIGLU_MLP_RULES(pattern ".shared")

/**
 * wf_par_tensor - splits modules over an axis of the mesh (torch's parallelize_module): lays
 * their parameters out, and puts the borders of their styles at their points
 *
 *     wf_par_tensor(par, model, "tp", transformer_rules);
 *
 * @param model  not materialised; may have been given rules over other axes before
 * @param axis   by name; not a data-parallel one
 * @param rules  ended by a NULL pattern; a later rule that matches wins; alive with the model
 * Collective:  no
 * Errors:      WF_EINVAL: no such axis, and those of wf_par_plan
 */
WF_API wf_status wf_par_tensor(wf_par *par, wf_nn_module *model, const char *axis,
                               const wf_par_rule *rules);

/** wf_par_shard_options - options of sharding; all zeros is full_shard without prefetch. */
typedef struct wf_par_shard_options {
    const char *strategy; /* a row of parallel/shard/strategies.def; NULL: WF_PAR_STRATEGY */
    int prefetch;         /* units gathered ahead of the one that runs */
    wf_par_reshard reshard;
} wf_par_shard_options;

/**
 * wf_par_shard - makes modules units that are sharded over a data-parallel axis (FSDP's
 * fully_shard)
 *
 *     wf_par_shard(par, model, "block.*", "dp", &(wf_par_shard_options){.prefetch = 1});
 *     wf_par_shard(par, model, "", "dp", NULL);
 *
 * Each module has options of its own; parameters below it that are in no unit of their own
 * belong to it. Parameters of no unit are whole on every data-parallel rank, as in DDP. Along
 * data-parallel axes other than `axis` ranks hold copies (HSDP); gradients of strategies that
 * split them are summed over `axis` in every micro-step and over the others once a step where
 * `axis` is the innermost one and all units agree, else over all of them at once.
 *
 * @param model    not materialised
 * @param pattern  of module paths; "*" is any one name, "" is the root; the last call that
 *                 matches a module wins
 * @param axis     by name; one of wf_par_options.dp_axes
 * @param options  NULL: all zeros
 * Collective:  no
 * Errors:      WF_EINVAL: no such axis, strategy or module, a module that is never called by
 *              itself, or the model is materialised; WF_ENOMEM
 */
WF_API wf_status wf_par_shard(wf_par *par, wf_nn_module *model, const char *pattern,
                              const char *axis, const wf_par_shard_options *options);

/**
 * wf_par_plan - plans a model by the options of the run, replacing earlier plans: `rules` over
 * the axis tp (wf_par_tensor), and units by wrap_type or wrap_min_params under the one strategy
 * (wf_par_shard)
 *
 * @param model  named (wf_nn_name_tree), not materialised; the plan stays alive with it
 * @param rules  ended by a NULL pattern; a later rule that matches wins. NULL: nothing split
 * Collective:  no
 * Errors:      WF_EINVAL: no module is at a rule's pattern; a style names a parameter, dim or
 *              point that its module lacks; wrap_type names a type that no module is of; a tied
 *              parameter gets two layouts; or the model is materialised
 */
WF_API wf_status wf_par_plan(wf_par *par, wf_nn_module *model, const wf_par_rule *rules);

/** wf_par_layout - returns the sharded layout that a plan gave to a parameter. Owner: the
 * mesh. */
WF_API const wf_layout *wf_par_layout(const wf_nn_parameter *parameter);

/** wf_par_unit_info - a unit: modules whose parameters are gathered and freed together. */
typedef struct wf_par_unit_info {
    const char *path, *type;      /* its module's; "" is the root's path */
    int64_t parameters, gathered; /* their number, and of those sharded */
    int64_t elements;
    size_t shard_bytes, compute_bytes; /* this rank's */
    bool reshard;                      /* gathered parameters are given back after forward */
} wf_par_unit_info;

/** wf_par_unit_count - returns the number of units of a planned model; wf_par_unit_at - one of
 * them, the root first. */
WF_API int64_t wf_par_unit_count(const wf_par *par, const wf_nn_module *model);
WF_API wf_par_unit_info wf_par_unit_at(const wf_par *par, const wf_nn_module *model, int64_t i);

/**
 * wf_par_reshard_unit - sets resharding for the units of some modules, instead of
 * wf_par_options.reshard
 *
 * @param pattern  of module paths; "*" is any one name, "" is the root
 * @param reshard  free parameters after forward and regather them for backward: less memory,
 *                 for one more gather
 * Errors:  WF_EINVAL: no unit matches
 */
WF_API wf_status wf_par_reshard_unit(wf_par *par, wf_nn_module *model, const char *pattern,
                                     bool reshard);

/**
 * wf_par_reshard_all - reshards a model: frees all gathered parameters
 *
 * A trainer does it. A custom loop needs it after a forward pass on a tape that no backward
 * followed, before parameters change; where they are stored as bf16, before every change, since
 * only then they are made anew from the masters. Collective: over shard.
 */
WF_API wf_status wf_par_reshard_all(wf_par *par, wf_nn_module *model);

WF_END_DECLS

#endif
