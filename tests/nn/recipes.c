/* tests/nn/recipes.c - the functions of recipes.h. */
#include "tests/nn/recipes.h"
#include "core/numerics/random.h"
#include "tests/harness.h"
#include <stdio.h>
#include <string.h>

void noise(float *x, int64_t n, int64_t first, const wf_init_site *site)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = wf_random_uniform(site->key, site->stream, (uint64_t)(first + i));
}

const wf_nn_init_op op_noise = {"noise", 0, .elements = noise};

wf_nn_parameter *parameter(wf_context *ctx, const char *path, int ndim, const wf_dim *dims)
{
    wf_nn_parameter *p = wf_nn_parameter_new(ctx, ndim, dims, true);

    if (p)
        snprintf(p->path, sizeof p->path, "%s", path);
    return p;
}

void check_recipe(const wf_nn_parameter *p, const char *right)
{
    char text[256];

    CU_ASSERT_STRING_EQUAL(wf_nn_recipe_print(p, text, sizeof text), right);
}

void refuses(wf_context *ctx, wf_status code, const char *words)
{
    CU_ASSERT_EQUAL(wf_context_status(ctx), code);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, words));
    if (!strstr(wf_context_error(ctx)->text, words))
        printf("\n    \"%s\" does not say \"%s\"\n", wf_context_error(ctx)->text, words);
    wf_context_clear(ctx);
}

wf_status by_hand(wf_context *ctx, wf_nn_parameter *p, float *x)
{
    wf_tensor *t;
    wf_status status;

    wf_scope_open(ctx);
    t = wf_tensor_new(ctx, WF_F32, p->tensor->ndim, p->tensor->dim, NULL, WF_MEMORY_PARAMETER);
    status = wf_nn_replay(p, t);
    memcpy(x, t->data, (size_t)wf_tensor_count(t) * sizeof *x);
    wf_scope_close(ctx);
    return status;
}
