/* tests/nn/recipes.h - parameters whose recipes are recorded, read and replayed. */
#ifndef WF_TESTS_NN_RECIPES_H
#define WF_TESTS_NN_RECIPES_H

#include "nn/module.h"
#include "nn/init_recipe.h"

/* An initialisation of the tests' own: uniform in [0, 1). */
void noise(float *x, int64_t n, int64_t first, const wf_init_site *site);
extern const wf_nn_init_op op_noise;

/* A fake parameter of this path; NULL without memory. */
wf_nn_parameter *parameter(wf_context *ctx, const char *path, int ndim, const wf_dim *dims);

/* The recipe is printed like this. */
void check_recipe(const wf_nn_parameter *p, const char *right);

/* The context has failed with this code and these words; it is cleared. */
void refuses(wf_context *ctx, wf_status code, const char *words);

/* Replay the whole of it into x. */
wf_status by_hand(wf_context *ctx, wf_nn_parameter *p, float *x);

#endif
