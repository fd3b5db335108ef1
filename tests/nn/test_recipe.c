/*
 * tests/nn/test_recipe.c - recipes: what is recorded, printed and hashed, what is refused, and
 * that any shard of any layout of any recipe is the slice of the whole.
 */
#include "core/numerics/random.h"
#include "tests/mesh/mesh_harness.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/recipes.h"

/* Every other element twice, plus its index: what was there counts. */
static void twist(float *x, int64_t n, int64_t first, const wf_init_site *site)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = ((first + i) % 2 ? 2 : 1) * x[i] + site->arg[0] * (float)(first + i);
}

static wf_status backwards(float *x, const wf_tensor *like, const wf_init_site *site)
{
    int64_t n = wf_tensor_count(like);

    for (int64_t i = 0; i < n; i++)
        x[n - 1 - i] = site->arg[1] * wf_random_normal(site->key, site->stream, (uint64_t)i);
    return WF_OK;
}

static const wf_nn_init_op op_twist = {"twist", 1, .modifies = true, .elements = twist};
static const wf_nn_init_op op_backwards = {"backwards", 2, .whole = backwards};

typedef void recorder(wf_nn_parameter *p, wf_nn_parameter *other);

static void fills(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_fill(p, 0.5f);
}

static void normals(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_normal(p, 0, 0.02f);
    wf_nn_init_scale(p, 0.125f);
}

static void uniforms(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_uniform(p, -1, 2);
    wf_nn_init_apply(p, &op_twist, (const float[]){0.25f});
}

static void truncated(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_truncated_normal(p, 0, 1, -2, 2);
    wf_nn_init_scale(p, 0.02f);
}

static void orthogonals(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_orthogonal(p, 1.5f);
}

static void copies(wf_nn_parameter *p, wf_nn_parameter *other)
{
    wf_nn_init_normal(other, 1, 3);
    wf_nn_init_copy(p, other);
    wf_nn_init_scale(p, -2);
}

static void noises(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_apply(p, &op_noise, NULL);
}

static void wholes(wf_nn_parameter *p, wf_nn_parameter *other)
{
    (void)other;
    wf_nn_init_apply(p, &op_backwards, (const float[]){0, 7});
    wf_nn_init_apply(p, &op_twist, (const float[]){1});
    wf_nn_init_scale(p, 3);
}

static const struct {
    recorder *record;
    const char *text;
} recipes[] = {{fills, "fill(0.5)"},
               {normals, "normal(0, 0.02) * 0.125"},
               {uniforms, "uniform(-1, 2) then twist(0.25)"},
               {truncated, "truncated_normal(0, 1, -2, 2) * 0.02"},
               {orthogonals, "orthogonal(1.5)"},
               {copies, "normal(1, 3) of other * -2"},
               {noises, "noise()"},
               {wholes, "backwards(0, 7) then twist(1) * 3"}};

enum { RECIPES = sizeof recipes / sizeof *recipes };

/* Sizes from nothing to two digits, with and without grains. */
static int random_dims(int round, wf_dim dims[3])
{
    int ndim = 1 + pick(round, 0, 3);

    for (int d = 0; d < ndim; d++) {
        int64_t grain = 1 + pick(round, 1 + 3 * d, 3) % 2 * 2;

        dims[d] = (wf_dim){grain * pick(round, 2 + 3 * d, ndim > 1 ? 8 : 40), grain,
                           pick(round, 3 + 3 * d, 2) ? WF_CHUNKS_8 : WF_CHUNKS_1};
    }
    return ndim;
}

static wf_status is_slice(wf_rank *rank, wf_context *ctx, const wf_nn_parameter *p,
                          const wf_layout *layout)
{
    const wf_tensor *fake = p->tensor;
    wf_tensor *whole, *part;

    wf_scope_open(ctx);
    whole = wf_tensor_new(ctx, WF_F32, fake->ndim, fake->dim, NULL, WF_MEMORY_PARAMETER);
    part = wf_tensor_new(ctx, WF_F32, fake->ndim, fake->dim, layout, WF_MEMORY_PARAMETER);
    NEED(whole && part);
    memset(part->data, 0xff, (size_t)wf_tensor_local_count(part) * sizeof(float));
    GOOD(wf_nn_replay(p, whole));
    GOOD(wf_nn_replay(p, part));
    for (int64_t k = 0; k < wf_tensor_local_count(part); k++)
        NEED(same_bits(((float *)part->data)[k], ((float *)whole->data)[whole_index(part, k)]));
    wf_scope_close(ctx);
    return WF_OK;
}

static wf_status slices(wf_rank *rank, wf_mesh *mesh, void *arg)
{
    const wf_layout *layout[MAX_LAYOUTS];
    wf_context *ctx = mesh->ctx;

    (void)arg;
    for (int round = 0; round < 200; round++) {
        wf_dim dims[3];
        int ndim = random_dims(round, dims), n = all_layouts(mesh, ndim, false, layout);

        for (int r = 0; r < RECIPES; r++) {
            wf_nn_parameter *p = parameter(ctx, "own", ndim, dims);
            wf_nn_parameter *other = parameter(ctx, "other", ndim, dims);
            wf_status status;

            NEED(p && other);
            recipes[r].record(p, other);
            status = is_slice(rank, ctx, p, layout[pick(round, 20 + r, n)]);
            if (status != WF_OK)
                return status;
            wf_nn_parameter_free(other); /* copies of it still have its numbers */
            wf_nn_parameter_free(p);
        }
    }
    return wf_context_status(ctx);
}

static void shards_are_slices(void)
{
    static const mesh_test meshes[] = {
        {.n_axes = 1, .size = {1}},   {.n_axes = 1, .size = {2}},
        {.n_axes = 1, .size = {3}},   {.n_axes = 2, .size = {2, 2}},
        {.n_axes = 1, .size = {5}},   {.n_axes = 2, .size = {2, 3}},
        {.n_axes = 1, .size = {7}},   {.n_axes = 2, .size = {4, 2}},
        {.n_axes = 2, .size = {3, 3}}};

    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        mesh_test test = meshes[i];

        test.body = slices;
        on_mesh(test);
    }
}

static void printed_and_hashed(void)
{
    wf_context *ctx = lone_context(1);
    const wf_dim dims[] = {wf_dim_width(4), wf_dim_width(6)};
    uint64_t hash[RECIPES];
    char text[8];

    for (int r = 0; r < RECIPES; r++) {
        wf_nn_parameter *p = parameter(ctx, "p", 2, dims), *q = parameter(ctx, "q", 2, dims);
        wf_nn_parameter *other = parameter(ctx, "other", 2, dims);

        check_recipe(p, "fill(0)");
        recipes[r].record(p, other);
        check_recipe(p, recipes[r].text);
        recipes[r].record(q, other);
        hash[r] = wf_nn_recipe_hash(p);
        CU_ASSERT_EQUAL(hash[r], wf_nn_recipe_hash(q));
        for (int k = 0; k < r; k++)
            CU_ASSERT_NOT_EQUAL(hash[r], hash[k]);
        wf_nn_init_scale(q, 1);
        CU_ASSERT_NOT_EQUAL(hash[r], wf_nn_recipe_hash(q));
        wf_nn_init_fill(q, 0); /* starts afresh */
        check_recipe(q, "fill(0)");
        wf_nn_recipe_print(p, text, sizeof text);
        CU_ASSERT(strlen(text) == 7 && strncmp(text, recipes[r].text, 7) == 0);
        wf_nn_parameter_free(p);
        wf_nn_parameter_free(q);
        wf_nn_parameter_free(other);
    }
    close_lone(ctx, WF_OK);
}

static void wrong_ops(void)
{
    static const wf_nn_init_op bad[] = {{"normal", 0, .elements = noise},
                                        {"noise", 0, .whole = backwards},
                                        {.name = "none"},
                                        {"both", 0, .elements = noise, .whole = backwards},
                                        {"five", 5, .elements = noise},
                                        {"late", 0, .modifies = true, .whole = backwards}};
    static const char *const words[] = {"another initialisation is called normal",
                                        "another initialisation is called noise",
                                        "none has 0 functions",
                                        "both has 2 functions",
                                        "and 5 numbers",
                                        "late makes the whole tensor, so it cannot modify"};
    wf_context *ctx = lone_context(1);
    const wf_dim dim = wf_dim_width(4);
    wf_nn_parameter *p = parameter(ctx, "p", 1, &dim);

    wf_nn_init_apply(p, &op_noise, NULL);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_nn_init_apply(p, &bad[i], NULL);
        refuses(ctx, WF_EINVAL, words[i]);
        check_recipe(p, "noise()");
    }
    for (int i = 1; i < WF_NN_STEPS; i++)
        wf_nn_init_scale(p, 2);
    CU_ASSERT_EQUAL(wf_context_status(ctx), WF_OK);
    wf_nn_init_scale(p, 2);
    refuses(ctx, WF_EINVAL, "the recipe of parameter p has 4 steps, scale would be one more");
    wf_nn_init_normal(NULL, 0, 1); /* nothing to say it to */
    wf_nn_parameter_free(p);
    close_lone(ctx, WF_OK);
}

int main(void)
{
    static const wf_test tests[] = {{"shards are slices", shards_are_slices},
                                    {"printed and hashed", printed_and_hashed},
                                    {"wrong ops are refused", wrong_ops},
                                    {NULL, NULL}};

    return wf_test_main("recipes", tests);
}
