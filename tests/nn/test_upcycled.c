/*
 * tests/nn/test_upcycled.c - mixtures made of dense models: with one expert for each token they
 * have the logits of the dense model, bit for bit, on any layout; with more nearly these.
 */
#include "core/host_data.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/model_ranks.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 4, TOKENS = 12 };

static const wf_par_options layouts[] = {
    {.tp = 1, .dp = 1},
    {.tp = 2, .dp = 2},
    {.tp = 4, .dp = 1, .sequence_parallel = true, .dtype = WF_BF16},
    {.tp = 1, .dp = 4, .ep = 2, .dtype = WF_BF16},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct trial {
    const char *folder;
    float *logits; /* rank 0's */
    int64_t count;
} trial;

static wf_status compute(model_rank *r, void *arg)
{
    trial *t = arg;
    wf_rank *rank = r->rank;
    const wf_dim dims[] = {wf_dim_batch(BATCH), wf_dim_chunked(TOKENS)};
    int32_t tokens[BATCH * TOKENS];
    wf_tensor *y;

    for (int i = 0; i < BATCH * TOKENS; i++)
        tokens[i] = (i * i + 7 * i) % 50;
    GOOD(wf_par_pretrained_load(r->par, r->model, t->folder));
    wf_scope_open(r->ctx);
    y = wf_whole(wf_nn_gpt_logits(
        r->model, wf_distribute(r->ctx, tokens, WF_I32, 2, dims, wf_par_batch_layout(r->par))));
    NEED(y);
    if (rank->index == 0) {
        t->count = wf_tensor_count(y);
        t->logits = calloc((size_t)t->count, sizeof *t->logits);
        NEED(t->logits);
        GOOD(wf_data_get(y, 0, t->count, t->logits));
    }
    wf_scope_close(r->ctx);
    return WF_OK;
}

/* Runs the model of a folder on a layout. */
static trial logits_of(const char *folder, const wf_par_options *layout)
{
    trial t = {.folder = folder};
    model_test test = {.options = *layout, .body = compute, .arg = &t};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &test.config, &error), WF_OK);
    if (!test.config.experts)
        test.options.ep = 0;
    on_model_ranks(&test);
    return t;
}

/* Makes a mixture of a folder's model; returns what came of it. */
static wf_status upcycle(const char *from, const char *to, int64_t experts, int64_t top_k,
                         wf_error *error)
{
    wf_context *ctx = lone_context(5);
    wf_nn_gpt_config dense, mixture;
    wf_nn_gpt *model;

    *error = (wf_error){WF_OK, ""};
    CU_ASSERT_EQUAL(wf_par_pretrained_config(from, &dense, error), WF_OK);
    if (wf_par_pretrained_upcycled(&dense, experts, top_k, &mixture, error) == WF_OK) {
        model = wf_nn_gpt_new(ctx, &mixture);
        CU_ASSERT_PTR_NOT_NULL_FATAL(model);
        CU_ASSERT_EQUAL(wf_par_pretrained_convert(model, from, to, "f32", from, error), WF_OK);
        wf_nn_free(&model->base);
    }
    close_lone(ctx, WF_OK);
    return error->code;
}

static double distance(const trial *a, const trial *b)
{
    double most = 0, largest = 0;

    CU_ASSERT_EQUAL_FATAL(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        most = fmax(most, fabs((double)a->logits[i] - (double)b->logits[i]));
        largest = fmax(largest, fabs((double)a->logits[i]));
    }
    return most / largest;
}

static void logits_are_those_of_the_dense_model(void)
{
    static const char *const folders[] = {WEFT_REFERENCE "/hf_llama_tied",
                                          WEFT_REFERENCE "/hf_qwen3",
                                          WEFT_REFERENCE "/hf_granite"};

    for (size_t f = 0; f < sizeof folders / sizeof *folders; f++)
        for (int top_k = 1; top_k <= 2; top_k++) {
            char to[] = "/tmp/weft-upcycled-XXXXXX";
            wf_error error = {WF_OK, ""};

            CU_ASSERT_FATAL(mkdtemp(to) != NULL);
            if (upcycle(folders[f], to, 6, top_k, &error) != WF_OK)
                printf("\n    %s: %s\n", folders[f], error.text);
            CU_ASSERT_EQUAL_FATAL(error.code, WF_OK);
            for (int l = 0; l < LAYOUTS; l++) {
                trial dense = logits_of(folders[f], &layouts[l]),
                      mixture = logits_of(to, &layouts[l]);

                CU_ASSERT_FATAL(dense.count > 0 && dense.logits && mixture.logits);
                if (top_k == 1)
                    CU_ASSERT_EQUAL(memcmp(dense.logits, mixture.logits,
                                           (size_t)dense.count * sizeof *dense.logits),
                                    0);
                CU_ASSERT(distance(&dense, &mixture) <
                          (layouts[l].dtype == WF_BF16 ? 0.05 : 2e-6));
                free(dense.logits);
                free(mixture.logits);
            }
            wf_test_remove(to);
        }
}

/* Replaces the first `old` in a folder's file by as many bytes. */
static void change(const char *folder, const char *name, const char *old, const char *new)
{
    static char data[1 << 18];
    char path[256];
    size_t bytes, at = 0;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "r+b");
    CU_ASSERT_PTR_NOT_NULL_FATAL(f);
    bytes = fread(data, 1, sizeof data, f);
    while (at + strlen(old) <= bytes && memcmp(data + at, old, strlen(old)) != 0)
        at++;
    CU_ASSERT_FATAL(at + strlen(old) <= bytes && strlen(old) == strlen(new));
    fseek(f, (long)at, SEEK_SET);
    CU_ASSERT_EQUAL(fwrite(new, 1, strlen(new), f), strlen(new));
    fclose(f);
}

typedef struct refusal {
    const char *folder, *text;
} refusal;

static wf_status lacks(model_rank *r, void *arg)
{
    const refusal *of = arg;
    wf_rank *rank = r->rank;
    wf_error error = {WF_OK, ""};

    NEED(wf_par_pretrained_fits(r->par, r->model, of->folder, &error) == WF_EDATA);
    NEED(strstr(error.text, of->text));
    NEED(wf_par_pretrained_load(r->par, r->model, of->folder) == WF_EDATA);
    NEED(strstr(wf_context_error(r->ctx)->text, of->text));
    wf_context_clear(r->ctx);
    return WF_OK;
}

/* An expert whose tensor has another's name, and experts of a layer that config.json lacks. */
static void experts_are_left_out(void)
{
    for (int kind = 0; kind < 2; kind++) {
        char to[] = "/tmp/weft-upcycled-XXXXXX";
        wf_error error = {WF_OK, ""};
        refusal of = {to, kind ? "belongs to no parameter of the model" : ".experts.5.w3"};
        model_test test = {.body = lacks, .arg = &of, .options = layouts[3]};

        CU_ASSERT_FATAL(mkdtemp(to) != NULL);
        CU_ASSERT_EQUAL_FATAL(upcycle(WEFT_REFERENCE "/hf_llama_tied", to, 6, 2, &error),
                              WF_OK);
        if (kind)
            change(to, "config.json", "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1");
        else
            change(to, "model.safetensors", ".experts.5.w3", ".experts.7.w3");
        CU_ASSERT_EQUAL(wf_par_pretrained_config(to, &test.config, &error), WF_OK);
        on_model_ranks(&test);
        wf_test_remove(to);
    }
}

static void refusals(void)
{
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(upcycle(WEFT_REFERENCE "/hf_gpt2", "/tmp", 4, 1, &error), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "experts are SwiGLU MLPs without biases"));
    CU_ASSERT_EQUAL(upcycle(WEFT_REFERENCE "/hf_qwen3", "/tmp", 4, 5, &error), WF_EINVAL);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "5 of 4 experts"));
    CU_ASSERT_EQUAL(upcycle(WEFT_REFERENCE "/hf_olmo2", "/tmp", 4, 1, &error), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "no family of transformers"));
}

int main(void)
{
    static const wf_test tests[] = {
        {"logits are those of the dense model", logits_are_those_of_the_dense_model},
        {"experts that files or configs leave out", experts_are_left_out},
        {"what cannot be made a mixture", refusals},
        {NULL, NULL}};

    return wf_test_main("upcycled", tests);
}
