/*
 * tests/nn/test_recipe_numbers.c - the numbers of recipes: whose they are when one copies
 * another, that steps and models differ in them, and what is orthogonal.
 *
 * ctest: builds plain address
 */
#include "nn/models/gpt/gpt.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/recipes.h"
#include <math.h>
#include <stdlib.h>

static void copied(void)
{
    wf_context *ctx = lone_context(1);
    const wf_dim dim = wf_dim_width(50), other_dim = wf_dim_width(51);
    wf_nn_parameter *a = parameter(ctx, "a", 1, &dim), *b = parameter(ctx, "b", 1, &dim);
    wf_nn_parameter *c = parameter(ctx, "c", 1, &dim), *d = parameter(ctx, "d", 1, &other_dim);
    wf_nn_parameter *e = parameter(ctx, "e", 1, &dim), *f = parameter(ctx, "f", 1, &dim);
    wf_nn_parameter *nameless = parameter(ctx, "", 1, &dim);
    float x[50], y[50];

    wf_nn_init_normal(a, 0, 1);
    wf_nn_init_copy(b, a);
    wf_nn_init_scale(a, 2); /* after the copy was taken */
    wf_nn_init_copy(c, b);  /* a copy of a copy */
    check_recipe(c, "normal(0, 1) of a");
    CU_ASSERT_EQUAL(wf_nn_recipe_hash(b), wf_nn_recipe_hash(c));
    wf_nn_init_normal(e, 0, 1);
    CU_ASSERT_NOT_EQUAL(wf_nn_recipe_hash(e), wf_nn_recipe_hash(b)); /* e's own numbers */
    wf_nn_init_copy(f, e);
    CU_ASSERT_NOT_EQUAL(wf_nn_recipe_hash(f), wf_nn_recipe_hash(b)); /* e's, not a's */
    CU_ASSERT_EQUAL(by_hand(ctx, a, x), WF_OK);
    CU_ASSERT_EQUAL(by_hand(ctx, c, y), WF_OK);
    for (int i = 0; i < 50; i++)
        CU_ASSERT(x[i] == 2 * y[i]);
    wf_nn_init_copy(a, b); /* back to its own numbers */
    check_recipe(a, "normal(0, 1)");
    wf_nn_init_copy(b, d);
    refuses(ctx, WF_ESHAPE, "parameter b, f32 [50], cannot copy d, f32 [51]: shapes differ");
    wf_nn_init_normal(b, 0, 1);
    wf_nn_init_copy(a, b);
    wf_nn_init_copy(b, c); /* c is a copy of a */
    refuses(ctx, WF_EINVAL, "parameters b and a would copy each other's numbers");
    wf_nn_init_copy(b, nameless);
    CU_ASSERT_EQUAL(by_hand(ctx, b, x), WF_EINVAL);
    refuses(ctx, WF_EINVAL, "in b: the numbers of a recipe follow from a path");
    wf_nn_init_truncated_normal(d, 0, 1, 7, 8);
    wf_scope_open(ctx);
    CU_ASSERT_EQUAL(
        wf_nn_replay(d, wf_tensor_new(ctx, WF_F32, 1, &other_dim, NULL, WF_MEMORY_PARAMETER)),
        WF_EINVAL);
    wf_scope_close(ctx);
    refuses(ctx, WF_EINVAL, "in d: init_truncated: [7, 8] holds less than a thousandth");
    wf_nn_parameter_free(a);
    wf_nn_parameter_free(b);
    wf_nn_parameter_free(c);
    wf_nn_parameter_free(d);
    wf_nn_parameter_free(e);
    wf_nn_parameter_free(f);
    wf_nn_parameter_free(nameless);
    close_lone(ctx, WF_OK);
}

/* Steps of one recipe have random numbers of their own. */
static void steps_differ(void)
{
    static const wf_nn_init_op again = {"again", 0, .modifies = true, .elements = noise};
    wf_context *ctx = lone_context(1);
    const wf_dim dim = wf_dim_width(50);
    wf_nn_parameter *p = parameter(ctx, "p", 1, &dim);
    float x[50], y[50];
    int same = 0;

    wf_nn_init_apply(p, &op_noise, NULL);
    by_hand(ctx, p, x);
    wf_nn_init_apply(p, &again, NULL);
    by_hand(ctx, p, y);
    for (int i = 0; i < 50; i++)
        same += x[i] == y[i];
    CU_ASSERT(same < 3);
    wf_nn_parameter_free(p);
    close_lone(ctx, WF_OK);
}

static void orthogonal_is(int64_t rows, int64_t columns)
{
    wf_context *ctx = lone_context(9);
    const wf_dim dims[] = {wf_dim_width(rows), wf_dim_width(columns)};
    wf_nn_parameter *p = parameter(ctx, "p", 2, dims);
    int64_t few = rows < columns ? rows : columns, many = rows + columns - few;
    int64_t to_next = rows < columns ? columns : 1, step = rows < columns ? 1 : columns;
    float *x = malloc((size_t)(rows * columns) * sizeof *x);
    double off = 0;

    CU_ASSERT_PTR_NOT_NULL_FATAL(x);
    wf_nn_init_orthogonal(p, 2);
    CU_ASSERT_EQUAL(by_hand(ctx, p, x), WF_OK);
    for (int64_t i = 0; i < few; i++)
        for (int64_t j = 0; j <= i; j++) {
            double sum = 0;

            for (int64_t k = 0; k < many; k++)
                sum += (double)x[i * to_next + k * step] * (double)x[j * to_next + k * step];
            off = fmax(off, fabs(sum - (i == j ? 4 : 0)));
        }
    CU_ASSERT(off < 1e-6);
    free(x);
    wf_nn_parameter_free(p);
    close_lone(ctx, WF_OK);
}

static void orthogonal(void)
{
    orthogonal_is(1, 1);
    orthogonal_is(1, 9);
    orthogonal_is(30, 100);
    orthogonal_is(100, 30);
    orthogonal_is(129, 129);
}

static void models_differ(void)
{
    wf_nn_gpt_config config = {WF_NN_GPT2, .vocabulary = 37, .positions = 9, .layers = 2,
                               .heads = 2, .kv_heads = 2,    .width = 8,     .ffn = 16};
    wf_context *ctx = lone_context(1);
    wf_nn_gpt *a = wf_nn_gpt_new(ctx, &config), *b = wf_nn_gpt_new(ctx, &config), *c;
    uint64_t hash = wf_nn_model_hash(&a->base);
    wf_nn_linear *out = ((wf_nn_block *)b->block[1])->attn->out;

    CU_ASSERT_EQUAL(hash, wf_nn_model_hash(&b->base));
    wf_nn_init_orthogonal(out->weight, 1);
    CU_ASSERT_NOT_EQUAL(hash, wf_nn_model_hash(&b->base));
    config.layers = 3;
    c = wf_nn_gpt_new(ctx, &config);
    CU_ASSERT_NOT_EQUAL(hash, wf_nn_model_hash(&c->base));
    check_recipe(((wf_nn_block *)c->block[0])->attn->out->weight, "normal(0, 0.008164966)");
    wf_nn_free(&a->base);
    wf_nn_free(&b->base);
    wf_nn_free(&c->base);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {{"copies", copied},
                                    {"steps differ", steps_differ},
                                    {"orthogonal", orthogonal},
                                    {"models differ", models_differ},
                                    {NULL, NULL}};

    return wf_test_main("numbers of recipes", tests);
}
