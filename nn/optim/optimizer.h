/* nn/optim/optimizer.h - an optimizer (nn/optim/method.h) over a model's parameters, and
   learning-rate schedules. */
#ifndef WF_NN_OPTIM_OPTIMIZER_H
#define WF_NN_OPTIM_OPTIMIZER_H

#include "nn/module.h"
#include "nn/optim/groups.h"
#include "nn/optim/method.h"
#include "nn/optim/schedule.h"

WF_BEGIN_DECLS

/* Counts what is kept of a parameter beside its value: an optimizer's states, then the moving
   average of the weights. */
enum { WF_NN_KEPT = WF_NN_STATES + 1 };

typedef struct wf_nn_optimizer_options {
    wf_nn_method method;      /* one of Weft's own, or what wf_nn_method_of returned */
    float beta1, beta2, eps;  /* sgd, muon's matrices: beta1 is the momentum, and no others */
    float weight_decay;       /* for parameters that decay: biases and norms do not */
    float own[WF_UPDATE_OWN]; /* numbers of an optimizer of one's own */
    /* rates and decays of parameters by path (nn/optim/groups.h); NULL: none */
    const char *groups;
    /* above 0: a moving average of all that is trained is kept, e = ema e + (1 - ema) p after
       each step, whose first is a copy: f32, in the layout of the optimizer's state */
    float ema;
    /* states of parameters rest in host memory, and are on the device while these are updated
       (core/offload.h) */
    bool offload;
} wf_nn_optimizer_options;

typedef struct wf_nn_optimizer wf_nn_optimizer;

/**
 * wf_nn_optimizer_new - makes the state for `count` materialised parameters
 *
 * @param parameter  kept, not copied: alive as long as the optimizer
 * @param layout     per parameter, of its state; NULL: all like their parameters
 * @param mover      how parts of parameters and of states move between ranks; NULL: all are
 *                   whole. Copied
 * Owner:   caller; wf_nn_optimizer_free (NULL is allowed)
 * Errors:  WF_EINVAL (method, betas, eps, decay, a group that meets nothing that is trained),
 *          WF_EUNSUPPORTED (8 bits on a device without), WF_ENOMEM in the context; result is
 *          then NULL
 */
WF_API wf_nn_optimizer *wf_nn_optimizer_new(wf_context *ctx, const wf_nn_optimizer_options *o,
                                            int64_t count, wf_nn_parameter *const *parameter,
                                            const wf_layout *const *layout,
                                            const wf_nn_mover *mover);
WF_API void wf_nn_optimizer_free(wf_nn_optimizer *optimizer);

/**
 * wf_nn_optimizer_step - updates every parameter that has a gradient
 *
 * AdamW corrects for bias by the number of steps that were begun, of all parameters alike, as
 * apex's FusedAdam and optax do. PyTorch counts for each parameter the steps in which it had a
 * gradient: the two differ for one that is first used in a later step.
 *
 * @param grad   per parameter, in its layout; NULL leaves it as it is
 * @param lr     learning rate
 * @param scale  gradients are multiplied by it first: clipping
 * Collective:  no: element by element, in whatever layout a parameter has
 */
WF_API wf_status wf_nn_optimizer_step(wf_nn_optimizer *optimizer, wf_tensor *const *grad,
                                      float lr, float scale);

/**
 * wf_nn_optimizer_begin, wf_nn_optimizer_update - do a step parameter by parameter: begin it,
 * then update parameter i
 *
 * @param t     parameter i, or a part of it: in the layout of its state, as grad is. Muon needs
 *              whole matrices; for parts it has the three steps below
 * @param grad  NULL leaves it as it is; stored as bf16 or like t
 * Collective:  over the axes that split it, of a row with `together`; else no
 * Returns:     (begin) the numbers of the step, until the next one. Owner: the optimizer
 */
WF_API const wf_update *wf_nn_optimizer_begin(wf_nn_optimizer *optimizer, float lr,
                                              float scale);
WF_API wf_status wf_nn_optimizer_update(wf_nn_optimizer *optimizer, int64_t i, wf_tensor *t,
                                        wf_tensor *grad);

/**
 * wf_nn_optimizer_update_copy - does the same update on a copy of a part of parameter i and of
 * its moments, which belong to another rank: the same numbers give the same bits
 *
 * @param state   what is kept of parameter i; NULL where there is none
 * @param grad    of the same elements; stored as bf16 or like t
 * Errors:        WF_EUNSUPPORTED: what is not updated by elements (wf_nn_optimizer_is_alone)
 */
WF_API wf_status wf_nn_optimizer_update_copy(wf_nn_optimizer *optimizer, int64_t i,
                                             wf_tensor *t, wf_tensor *const state[WF_NN_KEPT],
                                             wf_tensor *grad);

/** wf_nn_optimizer_average - updates the moving average of parameter i, if there is one, after
 * its update
 *
 * @param t  the parameter, or a part of it, in the layout of its state
 */
WF_API wf_status wf_nn_optimizer_average(wf_nn_optimizer *optimizer, int64_t i, wf_tensor *t);

/** wf_nn_optimizer_is_matrix - returns true where parameter i is updated as a whole matrix, or
 * as one for each expert (wf_nn_matrix_update): Muon orthogonalises its updates. */
WF_API bool wf_nn_optimizer_is_matrix(const wf_nn_optimizer *optimizer, int64_t i);

/** wf_nn_optimizer_is_alone - returns true where any part of parameter i is updated without the
 * others: by elements, not as a whole matrix nor from whole rows. */
WF_API bool wf_nn_optimizer_is_alone(const wf_nn_optimizer *optimizer, int64_t i);

/**
 * wf_nn_optimizer_direction, wf_nn_optimizer_whole, wf_nn_optimizer_apply - do the step of a
 * matrix in parts, by the functions of wf_nn_matrix_update. Muon's are
 *
 *     m = beta1 m + g; direction = g + beta1 m            (Nesterov; any part alone)
 *     wf_nn_orthogonalize(direction)                      (whole)
 *     p = p - lr (0.2 sqrt(max(rows, columns)) direction + weight_decay p)   (any part alone)
 *
 * The factor gives updates the size that AdamW's have (Liu et al. 2025): one lr serves both.
 *
 * @param direction  of the part's layout, f32: filled; then whole, or [experts, rows, columns]
 *                   of whole matrices, which are taken one by one
 */
WF_API wf_status wf_nn_optimizer_direction(wf_nn_optimizer *optimizer, int64_t i,
                                           wf_tensor *grad, wf_tensor *direction);
WF_API wf_status wf_nn_optimizer_whole(const wf_nn_optimizer *optimizer, wf_tensor *direction);
WF_API wf_status wf_nn_optimizer_apply(wf_nn_optimizer *optimizer, int64_t i, wf_tensor *t,
                                       wf_tensor *direction);

/** wf_nn_optimizer_group - returns group k of the options' text, with the parameters that it is
 * the last to meet, and how many elements they have; NULL: there are k groups. */
WF_API const wf_nn_group *wf_nn_optimizer_group(const wf_nn_optimizer *optimizer, int k,
                                                int64_t *parameters, int64_t *elements);

/** wf_nn_optimizer_uncaptured - returns why a CUDA graph cannot run the updates from the next
 * step on; NULL: it can. */
WF_API const char *wf_nn_optimizer_uncaptured(const wf_nn_optimizer *optimizer);

/** wf_nn_optimizer_least_bytes - returns what an element of any parameter takes at least,
 * beside its value. */
WF_API double wf_nn_optimizer_least_bytes(const wf_nn_optimizer_options *options);

/** wf_nn_kept_suffix, wf_nn_kept_words - return the name of what is kept of a parameter, by its
 * kind: 0 is the value, 1 + k state k: "", "m", "v", "s", "ema" in files; "first moment" in
 * texts. */
WF_API const char *wf_nn_kept_suffix(int kind);
WF_API const char *wf_nn_kept_words(int kind);

/** wf_nn_optimizer_moment - returns state tensor `which` (0: m, 1: v, .. WF_NN_STATES: the
 * moving average of the weights) of parameter i; NULL if none. */
WF_API wf_tensor *wf_nn_optimizer_moment(const wf_nn_optimizer *optimizer, int64_t i,
                                         int which);

/** wf_nn_optimizer_skip - counts a step that updates nothing, for bias correction alike;
 * wf_nn_optimizer_skipped - returns how many were counted so. */
WF_API void wf_nn_optimizer_skip(wf_nn_optimizer *optimizer);
WF_API int64_t wf_nn_optimizer_skipped(const wf_nn_optimizer *optimizer);

/** wf_nn_optimizer_take_back - uncounts the last steps, whose updates have changed nothing. */
WF_API void wf_nn_optimizer_take_back(wf_nn_optimizer *optimizer, int64_t steps);

/** wf_nn_optimizer_resume - sets the number of completed steps, for the bias correction, and
 * how many of them were skipped; wf_nn_optimizer_began - returns the first, 0 where the
 * optimizer was not resumed. */
WF_API void wf_nn_optimizer_resume(wf_nn_optimizer *optimizer, int64_t steps, int64_t skipped);
WF_API int64_t wf_nn_optimizer_began(const wf_nn_optimizer *optimizer);

WF_END_DECLS

#endif
