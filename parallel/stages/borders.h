/*
 * parallel/stages/borders.h - the tensors that pass between the steps of a model's chain
 * (nn/chain.h), found without a message: from one micro-step of the whole chain in a plan,
 * where nothing has values.
 *
 *     wf_par_options plan = options; // of the run
 *     plan.plan = true;              // opened by wf_launch over transport "fake"
 *     ..
 *     wf_par_borders_new(trainer, "tokens", wf_par_gpt_head_loss, &borders);
 *
 * A table outlives the plan that it was made in: layouts are texts (wf_layout_parse).
 */
#ifndef WF_PARALLEL_STAGES_BORDERS_H
#define WF_PARALLEL_STAGES_BORDERS_H

#include "nn/chain.h"
#include "parallel/train/added_loss.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

enum { WF_PAR_LAYOUT_TEXT = 128 };

/**
 * wf_par_head_loss_function - computes the loss of the output of the last step of a model's
 * chain: head and loss, the end of a wf_par_loss_function
 *
 * It is a function of its own because a last stage may run it at the beginning of its backward:
 * a head that makes its gradients in forward (wf_nn_linear_cross_entropy) then holds those of
 * one micro-batch.
 *
 * @param x  the tensor that the last step carries
 * Returns:  NULL after an error, which is in the context
 */
typedef wf_tensor *wf_par_head_loss_function(wf_nn_module *model, wf_tensor *x,
                                             const wf_par_batch *batch);

/** wf_par_inputs - puts the fields of a batch that `input` names, by comma, into x, which has
 * room for WF_NN_CARRIED; returns their number. Errors: WF_EINVAL in the context, 0 then */
WF_API int wf_par_inputs(const wf_par_batch *batch, const char *input, wf_tensor **x);

/** wf_par_carried - a tensor that a step carries on to the next one, and its gradient. */
typedef struct wf_par_carried {
    wf_dtype dtype, gradient_dtype;
    int ndim;
    wf_dim dim[WF_MAX_DIMS]; /* global; the gradient's too */
    char layout[WF_PAR_LAYOUT_TEXT], gradient_layout[WF_PAR_LAYOUT_TEXT];
    /* false: nothing is sent back, since all below is frozen. gradient_dtype and
       gradient_layout are then 0 and "" */
    bool wants_gradient;
} wf_par_carried;

/** wf_par_chain_step - a step of the chain, as one micro-step runs it. */
typedef struct wf_par_chain_step {
    int carried; /* 0 for the head, which is the last row */
    wf_par_carried border[WF_NN_CARRIED];
    int64_t first_use;        /* the number in the pass of its first use of a parameter .. */
    int64_t uses;             /* number of uses; a stage begins with that of its first step */
    double forward, backward; /* this rank's work (wf_context_flops), with what is recomputed */
    /* the same for steps of one pass that do the same to the same, and have the same */
    uint64_t kind;
} wf_par_chain_step;

/** wf_par_chain_use - one use of a parameter that is trained. */
typedef struct wf_par_chain_use {
    char path[WF_NN_PATH];
    int64_t number; /* in the pass, from 0 on, over the whole model */
    int64_t step;
    int slot; /* among the uses of this parameter: its gradients are added in this order */
} wf_par_chain_use;

/** wf_par_chain_loss - a loss that a module adds to the step's (wf_nn_add_loss). */
typedef struct wf_par_chain_loss {
    char path[WF_NN_PATH], name[WF_NN_LOSS_NAME];
} wf_par_chain_loss;

typedef struct wf_par_borders {
    int inputs; /* tensors that step 0 takes */
    int64_t losses;
    wf_par_chain_loss *loss; /* [losses], in the order of their calls in a micro-step */
    int64_t steps;
    wf_par_chain_step *step; /* [steps + 1], the head last */
    int64_t uses;
    wf_par_chain_use *use; /* [uses], by parameter and slot, in the order of wf_nn_parameters */
} wf_par_borders;

/**
 * wf_par_borders_new - runs one micro-step of the whole chain in a plan and records the tensors
 * that pass
 *
 * Shapes, types and layouts are those of all ranks. Work is that of the planned rank, so ranks
 * that cut by it plan the same one.
 *
 * @param trainer    of a model with a chain, whose context plans; its gradients are gone
 *                   afterwards
 * @param input      the fields of a batch that step 0 takes, by comma
 * @param head_loss  follows the last step
 * @param borders    filled; wf_par_borders_free
 * Collective:  no: a plan moves nothing
 * Errors:      in the context: WF_EINVAL (no chain, no plan, no such field), WF_ENOMEM, those
 *              of the model
 */
WF_API wf_status wf_par_borders_new(wf_par_trainer *trainer, const char *input,
                                    wf_par_head_loss_function *head_loss,
                                    wf_par_borders *borders);
WF_API void wf_par_borders_free(wf_par_borders *borders);

WF_END_DECLS

#endif
