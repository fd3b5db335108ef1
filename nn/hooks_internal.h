/* nn/hooks_internal.h - where a module calls its hooks, for nn/module.c. Not installed. */
#ifndef WF_NN_HOOKS_INTERNAL_H
#define WF_NN_HOOKS_INTERNAL_H

#include "nn/module.h"

/* Returns what errors name a module: its path, or the type of a root. */
const char *wf_nn_where(const wf_nn_module *m);

void wf_nn_hooks_enter(wf_nn_module *m);
void wf_nn_hooks_leave(wf_nn_module *m);

/* Returns the input that forward gets; NULL on errors. */
wf_tensor *wf_nn_hooks_pre_forward(wf_nn_module *m, wf_tensor *x);

/* Returns the output that the caller gets, for the input that forward got. NULL in gives NULL
   out. */
wf_tensor *wf_nn_hooks_post_forward(wf_nn_module *m, wf_tensor *x, wf_tensor *y);

/* Returns whether hooks see what forward returns, or its gradient: then it has to be there. */
bool wf_nn_hooks_see_result(const wf_nn_module *m);

/* Returns the tensor to compute with instead of t, a parameter. */
wf_tensor *wf_nn_hooks_use(wf_nn_module *m, wf_nn_parameter *p, wf_tensor *t);

#endif
