/* tests/nn/test_gpt.c - the trees of GPT-2 and Llama: paths, ties, counts, refusals. */
#include "tests/nn/model_ranks.h"
#include <math.h>

static const wf_nn_gpt_config tiny_gpt2 = {WF_NN_GPT2,  .vocabulary = 11, .positions = 6,
                                           .layers = 2, .heads = 2,       .kv_heads = 2,
                                           .width = 4,  .ffn = 10};
static const wf_nn_gpt_config tiny_llama = {.vocabulary = 11,
                                            .positions = 6,
                                            .layers = 2,
                                            .heads = 4,
                                            .kv_heads = 2,
                                            .width = 8,
                                            .ffn = 10};

/* Lines of text from a walk over a tree. */
typedef struct listing {
    char text[4096];
    size_t length;
} listing;

static void add_line(listing *l, const char *text)
{
    int n = snprintf(l->text + l->length, sizeof l->text - l->length, "%s\n", text);

    l->length += (size_t)n;
    if (l->length >= sizeof l->text)
        l->length = sizeof l->text - 1;
}

static void list_module(void *arg, wf_nn_module *m)
{
    add_line(arg, m->path);
}

/* A parameter as the place where it is, and its own path where that is another one. */
static void list_parameter(void *arg, wf_nn_module *m, const char *name, wf_nn_parameter *p)
{
    char path[3 * WF_NN_PATH], line[5 * WF_NN_PATH];

    snprintf(path, sizeof path, "%s%s%s", m->path, m->path[0] ? "." : "", name);
    snprintf(line, sizeof line, "%s%s%s", path, strcmp(path, p->path) ? " = " : "",
             strcmp(path, p->path) ? p->path : "");
    add_line(arg, line);
}

#define WEIGHT(path)    path ".weight\n"
#define GAIN(path)      path ".gain\n"
#define LINEAR(path)    WEIGHT(path) path ".bias\n"
#define LAYER(path)     GAIN(path) path ".bias\n"
#define GPT2_QKV(path)  LINEAR(path ".q") LINEAR(path ".k") LINEAR(path ".v")
#define GPT2_ATTN(path) GPT2_QKV(path ".qkv") LINEAR(path ".out")
#define GPT2_MLP(path)  LINEAR(path ".up") LINEAR(path ".down")
#define GPT2_BLOCK(path)                                                                       \
    LAYER(path ".norm1") GPT2_ATTN(path ".attn") LAYER(path ".norm2") GPT2_MLP(path ".mlp")
#define LLAMA_QKV(path)  WEIGHT(path ".q") WEIGHT(path ".k") WEIGHT(path ".v")
#define LLAMA_ATTN(path) LLAMA_QKV(path ".qkv") WEIGHT(path ".out")
#define LLAMA_MLP(path)                                                                        \
    WEIGHT(path ".gate_up.gate") WEIGHT(path ".gate_up.up") WEIGHT(path ".down")
#define LLAMA_BLOCK(path)                                                                      \
    GAIN(path ".norm1") LLAMA_ATTN(path ".attn") GAIN(path ".norm2") LLAMA_MLP(path ".mlp")

static void parameters_have_paths(void)
{
    static const struct {
        const wf_nn_gpt_config *config;
        const char *paths;
    } models[] = {{&tiny_gpt2, "embed.table\nposition.table\n" GPT2_BLOCK("block.0") GPT2_BLOCK(
                                   "block.1") LAYER("norm") "head.weight = embed.table\n"},
                  {&tiny_llama, "embed.table\n" LLAMA_BLOCK("block.0")
                                    LLAMA_BLOCK("block.1") "norm.gain\nhead.weight\n"}};

    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        wf_context *ctx = lone_context(1);
        wf_nn_gpt *m = wf_nn_gpt_new(ctx, models[i].config);
        listing l = {.length = 0};

        CU_ASSERT_PTR_NOT_NULL_FATAL(m);
        wf_nn_visit(&m->base, NULL, list_parameter, &l);
        CU_ASSERT_STRING_EQUAL(l.text, models[i].paths);
        wf_nn_free(&m->base);
        close_lone(ctx, WF_OK);
    }
}

static void modules_have_paths(void)
{
    static const char paths[] = "\nembed\n"
                                "block.0\nblock.0.norm1\nblock.0.attn\nblock.0.attn.qkv\n"
                                "block.0.attn.qkv.q\nblock.0.attn.qkv.k\nblock.0.attn.qkv.v\n"
                                "block.0.attn.out\nblock.0.norm2\nblock.0.mlp\n"
                                "block.0.mlp.gate_up\nblock.0.mlp.gate_up.gate\n"
                                "block.0.mlp.gate_up.up\nblock.0.mlp.down\nnorm\nhead\nloss\n";
    wf_nn_gpt_config config = tiny_llama;
    wf_context *ctx = lone_context(1);
    listing l = {.length = 0};
    wf_nn_gpt *m;

    config.layers = 1;
    m = wf_nn_gpt_new(ctx, &config);
    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    wf_nn_visit(&m->base, list_module, NULL, &l);
    CU_ASSERT_STRING_EQUAL(l.text, paths);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

/* By formula; the tied head counts nothing. */
static int64_t gpt2_elements(const wf_nn_gpt_config *c)
{
    int64_t w = c->width, norm = 2 * w, attention = 4 * (w * w + w);
    int64_t mlp = 2 * w * c->ffn + c->ffn + w;

    return (c->vocabulary + c->positions) * w + c->layers * (2 * norm + attention + mlp) + norm;
}

/* Parameters count once; matrices decay and vectors do not. */
static void tied_once(void)
{
    const wf_nn_gpt_config *c = &tiny_gpt2;
    int64_t n = 0, elements = 0;
    wf_context *ctx = lone_context(1);
    wf_nn_gpt *m = wf_nn_gpt_new(ctx, c);
    wf_nn_parameter **p;

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    CU_ASSERT_PTR_EQUAL(m->head->weight, m->embed->table);
    CU_ASSERT_EQUAL(m->embed->table->refs, 2);
    p = wf_nn_parameters(&m->base, &n);
    CU_ASSERT_EQUAL(n, 2 + 16 * c->layers + 2);
    for (int64_t i = 0; p && i < n; i++) {
        elements += wf_tensor_count(p[i]->tensor);
        CU_ASSERT_EQUAL(p[i]->decay, p[i]->tensor->ndim == 2);
        for (int64_t k = 0; k < i; k++)
            CU_ASSERT(p[k] != p[i] && strcmp(p[k]->path, p[i]->path) != 0);
    }
    CU_ASSERT_EQUAL(elements, gpt2_elements(c));
    free(p);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

/* A model of 175 billion parameters is built without a byte for its tensors. */
static void built_on_nothing(void)
{
    const wf_nn_gpt_config config = {WF_NN_GPT2,     .vocabulary = 50257, .positions = 2048,
                                     .layers = 96,   .heads = 96,         .kv_heads = 96,
                                     .width = 12288, .ffn = 4 * 12288};
    wf_context *ctx = lone_context(1);
    wf_nn_gpt *m = wf_nn_gpt_new(ctx, &config);
    int64_t n = 0, elements = 0, fakes = 0;
    wf_nn_parameter **p;

    CU_ASSERT_PTR_NOT_NULL_FATAL(m);
    p = wf_nn_parameters(&m->base, &n);
    for (int64_t i = 0; p && i < n; i++) {
        elements += wf_tensor_count(p[i]->tensor);
        fakes += wf_tensor_is_fake(p[i]->tensor);
    }
    CU_ASSERT_EQUAL(fakes, n);
    CU_ASSERT_EQUAL(elements, gpt2_elements(&config));
    CU_ASSERT(elements > 174500000000);
    CU_ASSERT_EQUAL(in_use(ctx), 0);
    free(p);
    wf_nn_free(&m->base);
    close_lone(ctx, WF_OK);
}

static void refusals(void)
{
    static const struct {
        wf_nn_gpt_config config;
        const char *words;
    } bad[] = {
        {{WF_NN_GPT2, .vocabulary = 0, .positions = 6, .layers = 2, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 10},
         "at least 1"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = -1, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 10},
         "at least 1"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = 2, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 0},
         "at least 1"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = 2, .heads = 3, .kv_heads = 3,
          .width = 4, .ffn = 10},
         "width 4 is not a multiple of 3 heads"},
        {{.vocabulary = 11,
          .positions = 6,
          .layers = 2,
          .heads = 4,
          .kv_heads = 3,
          .width = 8,
          .ffn = 10},
         "4 heads cannot share 3 key-value heads"},
        {{.vocabulary = 11,
          .positions = 6,
          .layers = 2,
          .heads = 4,
          .kv_heads = 4,
          .width = 12,
          .ffn = 10},
         "head size 3 must be even"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = 2, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 10, .dropout = 1},
         "dropout 1 must be at least 0 and below 1"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = 2, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 10, .dropout = -0.1f},
         "dropout -0.1 must be"},
        {{WF_NN_GPT2, .vocabulary = 11, .positions = 6, .layers = 2, .heads = 2, .kv_heads = 2,
          .width = 4, .ffn = 10, .parallel = true, .order = WF_NN_BOTH_NORMS},
         "leave .order WF_NN_PRE_NORM"},
        {{.vocabulary = 11,
          .positions = 6,
          .layers = 2,
          .heads = 4,
          .kv_heads = 4,
          .width = 8,
          .ffn = 10,
          .gelu_erf = true},
         "gelu by erf"}};
    wf_context *ctx = lone_context(1);

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CU_ASSERT_PTR_NULL(wf_nn_gpt_new(ctx, &bad[i].config));
        CU_ASSERT_EQUAL(wf_context_status(ctx), WF_EINVAL);
        CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text, bad[i].words));
        wf_context_clear(ctx);
    }
    close_lone(ctx, WF_OK);
}

static int64_t frozen_by(wf_context *ctx, wf_nn_gpt *model, const char *pattern)
{
    int64_t count = 0, frozen = 0;
    wf_nn_parameter **p = wf_nn_parameters(&model->base, &count);

    for (int64_t i = 0; i < count; i++)
        p[i]->frozen = false;
    if (wf_nn_freeze(&model->base, pattern) != WF_OK)
        wf_context_clear(ctx);
    for (int64_t i = 0; i < count; i++)
        frozen += p[i]->frozen;
    free(p);
    return frozen;
}

/* By path, by that of a module above, by one name in each place; never by a part of a name. */
static void freezing(void)
{
    static const struct {
        const char *pattern;
        int64_t frozen;
    } list[] = {{"embed.table", 1},
                {"embed", 1},
                {"block.1.mlp", 4},
                {"block.1", 16},
                {"block.*.norm1", 4},
                {"block.*.*.up", 4},
                {"block.*.attn.qkv.q", 4},
                {"norm", 2},
                {"*", 36},
                {"bloc", 0},
                {"block.1.ml", 0},
                {"", 0},
                {"block.7", 0}};
    wf_context *ctx = lone_context(1);
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, &tiny_gpt2);

    CU_ASSERT_PTR_NOT_NULL_FATAL(model);
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        int64_t frozen = frozen_by(ctx, model, list[i].pattern);

        CU_ASSERT_EQUAL(frozen, list[i].frozen);
        if (frozen != list[i].frozen)
            printf("\n    %s freezes %d\n", list[i].pattern, (int)frozen);
    }
    CU_ASSERT_EQUAL(wf_nn_freeze(&model->base, "bloc"), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(wf_context_error(ctx)->text,
                                  "no parameter of the model is at bloc or below it"));
    wf_context_clear(ctx);
    wf_nn_free(&model->base);
    close_lone(ctx, WF_OK);
}

/* A failure names the module in which it happened; one before the model does too. */
static wf_status wrong_inputs(model_rank *r, void *arg)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(7), wf_dim_width(5)};
    wf_nn_mlp *mlp = ((wf_nn_block *)r->model->block[1])->mlp;
    wf_rank *rank = r->rank;

    (void)arg;
    wf_scope_open(r->ctx);
    GOOD(
        refused(rank, r->ctx,
                wf_nn_call(mlp, wf_tensor_new(r->ctx, WF_F32, 3, dims, NULL, WF_MEMORY_BUFFER)),
                WF_ESHAPE, "block.1.mlp.up"));
    GOOD(refused(rank, r->ctx,
                 wf_nn_gpt_logits(
                     r->model, wf_tensor_new(r->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_BUFFER)),
                 WF_ESHAPE, "up to 6 tokens"));
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void failures_name_the_module(void)
{
    on_model_ranks(&(model_test){.config = tiny_gpt2, .body = wrong_inputs});
}

/* Logits of a head with a bias stay below its cap, and come near it. */
static wf_status below_the_cap(model_rank *r, void *arg)
{
    const wf_dim dims[] = {wf_dim_batch(1), wf_dim_chunked(6)};
    const float cap = (float)r->model->config.logit_cap;
    wf_tensor *tokens, *logits;
    wf_rank *rank = r->rank;
    float most = 0;

    (void)arg;
    wf_scope_open(r->ctx);
    tokens = wf_tensor_new(r->ctx, WF_I32, 2, dims, NULL, WF_MEMORY_BUFFER);
    NEED(tokens);
    for (int i = 0; i < 6; i++)
        ((int32_t *)tokens->data)[i] = i;
    logits = wf_nn_gpt_logits(r->model, tokens);
    NEED(logits);
    for (int64_t i = 0; i < wf_tensor_local_count(logits); i++)
        most = fmaxf(most, fabsf(((const float *)logits->data)[i]));
    NEED(most <= cap && most > cap / 2);
    wf_scope_close(r->ctx);
    return WF_OK;
}

static void capped_heads(void)
{
    model_test test = {.config = tiny_gpt2, .body = below_the_cap};

    test.config.head_bias = true;
    test.config.logit_cap = 1e-3;
    on_model_ranks(&test);
}

int main(void)
{
    static const wf_test tests[] = {{"parameters have paths", parameters_have_paths},
                                    {"modules have paths", modules_have_paths},
                                    {"a tied parameter counts once", tied_once},
                                    {"a huge model takes no memory", built_on_nothing},
                                    {"models that cannot be", refusals},
                                    {"freezing by pattern", freezing},
                                    {"failures name the module", failures_name_the_module},
                                    {"heads with a bias and a cap", capped_heads},
                                    {NULL, NULL}};

    return wf_test_main("gpt", tests);
}
