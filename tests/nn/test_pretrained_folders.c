/*
 * tests/nn/test_pretrained_folders.c - folders of Hugging Face that do not fit: what is
 * refused, by which name, and what a folder says beside its config.json that counts.
 */
#include "kernels/parameters.h"
#include "parallel/train/measure.h"
#include "tests/nn/pretrained_case.h"
#include <sys/stat.h>
#include <unistd.h>

/* Loading fails on every rank, for a reason that is named. */
static wf_status load_in_vain(model_rank *r, void *arg)
{
    pretrained *p = arg;
    wf_rank *rank = r->rank;
    wf_error error = {WF_OK, ""};

    NEED(wf_par_pretrained_fits(r->par, r->model, p->folder, &error) != WF_OK);
    NEED(wf_context_status(r->ctx) == WF_OK);
    NEED(wf_par_pretrained_load(r->par, r->model, p->folder) != WF_OK);
    if (!strstr(wf_context_error(r->ctx)->text, p->reason))
        printf("\n    \"%s\" should say \"%s\"\n", wf_context_error(r->ctx)->text, p->reason);
    NEED(strstr(wf_context_error(r->ctx)->text, p->reason));
    wf_context_clear(r->ctx);
    return WF_OK;
}

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[2 * FOLDER];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    f = fopen(path, "w");
    CU_ASSERT_FATAL(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

static const char tiny_gpt2[] = "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 3, "
                                "\"n_embd\": 24, \"n_inner\": %s, "
                                "\"vocab_size\": 257, \"n_positions\": 32}";

/* A folder with this config and file beside it, which is one that the model cannot come
   from. */
static void fails(const char *ffn, const char *name, const char *content, const char *reason)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.reason = reason};
    model_test test = {.options = {.tp = 2, .dp = 1}, .body = load_in_vain, .arg = &p};
    char folder[WF_TEST_FOLDER], text[512], path[FOLDER];

    wf_test_new_folder(folder);
    snprintf(text, sizeof text, tiny_gpt2, ffn);
    write_text(folder, "config.json", text);
    if (content) {
        write_text(folder, name, content);
    } else if (name) {
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        CU_ASSERT_EQUAL(symlink(name, path), 0);
    }
    p.folder = folder;
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &test.config, &error), WF_OK);
    on_model_ranks(&test);
    remove_folder(folder);
}

static void what_does_not_fit_is_refused(void)
{
    static const char index_name[] = "model.safetensors.index.json";

    fails("80", NULL, NULL, "no folder of weights");
    fails("80", "pytorch_model.bin", "\x80\x02}q.", "is a pickle");
    fails("80", "model.pt", "PK", "save_pretrained");
    fails("96", WEFT_REFERENCE "/hf_gpt2/model.safetensors", NULL, "another shape");
    fails("80", WEFT_REFERENCE "/gpt2.safetensors", NULL, "has no tensor");
    fails("80", "model.safetensors", "\2\0\0\0", "fewer than 8 bytes");
    fails("80", index_name, "{}", "\"weight_map\" is no object");
    fails("80", index_name, "{\"weight_map\": {}}", "is empty");
    fails("80", index_name, "{\"weight_map\": {\"a\": \"../model.safetensors\"}}",
          "same folder");
    fails("80", index_name, "{\"weight_map\": {\"a\": \"/etc/passwd\"}}", "same folder");
    fails("80", index_name, "{\"weight_map\": {\"a\": \".safetensors\"}}", "same folder");
    fails("80", index_name, "{\"weight_map\": {\"a\": \"weights.bin\"}}", "same folder");
    fails("80", index_name, "{\"weight_map\": {\"a\": 1}}", "same folder");
    fails("80", index_name, "{\"weight_map\": {\"a\": \"b.safetensors\"}}", "cannot open");
    fails("80", index_name, "[1]", "no object");
    fails("80", index_name, "{\"weight_map\": {\"a\": \"b\", \"a\": \"c\"}}", "duplicate");
}

/* A model of its own head is no tied one; a tied one may become one of its own head, which
   begins as the embedding. */
static void a_tie_is_no_accident(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.folder = WEFT_REFERENCE "/hf_llama_tied"};
    model_test test = {.options = {.tp = 2, .dp = 1}, .body = load_and_compare, .arg = &p};

    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    CU_ASSERT_TRUE(test.config.tied);
    test.config.tied = false;
    p.file = safetensors_open(WEFT_REFERENCE "/hf_llama_tied/logits.safetensors");
    on_model_ranks(&test);
    safetensors_close(p.file);
    test.body = load_in_vain;
    p.folder = WEFT_REFERENCE "/hf_llama";
    p.reason = "has a head of its own, and";
    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    CU_ASSERT_FALSE(test.config.tied);
    test.config.tied = true;
    on_model_ranks(&test);
}

/* A file of one folder under a name in another; NULL: under its own. */
static void link_file(const char *from, const char *name, const char *folder, const char *as)
{
    char path[2][2 * FOLDER];

    snprintf(path[0], sizeof path[0], "%s/%s", from, name);
    snprintf(path[1], sizeof path[1], "%s/%s", folder, as ? as : name);
    CU_ASSERT_EQUAL(symlink(path[0], path[1]), 0);
}

/* The text of a file with one text in place of another. */
static void rewrite(const char *from, const char *name, const char *folder, const char *text,
                    const char *with)
{
    char path[2 * FOLDER], old[4096] = "", new[8192], *at;
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", from, name);
    f = fopen(path, "r");
    CU_ASSERT_FATAL(f && fread(old, 1, sizeof old - 1, f) > 0 && fclose(f) == 0);
    at = strstr(old, text);
    CU_ASSERT_FATAL(at != NULL);
    snprintf(new, sizeof new, "%.*s%s%s", (int)(at - old), old, with, at + strlen(text));
    write_text(folder, name, new);
}

/* hf_llama's folder, whose weights have a head of their own, with another word in its config or
   index. */
static void change_llama(char folder[FOLDER], const char *file, const char *text,
                         const char *with)
{
    static const char from[] = WEFT_REFERENCE "/hf_llama";
    static const char *const others[] = {"config.json", "model.safetensors.index.json"};
    char name[64];

    wf_test_new_folder(folder);
    for (int i = 1; i <= 4; i++) {
        snprintf(name, sizeof name, "model-0000%d-of-00004.safetensors", i);
        link_file(from, name, folder, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (strcmp(others[i], file) == 0)
            rewrite(from, file, folder, text, with);
        else
            link_file(from, others[i], folder, NULL);
}

/* A head in the files is used though the config ties it, as by transformers. */
static void a_head_of_its_own_is_kept(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.dtype = "bf16",
                    .file = safetensors_open(WEFT_REFERENCE "/hf_llama/logits.safetensors")};
    model_test test = {.options = {.tp = 2, .dp = 2}, .body = load_and_compare, .arg = &p};
    char folder[FOLDER];
    wf_nn_gpt_config again;

    change_llama(folder, "config.json", "\"tie_word_embeddings\": false",
                 "\"tie_word_embeddings\": true");
    p.folder = p.like = folder;
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &test.config, &error), WF_OK);
    CU_ASSERT_FALSE(test.config.tied);
    on_model_ranks(&test);
    wf_test_new_folder(p.saved);
    test.body = load_and_save;
    on_model_ranks(&test);
    CU_ASSERT(same_tensors(WEFT_REFERENCE "/hf_llama", p.saved));
    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.saved, &again, &error), WF_OK);
    CU_ASSERT(wf_nn_gpt_same(&again, &test.config));
    remove_folder(p.saved);
    test.config.tied = true; /* it would be lost */
    test.body = load_in_vain;
    p.reason = "\"lm_head.weight\" differs from the embedding";
    on_model_ranks(&test);
    remove_folder(folder);
    safetensors_close(p.file);
}

/* Adapters that transformers would put on the model, and nothing here. */
static void adapters_are_not_dropped(void)
{
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config config;
    char folder[FOLDER];

    change_llama(folder, "config.json", "false", "false");
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &config, &error), WF_OK);
    write_text(folder, "adapter_config.json", "{}");
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &config, &error), WF_EUNSUPPORTED);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.text, "adapter_config.json: adapters beside a model"));
    remove_folder(folder);
}

/* An index that names a tensor which its file does not have. */
static void an_index_is_true(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.reason = "tensor \"lm_head.weights\" is not in model-0000"};
    model_test test = {.options = {.tp = 1, .dp = 1}, .body = load_in_vain, .arg = &p};
    char folder[FOLDER];

    change_llama(folder, "model.safetensors.index.json", "lm_head.weight", "lm_head.weights");
    p.folder = folder;
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &test.config, &error), WF_OK);
    on_model_ranks(&test);
    remove_folder(folder);
}

static wf_status save_in_vain(model_rank *r, void *arg)
{
    pretrained *p = arg;
    wf_rank *rank = r->rank;

    NEED(wf_par_pretrained_save(r->par, r->model, p->saved, p->dtype, p->like) != WF_OK);
    NEED(strstr(wf_context_error(r->ctx)->text, p->reason));
    wf_context_clear(r->ctx);
    return WF_OK;
}

static void a_failed_save_is_reported_by_all(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.saved = "/proc/weft-nowhere", .reason = "cannot make directory"};
    model_test test = {.options = {.tp = 2, .dp = 2}, .body = save_in_vain, .arg = &p};

    CU_ASSERT_EQUAL(wf_par_pretrained_config(WEFT_REFERENCE "/hf_gpt2", &test.config, &error),
                    WF_OK);
    on_model_ranks(&test);
    p.dtype = "f8";
    p.reason = "cannot be written as f8";
    on_model_ranks(&test);
}

/* config.json may say any number of layers: it is compared with the files before a model is
   built. */
static void layers_need_tensors(void)
{
    static const char deep[] = "{\"model_type\": \"gpt2\", \"n_layer\": 65536, \"n_head\": 2, "
                               "\"n_embd\": 8, \"n_positions\": 8, \"vocab_size\": 16}";
    char folder[WF_TEST_FOLDER], path[FOLDER];
    wf_error error = {WF_OK, ""};
    wf_nn_gpt_config config;

    wf_test_new_folder(folder);
    write_text(folder, "config.json", deep);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    CU_ASSERT_EQUAL(symlink(WEFT_REFERENCE "/hf_gpt2/model.safetensors", path), 0);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(folder, &config, &error), WF_EDATA);
    CU_ASSERT(strstr(error.text, "config.json has 65536 layers, and the files") != NULL);
    remove_folder(folder);
}

/* Writes a model, clears its table and reads it: a table of more than is read at a time. */
static wf_status save_and_load(model_rank *r, void *arg)
{
    const pretrained *p = arg;
    wf_rank *rank = r->rank;
    uint64_t before = 0, after = 0;
    wf_error error = {WF_OK, ""};

    GOOD(wf_par_digest(r->par, r->count, r->parameter, NULL, &before));
    GOOD(wf_par_pretrained_save(r->par, r->model, p->saved, NULL, NULL));
    GOOD(wf_par_pretrained_fits(r->par, r->model, p->saved, &error));
    r->model->config.eps = 1e-3f;
    NEED(wf_par_pretrained_fits(r->par, r->model, p->saved, &error) == WF_EINVAL);
    NEED(strstr(error.text, "epsilon of norms (.eps)"));
    GOOD(wf_init_fill(r->model->embed->table->tensor, 0));
    GOOD(wf_par_pretrained_load(r->par, r->model, p->saved));
    GOOD(wf_par_digest(r->par, r->count, r->parameter, NULL, &after));
    NEED(before == after);
    return WF_OK;
}

static void large_tables(void)
{
    pretrained p = {.folder = NULL};
    model_test test = {.options = {.tp = 1, .dp = 1}, .body = save_and_load, .arg = &p};

    test.config =
        (wf_nn_gpt_config){WF_NN_GPT2, .vocabulary = 100000, .positions = 4, .layers = 1,
                           .heads = 2, .kv_heads = 2,        .width = 16,    .ffn = 64};
    wf_test_new_folder(p.saved);
    on_model_ranks(&test);
    remove_folder(p.saved);
}

static const wf_test tests[] = {
    {"what does not fit is refused", what_does_not_fit_is_refused},
    {"layers need tensors", layers_need_tensors},
    {"a tie is no accident", a_tie_is_no_accident},
    {"a head of its own is kept", a_head_of_its_own_is_kept},
    {"adapters are not dropped", adapters_are_not_dropped},
    {"an index is true", an_index_is_true},
    {"a failed save is reported by all", a_failed_save_is_reported_by_all},
    {"tables larger than a slab", large_tables},
    {NULL, NULL}};

int main(void)
{
    return wf_test_main("pretrained folders", tests);
}
