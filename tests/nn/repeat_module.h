/* tests/nn/repeat_module.h - a module that uses its one parameter a given number of times. */
#ifndef WF_TESTS_NN_REPEAT_MODULE_H
#define WF_TESTS_NN_REPEAT_MODULE_H

#include "nn/module.h"

/* A module of the tests' own: y = gain * x as often as `times` says, with children that may not
   be there. */
typedef struct repeat {
    wf_nn_module base;
    wf_nn_parameter *gain;
    wf_nn_module *child;
    int64_t children;
    wf_nn_module **list;
    int times;
} repeat;

/* Its gain and its children, for types of module that do something else with them. */
extern const wf_nn_field repeat_fields[];

/* Its gain is real, of 3, and it is used `times` times. */
repeat *new_repeat(wf_context *ctx, int times);

#endif
