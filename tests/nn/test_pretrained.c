/*
 * tests/nn/test_pretrained.c - models of each family that transformers saved (made by
 * tests/reference/make_pretrained.py): loaded on several layouts they give transformers' logits,
 * and what is saved again has the bytes that were read.
 */
#include "parallel/formats/hf_files_internal.h"
#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/safetensors_file.h"
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FOLDER = 256 };

typedef struct pretrained {
    const char *folder;
    safetensors *file; /* tokens and logits */
    double off;        /* the largest difference of a logit on rank 0, in largest logits */
    char saved[FOLDER];
    const char *dtype, *like;
    const char *reason; /* loading has to fail for it; NULL: it works */
} pretrained;

static const wf_par_options layouts[] = {
    {.tp = 1, .dp = 1},
    {.tp = 2, .dp = 1},
    {.tp = 3, .dp = 1},
    {.tp = 8, .dp = 1},
    {.tp = 1, .dp = 2, .strategy = "no_shard"},
    {.tp = 2, .dp = 2, .strategy = "no_shard"},
    {.tp = 1, .dp = 2, .strategy = "full_shard"},
    {.tp = 2, .dp = 3, .strategy = "full_shard"},
    {.tp = 2, .dp = 4, .strategy = "hybrid_shard", .dp_replicate = 2},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct source {
    const char *folder, *dtype;
} source;

static const source fixtures[] = {
    {WEFT_REFERENCE "/hf_gpt2", "f32"},        {WEFT_REFERENCE "/hf_llama", "bf16"},
    {WEFT_REFERENCE "/hf_llama_tied", "bf16"}, {WEFT_REFERENCE "/hf_llama31", "bf16"},
    {WEFT_REFERENCE "/hf_mistral", "bf16"},    {WEFT_REFERENCE "/hf_qwen2", "f32"},
    {WEFT_REFERENCE "/hf_qwen3", "f32"},       {WEFT_REFERENCE "/hf_smollm3", "bf16"},
    {WEFT_REFERENCE "/hf_granite", "bf16"},    {WEFT_REFERENCE "/hf_phi3", "bf16"},
    {WEFT_REFERENCE "/hf_gemma", "bf16"},      {WEFT_REFERENCE "/hf_olmo2", "bf16"},
    {WEFT_REFERENCE "/hf_phi35", "bf16"}};
static const source *models = fixtures;
static int model_count = sizeof fixtures / sizeof *fixtures;

static wf_status compare_logits(model_rank *r, pretrained *p)
{
    wf_rank *rank = r->rank;
    safetensors_entry tokens, logits;
    double off = 0, largest = 0;
    wf_tensor *x, *y;

    NEED(safetensors_find(p->file, "tokens", "I32", &tokens));
    NEED(safetensors_find(p->file, "logits", "F32", &logits));
    wf_scope_open(r->ctx);
    x = wf_distribute(r->ctx, tokens.data, WF_I32, 2,
                      (wf_dim[]){wf_dim_batch(tokens.dim[0]), wf_dim_chunked(tokens.dim[1])},
                      wf_par_batch_layout(r->par));
    y = wf_whole(wf_nn_gpt_logits(r->model, x));
    NEED(y && wf_tensor_count(y) == logits.count);
    for (int64_t i = 0; i < logits.count; i++) {
        double theirs = (double)((const float *)logits.data)[i];
        double d = fabs((double)((float *)y->data)[i] - theirs);

        off = d > off || isnan(d) ? d : off;
        largest = fabs(theirs) > largest ? fabs(theirs) : largest;
    }
    wf_scope_close(r->ctx);
    NEED(off < 2e-5 * largest);
    if (rank->index == 0)
        p->off = off / largest;
    return WF_OK;
}

static wf_status load_and_compare(model_rank *r, void *arg)
{
    pretrained *p = arg;

    GOOD(wf_par_pretrained_load(r->par, r->model, p->folder));
    return compare_logits(r, p);
}

static void logits_are_those_of_transformers(void)
{
    for (int m = 0; m < model_count; m++) {
        char path[FOLDER];
        wf_error error = {WF_OK, ""};
        pretrained p = {.folder = models[m].folder};
        model_test test = {.body = load_and_compare, .arg = &p};

        snprintf(path, sizeof path, "%s/logits.safetensors", p.folder);
        p.file = safetensors_open(path);
        CU_ASSERT_FATAL(p.file != NULL);
        CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
        for (int l = 0; l < LAYOUTS; l++) {
            test.options = layouts[l];
            p.off = 1;
            on_model_ranks(&test);
            CU_ASSERT(p.off < 2e-5);
        }
        printf("%.1e .. ", p.off);
        safetensors_close(p.file);
    }
}

/* A model that has run with other weights keeps no copies of them. */
static wf_status run_load_and_compare(model_rank *r, void *arg)
{
    wf_rank *rank = r->rank;
    const wf_dim dims[] = {wf_dim_batch(6), wf_dim_chunked(2)};
    const int32_t tokens[12] = {1, 2};

    wf_scope_open(r->ctx);
    NEED(wf_nn_gpt_logits(
        r->model, wf_distribute(r->ctx, tokens, WF_I32, 2, dims, wf_par_batch_layout(r->par))));
    wf_scope_close(r->ctx);
    return load_and_compare(r, arg);
}

/* The weights of this Llama are bf16, so that bf16 parameters lose nothing of them. */
static void a_model_that_has_run(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.folder = WEFT_REFERENCE "/hf_llama",
                    .file = safetensors_open(WEFT_REFERENCE "/hf_llama/logits.safetensors")};
    model_test test = {.body = run_load_and_compare, .arg = &p};

    CU_ASSERT_FATAL(p.file != NULL);
    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    for (int l = 0; l < LAYOUTS; l++) {
        test.options = layouts[l];
        test.options.param_dtype = WF_BF16;
        on_model_ranks(&test);
    }
    safetensors_close(p.file);
}

/* Every tensor of one folder is in the other, with the same dtype, shape and bytes. */
static bool same_tensors(const char *a, const char *b)
{
    wf_error error = {WF_OK, ""};
    wf_hf_files files[2];
    int64_t count[2] = {0, 0};
    bool same = true;

    CU_ASSERT_EQUAL(wf_hf_files_open(&files[0], &wf_system_files, a, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_hf_files_open(&files[1], &wf_system_files, b, &error), WF_OK);
    for (int i = 0; i < 2; i++)
        for (int64_t f = 0; f < files[i].count; f++)
            count[i] += files[i].file[f].header.count;
    same = count[0] == count[1] && count[0] > 0;
    for (int64_t f = 0; f < files[0].count; f++)
        for (int64_t k = 0; k < files[0].file[f].header.count && same; k++) {
            const wf_safetensors_entry *x = &files[0].file[f].header.entry[k];
            int64_t other;
            const wf_safetensors_entry *y = wf_hf_find(&files[1], x->name, &other);
            size_t n = (size_t)(x->end - x->begin);
            char *read[2] = {malloc(n + 1), malloc(n + 1)};
            const wf_file *file;

            same = y && x->dtype == y->dtype && x->ndim == y->ndim &&
                   memcmp(x->shape, y->shape, sizeof x->shape) == 0 && read[0] && read[1];
            same = same && wf_hf_reader(&files[0], f, &file, &error) == WF_OK &&
                   wf_file_read(file, read[0], n, files[0].file[f].header.data + x->begin,
                                &error) == WF_OK;
            same = same && wf_hf_reader(&files[1], other, &file, &error) == WF_OK &&
                   wf_file_read(file, read[1], n, files[1].file[other].header.data + y->begin,
                                &error) == WF_OK;
            same = same && memcmp(read[0], read[1], n) == 0;
            if (!same)
                printf("\n    %s differs: %s\n", x->name, error.text);
            free(read[0]);
            free(read[1]);
        }
    wf_hf_files_close(&files[0]);
    wf_hf_files_close(&files[1]);
    return same;
}

static wf_status load_and_save(model_rank *r, void *arg)
{
    pretrained *p = arg;

    GOOD(wf_par_pretrained_load(r->par, r->model, p->folder));
    return wf_par_pretrained_save(r->par, r->model, p->saved, p->dtype, p->like);
}

static void remove_folder(const char *folder)
{
    CU_ASSERT_EQUAL(access(folder, F_OK), 0);
    wf_test_remove(folder);
}

/* What was read comes back to the byte, from any layout; config.json says the same. */
static void a_round_trip_keeps_every_byte(void)
{
    for (int m = 0; m < model_count; m++)
        for (int l = 0; l < LAYOUTS; l++) {
            wf_error error = {WF_OK, ""};
            pretrained p = {
                .folder = models[m].folder, .dtype = models[m].dtype, .like = models[m].folder};
            model_test test = {.options = layouts[l], .body = load_and_save, .arg = &p};
            wf_nn_gpt_config again;

            snprintf(p.saved, sizeof p.saved, "/tmp/weft-pretrained-XXXXXX");
            CU_ASSERT_FATAL(mkdtemp(p.saved) != NULL);
            CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
            on_model_ranks(&test);
            CU_ASSERT(same_tensors(p.folder, p.saved));
            CU_ASSERT_EQUAL(wf_par_pretrained_config(p.saved, &again, &error), WF_OK);
            CU_ASSERT(wf_nn_gpt_same(&again, &test.config));
            remove_folder(p.saved);
        }
}

/* Loading fails on every rank, for a reason that is named. */
static wf_status load_in_vain(model_rank *r, void *arg)
{
    pretrained *p = arg;
    wf_rank *rank = r->rank;

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

/* A folder with this config and file beside it, which is one that the model cannot come from. */
static void fails(const char *ffn, const char *name, const char *content, const char *reason)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.reason = reason};
    model_test test = {.options = {.tp = 2, .dp = 1}, .body = load_in_vain, .arg = &p};
    char folder[] = "/tmp/weft-pretrained-XXXXXX", text[512], path[FOLDER];

    CU_ASSERT_FATAL(mkdtemp(folder) != NULL);
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

/* A head that is tied in the folder and not in the model, and the other way round. */
static void a_tie_is_no_accident(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.folder = WEFT_REFERENCE "/hf_llama_tied",
                    .reason =
                        "has a head tied to its embedding, and the one that it is loaded"};
    model_test test = {.options = {.tp = 2, .dp = 1}, .body = load_in_vain, .arg = &p};

    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    CU_ASSERT_TRUE(test.config.tied);
    test.config.tied = false;
    on_model_ranks(&test);
    p.folder = WEFT_REFERENCE "/hf_llama";
    p.reason = "has a head of its own, and";
    CU_ASSERT_EQUAL(wf_par_pretrained_config(p.folder, &test.config, &error), WF_OK);
    CU_ASSERT_FALSE(test.config.tied);
    test.config.tied = true;
    on_model_ranks(&test);
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

static void a_failed_save_is_told_by_all(void)
{
    wf_error error = {WF_OK, ""};
    pretrained p = {.saved = "/proc/weft-nowhere", .reason = "cannot make directory"};
    model_test test = {.options = {.tp = 2, .dp = 2}, .body = save_in_vain, .arg = &p};

    CU_ASSERT_EQUAL(wf_par_pretrained_config(models[0].folder, &test.config, &error), WF_OK);
    on_model_ranks(&test);
    p.dtype = "f8";
    p.reason = "cannot be written as f8";
    on_model_ranks(&test);
}

static const wf_test tests[] = {
    {"logits are those of transformers", logits_are_those_of_transformers},
    {"a model that has run with other weights", a_model_that_has_run},
    {"a round trip keeps every byte", a_round_trip_keeps_every_byte},
    {"what does not fit is refused", what_does_not_fit_is_refused},
    {"a tie is no accident", a_tie_is_no_accident},
    {"a failed save is told by all", a_failed_save_is_told_by_all},
    {NULL, NULL}};

/* Folders as arguments, of fp32 and each with its logits.safetensors, take the place of the fixtures. */
int main(int argc, char **argv)
{
    static const wf_test of_folders[] = {
        {"logits are those of transformers", logits_are_those_of_transformers},
        {"a round trip keeps every byte", a_round_trip_keeps_every_byte},
        {NULL, NULL}};
    source *given = calloc((size_t)argc, sizeof *given);
    int status;

    if (!given)
        return 1;
    for (int i = 1; i < argc; i++)
        given[i - 1] = (source){argv[i], "f32"};
    if (argc > 1) {
        models = given;
        model_count = argc - 1;
    }
    status = wf_test_main("pretrained", argc > 1 ? of_folders : tests);
    free(given);
    return status;
}
