/* nn/numbers_internal.h - numbers among the options of a module. Not installed. */
#ifndef WF_NN_NUMBERS_INTERNAL_H
#define WF_NN_NUMBERS_INTERNAL_H

#include "core/context.h"

typedef struct wf_nn_number {
    const char *name;
    double value;
} wf_nn_number;

/* Lists numbers, for wf_nn_numbers_check. */
#define WF_NN_NUMBERS(...)                                                                     \
    (const wf_nn_number[])                                                                     \
    {                                                                                          \
        __VA_ARGS__,                                                                           \
        {                                                                                      \
            NULL, 0                                                                            \
        }                                                                                      \
    }

/* Checks numbers that are 0 where they are left out, and else positive, in float as they are:
   another one would be taken for the default. `what` has them. WF_EINVAL in the context */
wf_status wf_nn_numbers_check(wf_context *ctx, const char *what, const wf_nn_number *number);

#endif
