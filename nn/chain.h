/*
 * nn/chain.h - models as chains: steps that run one after the other, so that a pipeline can cut
 * a model between any two of them, and a head with its loss after the last one.
 *
 *     model = wf_nn_module_new(ctx, "net", net_forward, WF_CHILD("embed", ..),
 *                              WF_CHILDREN("block", block, 12), WF_CHILD("norm", ..),
 *                              WF_CHILD("head", ..));
 *     WF_NN_CHAIN(model, "embed", "block", "norm");
 *
 * makes fourteen steps; `head`, which is not named, belongs to the end of the last stage. The
 * model's forward function runs the same chain, so that cut or whole it is the same calls in
 * the same order:
 *
 *     static wf_tensor *net_forward(wf_nn_module *self, wf_tensor *x)
 *     {
 *         wf_nn_chain_run(self, 0, wf_nn_chain_steps(self), 1, &x);
 *         return wf_nn_run(self, "head", x);
 *     }
 */
#ifndef WF_NN_CHAIN_H
#define WF_NN_CHAIN_H

#include "nn/module.h"

WF_BEGIN_DECLS

enum { WF_NN_CARRIED = 4 }; /* tensors that pass from one step to the next, at most */

/** wf_nn_chain - functions that run a model step by step; set as wf_nn_module.chain. */
typedef struct wf_nn_chain {
    /* returns the number of steps */
    int64_t (*steps)(const wf_nn_module *model);
    /* returns the k-th module that step i runs, NULL after the last one; where i is the number
       of steps, the modules of the head and the loss. Each parameter lies below one of them,
       and where it is tied, below several */
    wf_nn_module *(*module)(const wf_nn_module *model, int64_t i, int k);
    /* Runs step i: takes n tensors in x[0..n) and replaces them by those that it carries on; x
       has room for WF_NN_CARRIED. Returns their number, 0 after an error, which is in the
       context */
    int (*run)(wf_nn_module *model, int64_t i, int n, wf_tensor **x);
} wf_nn_chain;

/**
 * wf_nn_chain_steps - returns the number of steps of a model's chain
 *
 * Errors:  WF_EINVAL in the context where the model has no chain; 0 then
 */
WF_API int64_t wf_nn_chain_steps(const wf_nn_module *model);

/**
 * wf_nn_chain_module - returns the k-th module of a step, from 0 on; NULL after the last one
 *
 * @param i  a step, or the number of steps for the head and the loss
 * Owner:    the model
 * Errors:   WF_EINVAL in the context: the model has no chain, or no such step
 */
WF_API wf_nn_module *wf_nn_chain_module(const wf_nn_module *model, int64_t i, int k);

/**
 * wf_nn_chain_run - runs the steps from `first` up to, and without, `last`
 *
 * @param n  how many tensors are carried in
 * @param x  room for WF_NN_CARRIED where a step carries more than one; those of the last step
 *           are there afterwards, in the scope of the caller, and NULL after an error
 * Collective:  where a plan has borders
 * Returns:  how many tensors are carried out
 * Errors:   WF_EINVAL in the context (no chain, no such steps), and those of the steps; 0 then
 */
WF_API int wf_nn_chain_run(wf_nn_module *model, int64_t first, int64_t last, int n,
                           wf_tensor **x);

/**
 * wf_nn_chain_check - checks that every parameter of a model lies in a step, or in the head
 *
 * A parameter in none of them would be materialised by no stage.
 *
 * @param model  named
 * Errors:       WF_EINVAL, which names the first such parameter; WF_ENOMEM
 */
WF_API wf_status wf_nn_chain_check(wf_nn_module *model);

/**
 * wf_nn_chain_children - makes a model of wf_nn_module_new a chain of some of its children, in
 * the order of their names; a list of children is as many steps as it has entries
 *
 * Each step is wf_nn_call of its child, on the first tensor that is carried; others are carried
 * on as they are. All other children are the head.
 *
 * @param names  ended by NULL; kept, not copied
 * Errors:       WF_EINVAL in the context: no such child, a name that stands twice, or a module
 *               that has a struct of its own and therefore sets its wf_nn_module.chain itself;
 *               WF_ENOMEM
 */
WF_API wf_status wf_nn_chain_children(wf_nn_module *model, const char *const *names);
#define WF_NN_CHAIN(model, ...)                                                                \
    wf_nn_chain_children(model, (const char *const[]){__VA_ARGS__, NULL})

WF_END_DECLS

#endif
