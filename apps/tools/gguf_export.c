/* apps/tools/gguf_export.c - see the header. */
#include "apps/tools/gguf_export.h"
#include "core/files/input.h"
#include "apps/program.h"
#include "nn/text/chat/sources.h"
#include "parallel/generate/model.h"
#include "nn/text/tokenizer/vocabulary.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct {
    const char *name;
    wf_par_gguf_type type;
} types[] = {
    {"f32", WF_PAR_GGUF_FLOAT32}, {"f16", WF_PAR_GGUF_FLOAT16}, {"q8_0", WF_PAR_GGUF_Q8_0}};
enum { TYPES = sizeof types / sizeof *types, MOST_KEYS = 24 + WF_CHAT_MOST_SOURCES };

static int type_number(const char *name)
{
    int i = 0;

    while (i < TYPES && strcmp(types[i].name, name) != 0)
        i++;
    return i;
}

/* A file that is there and is none of GGUF was named by mistake. */
static bool another_file(const char *path)
{
    FILE *file = wf_input_open(path);
    char magic[4];
    bool other;

    if (!file)
        return false;
    other = fread(magic, 1, 4, file) != 4 || memcmp(magic, "GGUF", 4) != 0;
    fclose(file);
    return other;
}

wf_status app_gguf_export_check(const app_gguf_export *e, wf_error *error)
{
    const char *flag = e->type ? "--gguf-type" : e->tokenizer ? "--tokenizer" : NULL;

    if (!e->file)
        return flag ? wf_error_set(error, WF_EINVAL,
                                   "%s is for the file that --gguf names, and there is none",
                                   flag)
                    : WF_OK;
    if (!*e->file)
        return wf_error_set(error, WF_EINVAL, "the name of the file of --gguf is empty");
    if (e->type && type_number(e->type) == TYPES)
        return wf_error_set(error, WF_EINVAL, "--gguf-type %s is none of f32, f16 and q8_0",
                            e->type);
    if (another_file(e->file))
        return wf_error_set(error, WF_EINVAL,
                            "%s is there, is no GGUF file, and would be written over: name "
                            "another file",
                            e->file);
    if (!e->overwrite && access(e->file, F_OK) == 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s is there, and would be written over: name another file, or "
                            "give --overwrite",
                            e->file);
    return WF_OK;
}

/* The keys of a file beside its tensors, and the memory that they lie in. */
typedef struct keys {
    wf_par_gguf_key list[MOST_KEYS];
    int count;
    wf_tok *tokenizer;
    wf_tok_vocabulary v;
    wf_par_gguf_text model, pre, template[WF_CHAT_MOST_SOURCES],
        template_name[WF_CHAT_MOST_SOURCES];
    int32_t ids[4];
    wf_chat_sources templates;
    char template_key[WF_CHAT_MOST_SOURCES][128];
} keys;

static void add(keys *k, const char *key, wf_par_gguf_kind kind, int64_t array,
                const void *values)
{
    k->list[k->count++] = (wf_par_gguf_key){key, kind, array > 0, array, values};
}

static void add_ids(keys *k)
{
    static const char *const names[] = {
        "tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"};

    k->ids[0] = wf_tok_bos(k->tokenizer);
    k->ids[1] = wf_tok_eos(k->tokenizer);
    k->ids[2] = k->v.unknown;
    k->ids[3] = wf_tok_pad(k->tokenizer);
    for (int i = 0; i < 4; i++)
        if (k->ids[i] >= 0)
            add(k, names[i], WF_PAR_GGUF_U32, 0, &k->ids[i]);
}

static wf_par_gguf_text text_of(const char *text)
{
    return (wf_par_gguf_text){text, (int64_t)strlen(text)};
}

static void add_vocabulary(keys *k)
{
    const wf_tok_vocabulary *v = &k->v;

    k->model = text_of(v->model);
    k->pre = text_of(v->pre);
    add(k, "tokenizer.ggml.model", WF_PAR_GGUF_TEXT, 0, &k->model);
    add(k, "tokenizer.ggml.pre", WF_PAR_GGUF_TEXT, 0, &k->pre);
    add(k, "tokenizer.ggml.tokens", WF_PAR_GGUF_TEXT, v->count, v->tokens);
    add(k, "tokenizer.ggml.token_type", WF_PAR_GGUF_I32, v->count, v->types);
    if (v->scores)
        add(k, "tokenizer.ggml.scores", WF_PAR_GGUF_F32, v->count, v->scores);
    if (v->merge_count)
        add(k, "tokenizer.ggml.merges", WF_PAR_GGUF_TEXT, v->merge_count, v->merges);
    add_ids(k);
    add(k, "tokenizer.ggml.add_space_prefix", WF_PAR_GGUF_BOOL, 0, &v->space_in_front);
    add(k, "tokenizer.ggml.add_bos_token", WF_PAR_GGUF_BOOL, 0, &v->begin);
    add(k, "tokenizer.ggml.add_eos_token", WF_PAR_GGUF_BOOL, 0, &v->end);
}

/* llama.cpp asks for the kind of a tokenizer, and by this name for none. */
static void add_no_vocabulary(keys *k)
{
    k->model = text_of("none");
    add(k, "tokenizer.ggml.model", WF_PAR_GGUF_TEXT, 0, &k->model);
}

/* Adds chat templates as llama.cpp names them: the default one, and others by their names. */
static void add_templates(keys *k)
{
    int named = 0;

    for (int i = 0; i < k->templates.count; i++) {
        const wf_chat_source *source = &k->templates.item[i];

        k->template[i] = (wf_par_gguf_text){source->text, (int64_t)source->bytes};
        if (strcmp(source->name, "default") == 0) {
            add(k, "tokenizer.chat_template", WF_PAR_GGUF_TEXT, 0, &k->template[i]);
            continue;
        }
        snprintf(k->template_key[i], sizeof k->template_key[i],
                 "tokenizer.chat_template.%.100s", source->name);
        add(k, k->template_key[i], WF_PAR_GGUF_TEXT, 0, &k->template[i]);
        k->template_name[named++] = text_of(source->name);
    }
    if (named)
        add(k, "tokenizer.chat_templates", WF_PAR_GGUF_TEXT, named, k->template_name);
}

/* Tokenizer and chat template of a folder, or of a file and what lies beside it. */
static wf_status open_keys(keys *k, const char *path, int64_t rows, wf_error *error)
{
    wf_error why = {WF_OK, ""};
    char folder[4096];
    struct stat s;

    if (wf_tok_open(path, &k->tokenizer, error) != WF_OK)
        return error->code;
    if (wf_tok_vocabulary_open(k->tokenizer, rows, &k->v, &why) != WF_OK)
        return wf_error_set(error, why.code,
                            "%.200s: %.600s. --tokenizer PATH names another one, --tokenizer "
                            "none writes the file without",
                            path, why.text);
    add_vocabulary(k);
    snprintf(folder, sizeof folder, "%s", path);
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        snprintf(folder, sizeof folder, "%.*s.",
                 strrchr(path, '/') ? (int)(strrchr(path, '/') + 1 - path) : 0, path);
    if (wf_chat_sources_read(folder, &k->templates, error) == WF_OK)
        add_templates(k);
    return error->code;
}

static void close_keys(keys *k)
{
    wf_tok_vocabulary_close(&k->v);
    wf_tok_close(k->tokenizer);
    wf_chat_sources_free(&k->templates);
}

/* The file's name without its folders and what ends it. */
static char *name_of(const char *file, char name[256])
{
    const char *slash = strrchr(file, '/'), *from = slash ? slash + 1 : file;
    size_t n = strlen(from);

    if (wf_gen_model_named_gguf(from))
        n -= 5;
    snprintf(name, 256, "%.*s", n < 255 ? (int)n : 255, from);
    return name;
}

wf_status app_gguf_export_write(const app_gguf_export *e, const wf_gen_model *source,
                                wf_context *ctx, wf_error *error)
{
    const char *path = e->tokenizer ? e->tokenizer : source->like;
    wf_nn_gpt *model = wf_nn_gpt_new(ctx, &source->config);
    keys k = {.count = 0};
    char name[256];

    if (!model)
        return wf_error_set(error, wf_context_status(ctx), "%s", wf_context_error(ctx)->text);
    if (!*path)
        wf_error_set(
            error, WF_EINVAL,
            "%s has no tokenizer beside it, which llama.cpp needs: --tokenizer PATH names "
            "one, --tokenizer none writes the file without",
            source->path);
    else if (strcmp(path, "none") != 0)
        open_keys(&k, path, source->config.vocabulary, error);
    else
        add_no_vocabulary(&k);
    if (error->code == WF_OK) {
        const wf_par_gguf_options options = {.folder = source->checkpoint ? NULL : source->path,
                                             .checkpoint = source->checkpoint,
                                             .type = e->type ? types[type_number(e->type)].type
                                                             : WF_PAR_GGUF_STORED,
                                             .name = name_of(e->file, name),
                                             .key_count = k.count,
                                             .key = k.list};

        wf_par_pretrained_save_gguf(model, &options, e->file, error);
    }
    close_keys(&k);
    wf_nn_free(&model->base);
    return error->code;
}
