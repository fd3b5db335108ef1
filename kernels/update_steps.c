/* kernels/update_steps.c - functions of elements that devices have kernels of their own for. */
#include "kernels/update_steps_internal.h"

void wf_update_lion(const wf_update *u, int64_t n, float *p, const float *g,
                    float *const *state)
{
    float *m = state[0];

    for (int64_t i = 0; i < n; i++)
        wf_lion_step(u, g[i], &p[i], &m[i]);
}

void wf_update_sign(const wf_update *u, int64_t n, float *p, const float *g,
                    float *const *state)
{
    (void)state;
    for (int64_t i = 0; i < n; i++)
        wf_sign_step(u, g[i], &p[i]);
}

void wf_update_keep(const wf_update *u, int64_t n, float *p, const float *g,
                    float *const *state)
{
    (void)u, (void)state;
    for (int64_t i = 0; i < n; i++)
        p[i] = g[i];
}
