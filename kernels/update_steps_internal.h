/* kernels/update_steps_internal.h - the steps of elements that every device has (wf_update_lion
   and others of kernels/parameters.h), one text for all. Not installed. */
#ifndef WF_KERNELS_UPDATE_STEPS_INTERNAL_H
#define WF_KERNELS_UPDATE_STEPS_INTERNAL_H

#include "kernels/parameters.h"

static inline WF_HOST_DEVICE float wf_sign_of(float x)
{
    return (float)((x > 0) - (x < 0));
}

static inline WF_HOST_DEVICE void wf_lion_step(const wf_update *u, float g, float *p, float *m)
{
    const float c = u->beta1 * *m + (1 - u->beta1) * g;

    *p -= u->lr * (wf_sign_of(c) + u->weight_decay * *p);
    *m = u->beta2 * *m + (1 - u->beta2) * g;
}

static inline WF_HOST_DEVICE void wf_sign_step(const wf_update *u, float g, float *p)
{
    *p -= u->lr * wf_sign_of(g);
}

#endif
