/*
 * nn/hooks.h - functions that a module calls when it runs: a plan's, and a user's own, as
 * PyTorch's register_forward_pre_hook, register_forward_hook and their backward counterparts.
 *
 *     static wf_tensor *double_it(void *self, wf_nn_module *m, wf_tensor *x, wf_tensor *y)
 *     {
 *         return wf_scale(y, 2); // or y as it is, to look at it alone
 *     }
 *     static const wf_nn_hooks doubled = {.post_forward = double_it};
 *
 *     wf_nn_hook_add(wf_nn_child(block, "mlp"), &doubled);
 *
 * Order: a module has a list of hooks, and each is around those that were added after it. So
 * `enter`, `pre_forward`, `at`, `use` and `pre_backward` are called from the first to the last,
 * and `post_backward`, `post_forward` and `leave` from the last to the first. A run is
 *
 *     forward    every enter, every pre_forward, the module, every post_forward, every leave
 *     backward   every pre_backward, the module's gradients, every post_backward
 *
 * A plan (wf_par_plan) gathers parameters at `enter` and gives them back at `leave`, wherever
 * its hooks stand in the list, so the four others find them gathered in forward.
 *
 * Activation checkpointing: the modules inside of one that is recomputed run in backward too,
 * and so do their hooks; wf_nn_is_recomputing says so. A hook that changes a tensor changes it
 * in both runs alike. The hooks of the recomputed module itself are outside of it and are not
 * repeated.
 *
 * A backward hook is called with one gradient: those of all later uses of the tensor are added
 * before.
 *
 * In a dry run the tensors have no data; and a step that a device replays as a graph runs hooks
 * when it is captured, not when it is replayed.
 */
#ifndef WF_NN_HOOKS_H
#define WF_NN_HOOKS_H

#include "nn/init_recipe.h"

WF_BEGIN_DECLS

/** wf_nn_hooks - one entry of a module's list; every slot may be NULL. */
typedef struct wf_nn_hooks {
    /* passes tensors x[0..n) at a named point of a module; the hook replaces those it moves */
    void (*at)(void *self, wf_nn_module *module, const char *point, int n, wf_tensor **x);
    /* returns true where `at` may change the tensors at a point; NULL: wherever there is an
       `at` */
    bool (*acts)(void *self, const char *point);
    /* returns the tensor to compute with instead of a parameter */
    wf_tensor *(*use)(void *self, wf_nn_module *module, wf_nn_parameter *parameter,
                      wf_tensor *t);
    /* called around a run of the module: before its first op, and after its last one */
    void (*enter)(void *self, wf_nn_module *module);
    void (*leave)(void *self, wf_nn_module *module);
    /* For modules that wf_nn_call runs: return the input of forward, and the output that the
       caller gets instead of y; x and y themselves, where a hook only observes */
    wf_tensor *(*pre_forward)(void *self, wf_nn_module *module, wf_tensor *x);
    wf_tensor *(*post_forward)(void *self, wf_nn_module *module, wf_tensor *x, wf_tensor *y);
    /* For the same modules: return the gradient of the output before it goes into the module,
       and that of the input as it comes out, or a replacement of the same shape and layout.
       They are called where such a gradient flows: there is none of tokens, nor of a frozen
       module's input */
    wf_tensor *(*pre_backward)(void *self, wf_nn_module *module, wf_tensor *gradient);
    wf_tensor *(*post_backward)(void *self, wf_nn_module *module, wf_tensor *gradient);
    void *self;
} wf_nn_hooks;

/**
 * wf_nn_hook_add - appends hooks to a module's list
 *
 * @param module  any module
 * @param hooks   they and their self stay the caller's; they are there until they are removed
 *                and backward has gone over every run that they have seen. One may be added to
 *                many modules, and several times to one
 * Collective:  no; ops that hooks run are as collective as anywhere, so all ranks add the same
 * Errors:      WF_ENOMEM in the context
 */
WF_API wf_status wf_nn_hook_add(void *module, const wf_nn_hooks *hooks);

/** wf_nn_hook_remove - removes hooks, the last added ones where they are there several times;
 * returns true where they were there. */
WF_API bool wf_nn_hook_remove(void *module, const wf_nn_hooks *hooks);

/** wf_nn_is_recomputing - returns true while a module is recomputed in backward
 * (nn/checkpointing.h), so that a hook that counts or prints can leave such a run out. */
WF_API bool wf_nn_is_recomputing(const void *module);

WF_END_DECLS

#endif
