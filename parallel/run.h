/*
 * parallel/run.h - one rank's part of a run: its device, context and mesh, in one call.
 *
 * The mesh has the axes that the options name, outermost first:
 *
 *     wf_par_open(rank, &(wf_par_options){.axes = WF_AXES({"dp", 4}, {"tp", 2})}, error);
 *
 * or, from the numbers pp, dp and tp, the axes pp, replicate, shard, tp: a strategy of data
 * parallelism (DDP, ZeRO, FSDP, HSDP) says how the dp ranks are laid out over replicate and
 * shard. Where experts are split over data-parallel ranks too (ep), these ranks have an axis of
 * their own, inside of shard: pp, replicate, shard, ep, tp.
 *
 * An axis named cp, the innermost one, splits the tokens of each sequence (context
 * parallelism): every rank of it holds a part of them everywhere but in attention, where it has
 * all tokens and a part of the heads instead. Which fields of a batch are cut says
 * wf_par_train_options.cut, styles where the split moves between the two (WF_PAR_HEADS,
 * WF_PAR_TOKENS).
 *
 * An axis named pp is that of a pipeline (parallel/stages/pipeline.h): its ranks hold different
 * stages of a model, and nothing is split over it.
 */
#ifndef WF_PARALLEL_RUN_H
#define WF_PARALLEL_RUN_H

#include "mesh/cluster/launch.h"
#include "mesh/array/mesh.h"

WF_BEGIN_DECLS

#define WF_PAR_STRATEGY "full_shard" /* the default */

/** wf_par_accumulate - the time at which gradients of several micro-steps are summed over
 * ranks. */
typedef enum wf_par_accumulate {
    WF_PAR_AUTO,    /* the strategy's default: REDUCED where gradients are split */
    WF_PAR_LOCAL,   /* once per step: less traffic, whole gradients on every rank */
    WF_PAR_REDUCED, /* in every micro-step, unit by unit during backward */
    /* once for accumulate_group micro-steps each, over all data-parallel ranks: traffic and
       memory between the two */
    WF_PAR_GROUP
} wf_par_accumulate;

/** wf_par_reshard - the units that free gathered parameters after forward: by default those
 * that ranks have parts of, but for the root, and none with shard_grad_op and its like. */
typedef enum wf_par_reshard {
    WF_PAR_RESHARD_DEFAULT,
    WF_PAR_RESHARD_ALWAYS,
    WF_PAR_RESHARD_NEVER
} wf_par_reshard;

/** wf_par_dispatch - the way of tokens to experts that data-parallel ranks split. Numbers are
 * the same. */
typedef enum wf_par_dispatch {
    WF_PAR_DISPATCH_AUTO,    /* by the bytes that either moves (wf_par_exchanges) */
    WF_PAR_DISPATCH_GATHER,  /* all tokens of the ranks that split experts reach each of them */
    WF_PAR_DISPATCH_EXCHANGE /* a token reaches the ranks that have its experts */
} wf_par_dispatch;

/* Axes of a mesh, outermost first, for wf_par_options. */
#define WF_AXES(...)                                                                           \
    (const wf_axis[])                                                                          \
    {                                                                                          \
        __VA_ARGS__,                                                                           \
        {                                                                                      \
            NULL, 0                                                                            \
        }                                                                                      \
    }

typedef struct wf_par_options {
    const wf_axis *axes; /* WF_AXES: the mesh; their sizes multiply to the number of ranks */
    /* the axes that split the batch, outermost first: "replicate/shard"; NULL: dp where there
       is one, else replicate and shard */
    const char *dp_axes;
    int pp, tp, dp; /* without axes: 0 means 1; their product is the number of ranks */
    /* without axes: ranks that split experts (Megatron's expert parallelism), tp times a part
       of dp, which is a part of a group of ranks too; 0: tp alone. With .etp ranks of tp split
       no experts: a part of dp; 0: 1 */
    int ep;
    int etp; /* ranks that split the features of each expert: tp, or 1; 0 means 1 */
    wf_par_dispatch dispatch; /* EXCHANGE: with an axis ep that splits the batch alone */
    /* tokens that are exchanged with the owners of their experts are waited for at once, not
       moved while a mixture's shared expert computes */
    bool moe_overlap_off;
    int cp; /* without axes: ranks that split the tokens of each sequence; 0 means 1 */
    /* their form of attention: "heads", heads are split instead of tokens; "gather", keys and
       values are gathered; NULL, "auto": heads where cp times the other ranks that split them
       is no more than the query heads, and sequence_parallel is off */
    const char *cp_form;
    const char *strategy;  /* a row of parallel/shard/strategies.def; NULL: WF_PAR_STRATEGY */
    int dp_replicate;      /* hybrid strategies: number of groups of dp ranks .. */
    int shard_group_size;  /* .. or ranks of a group; one of the two */
    const char *wrap_type; /* FSDP units are the modules of this type; NULL: "block" */
    /* above 0: modules of at least this many parameters are units instead */
    int64_t wrap_min_params;
    int prefetch; /* units gathered ahead of the one that runs */
    wf_par_reshard reshard;
    wf_par_accumulate accumulate;
    /* WF_PAR_GROUP: a power of two; a step has 1, 2, 4, .. times as many micro-steps */
    int accumulate_group;
    /* WF_F32, or WF_BF16: activations and their gradients are stored so; their terms are
       summed, also over ranks, in f32 and rounded once */
    wf_dtype dtype;
    /* multiply operands that are stored as bf16 in fp32, widened; else as bf16 products
       (kernels/DECISIONS.md) */
    bool compute_fp32;
    /* store the residual stream and its gradient in f32 where dtype is WF_BF16 */
    bool fp32_residual;
    /* WF_F32, or WF_BF16: the compute copies of parameters, which gathers move, are bf16; the
       master weights that the optimizer updates are f32 */
    wf_dtype param_dtype;
    /* WF_F32: frozen parameters are stored as param_dtype; WF_NF4: frozen matrices between
       features are stored in 4 bits, and represent numbers of param_dtype */
    wf_dtype base_dtype;
    /* WF_F32, or WF_BF16: gradients are rounded before ranks sum them, which is not
       layout-exact */
    wf_dtype reduce_dtype;
    bool sequence_parallel; /* between tensor-parallel regions, tokens are split over tp */
    /* rows of activations move over tp in blocks, beside the products of linear layers that
       take them or make them, forward and backward (asynchronous tensor parallelism). Numbers
       are the same */
    bool tp_comm_overlap;
    /* bytes of such a block, at least; 0: 1 MiB, and on cuda 8 MiB. There are at most 8 */
    size_t tp_comm_block;
    const char *device; /* wf_device_open's: "cpu" or "cuda"; NULL: "cpu" */
    bool tf32;          /* wf_device_options.tf32; with exact_off alone */
    /* on cuda: steps are captured once and run as CUDA graphs from the second one on, those of
       several ranks in parts between their collectives (parallel/train/graph_step.c). The
       loss function and the model see the first two alone: neither may depend on what the
       host changes later */
    bool cuda_graph;
    /* the optimizer's state, and masters of parameters that are computed with as another type,
       rest in host memory beside a device that has its own (core/offload.h) */
    bool offload_optimizer;
    /* the folder in whose files they rest with offload_optimizer, on any device
       (core/files/scratch.h); NULL: in host memory */
    const char *offload_dir;
    int threads; /* per rank; 0 means 1 */
    uint64_t seed;
    bool exact_off;
    /* 1, 2, 4 or 8: the most ranks of tp on which numbers are those of one rank. Fewer are
       faster, and other numbers; 0 means 8 (wf_context_options.exact_tp) */
    int exact_tp;
    /* plan: count the memory and traffic of a rank, over transport fake: see wf_par_report */
    bool plan;
    size_t memory_limit; /* bytes of tensors per rank, 0 for no limit */
    /* NULL, or a machine to whose speed training is throttled, from when a trainer is opened,
       over transport threads (core/pace.h, parallel/simulate/paced.h); outlives the run */
    const wf_pace_machine *pace;
    const wf_allocator
        *allocator; /* the source of every rank's device memory; NULL: the device's own */
} wf_par_options;

typedef struct wf_par wf_par;

typedef struct wf_nn_parameter wf_nn_parameter;

/** wf_par_strategy - a strategy of data parallelism, the state that ranks shard: a row of
 * parallel/shard/strategies.def, or of wf_par_strategy_register. Who splits parameters splits
 * gradients, and who splits those splits the optimizer's state. */
typedef struct wf_par_strategy {
    const char *name;      /* as users write it: letters, digits and _ */
    bool groups;           /* the data-parallel ranks form groups, inside of which it splits */
    bool split_parameters; /* stored sharded; they are gathered unit by unit */
    bool keep_gathered;    /* from forward until after backward, by default */
    bool split_gradients;
    bool split_optimizer;
    bool reduce_each; /* gradients are summed over ranks in every micro-step, by default */
    /* returns whether a parameter is split at all: all of one that is not, its gradient and its
       state is whole on each rank. A function of path, dims and `matrix` alone. NULL: all
       are */
    bool (*splits)(const wf_nn_parameter *parameter);
} wf_par_strategy;

enum { WF_PAR_MOST_STRATEGIES = 32 };

/**
 * wf_par_strategy_register - adds a strategy, which then has a name like those of Weft: for
 * options, --strategy, plans and searches
 *
 *     static const wf_par_strategy zero2 = {.name = "my_zero2", .split_gradients = true,
 *                                           .split_optimizer = true, .reduce_each = true};
 *     wf_par_strategy_register(&zero2, &error);
 *
 * Call it in each process before the first plan or run; to register the same row twice is no
 * error. Any thread may call it.
 *
 * @param row  kept, not copied: static
 * Errors:     WF_EINVAL: a name that is none or another row's, columns that no strategy can
 *             have, WF_PAR_MOST_STRATEGIES rows already
 */
WF_API wf_status wf_par_strategy_register(const wf_par_strategy *row, wf_error *error);

/** wf_par_strategy_at - returns the i-th strategy, from 0 on; NULL after the last. */
WF_API const wf_par_strategy *wf_par_strategy_at(int i);

/** wf_par_strategy_name - returns the name of the i-th strategy, from 0 on; NULL after the
 * last. */
WF_API const char *wf_par_strategy_name(int i);

/** wf_par_row_block - returns the bytes that a block of rows that moves beside products has at
 * least (wf_par_options.tp_comm_overlap); 0: rows move at once. */
WF_API size_t wf_par_row_block(const wf_par_options *options);

/**
 * wf_par_exchanges - returns whether tokens are exchanged with the owners of their experts: as
 * options->dispatch says, and with AUTO where at most half of the rows of a gather are to move,
 * if experts are equally likely, on the CPU, which alone has exchanges of rows
 *
 * @param ranks    data-parallel ranks that split experts
 * @param experts  of a mixture, of which a token chooses k
 */
WF_API bool wf_par_exchanges(const wf_par_options *options, int64_t ranks, int64_t experts,
                             int64_t k);

/** wf_par_ep_part - returns the data-parallel ranks that split experts: ep x etp over tp; 1
 * where ep is 0. */
WF_API int wf_par_ep_part(const wf_par_options *options);

/** wf_par_splits_batch - returns whether an axis of options.axes splits the batch: one that
 * dp_axes names, or dp where there is one, or replicate and shard; without axes, also ep */
WF_API bool wf_par_splits_batch(const wf_par_options *options, const char *axis);

/** wf_par_ranks - returns the ranks of the mesh of these options. */
WF_API int64_t wf_par_ranks(const wf_par_options *options);

/**
 * wf_par_options_check - checks what needs no rank to be opened: values, and settings that are
 * of axes that the mesh does not have. wf_par_open asks it, and so do programs before they
 * start ranks, and searches before they plan a layout
 *
 * Errors:  WF_EINVAL
 */
WF_API wf_status wf_par_options_check(const wf_par_options *options, wf_error *error);

/**
 * wf_par_open - opens the device, context and mesh of this rank
 *
 * Collective:  over the world
 * Owner:       caller; wf_par_close, after trainers and planned models have been freed
 * Errors:      those of wf_par_options_check; WF_EINVAL (numbers of ranks, strategy, device),
 *              WF_EUNSUPPORTED (no GPU), WF_ENOMEM; NULL then
 */
WF_API wf_par *wf_par_open(wf_rank *rank, const wf_par_options *options, wf_error *error);
WF_API void wf_par_close(wf_par *par);

/** wf_par_context, wf_par_mesh - return the context and the mesh. Owner: par. */
WF_API wf_context *wf_par_context(const wf_par *par);
WF_API wf_mesh *wf_par_mesh(const wf_par *par);
/** wf_par_dtype - returns the storage type of activations (wf_par_options.dtype). Training and
 * evaluation set it by themselves; a program's own forward pass sets it by wf_context_storage,
 * and has their bits then. */
WF_API wf_dtype wf_par_dtype(const wf_par *par);

/**
 * wf_par_axes - computes how a strategy lays dp ranks out: `replicate` groups of `shard` ranks,
 * which split the sharded state
 *
 * Errors:  WF_EINVAL: no such strategy, or groups that do not make up dp
 */
WF_API wf_status wf_par_axes(const wf_par_options *options, int *replicate, int *shard,
                             wf_error *error);

/**
 * wf_par_mesh_axes - lists the axes of the mesh of these options, outermost first: axes, or
 * those of pp, dp, ep, tp and cp; returns how many, 0 on errors
 *
 * Errors:  those of wf_par_axes; WF_EINVAL: an ep that is not tp times a part of a group of dp
 *          ranks, or with etp a part; an etp that is neither 1 nor tp
 */
WF_API int wf_par_mesh_axes(const wf_par_options *options, wf_axis axes[WF_MAX_AXES],
                            wf_error *error);

/** wf_par_dp - returns the number of data-parallel ranks; wf_par_dp_rank - this one's number
 * among them. */
WF_API int wf_par_dp(const wf_par *par);
WF_API int wf_par_dp_rank(const wf_par *par);

/** wf_par_batch_layout - returns the layout of a batch: dim 0 split over the data-parallel
 * axes. Owner: the mesh. */
WF_API const wf_layout *wf_par_batch_layout(const wf_par *par);

/** wf_par_inexact - returns the first reason why this layout is not exact, or NULL as far as is
 * known: that of the run's context (wf_context_inexact). Ranks of tp are judged from the
 * beginning, the order in which a batch is summed once a trainer is open, sums over dims that a
 * plan splits once they have run, and those of a pipeline's other stages on their ranks alone.
 * Outside of plans the first rank writes the reason to standard error too, once, as soon as it
 * is known after wf_par_materialize, wf_par_trainer_open, a step or an evaluation, and at the
 * latest in wf_par_close, so that every program reports it; what it does not know, the first
 * rank that does writes after a step whose gradients' norm was taken. Owner: par. */
WF_API const char *wf_par_inexact(const wf_par *par);

WF_END_DECLS

#endif
