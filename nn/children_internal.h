/* nn/children_internal.h - which modules are made of named children. Not installed. */
#ifndef WF_NN_CHILDREN_INTERNAL_H
#define WF_NN_CHILDREN_INTERNAL_H

#include "nn/children.h"

/* Returns true for a module of wf_nn_module_new, whose children may have any type. */
bool wf_nn_has_named_children(const wf_nn_module *module);

#endif
