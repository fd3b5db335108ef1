/* apps/tools/gguf_tokenizer.c - see the header. */
#include "apps/tools/gguf_tokenizer.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The names of a file's special ids, and those of transformers; the first three are of a
   config.json, too. */
static const struct {
    const char *key, *theirs;
} ids[APP_GGUF_IDS] = {{"tokenizer.ggml.bos_token_id", "bos_token"},
                       {"tokenizer.ggml.eos_token_id", "eos_token"},
                       {"tokenizer.ggml.padding_token_id", "pad_token"},
                       {"tokenizer.ggml.unknown_token_id", "unk_token"},
                       {"tokenizer.ggml.eot_token_id", NULL},
                       {"tokenizer.ggml.eom_token_id", NULL}};

/* Keys of tokenizers that are read here, or say nothing of these two kinds, and why; NULL:
   read. */
static const struct {
    const char *key, *reason;
} known[] = {
    {"model", NULL},
    {"pre", NULL},
    {"tokens", NULL},
    {"token_type", NULL},
    {"scores", NULL},
    {"merges", NULL},
    {"add_bos_token", NULL},
    {"add_eos_token", NULL},
    {"add_space_prefix", NULL},
    {"bos_token_id", NULL},
    {"eos_token_id", NULL},
    {"padding_token_id", NULL},
    {"unknown_token_id", NULL},
    {"eot_token_id", NULL},
    {"eom_token_id", NULL},
    {"seperator_token_id", "of encoders"},
    {"separator_token_id", "of encoders"},
    {"cls_token_id", "of encoders"},
    {"mask_token_id", "of encoders"},
    {"token_type_count", "of encoders"},
    {"prefix_token_id", "where programs put what is to be filled in"},
    {"suffix_token_id", "where programs put what is to be filled in"},
    {"middle_token_id", "where programs put what is to be filled in"},
    {"fim_pre_token_id", "where programs put what is to be filled in"},
    {"fim_suf_token_id", "where programs put what is to be filled in"},
    {"fim_mid_token_id", "where programs put what is to be filled in"},
    {"fim_pad_token_id", "where programs put what is to be filled in"},
    {"fim_rep_token_id", "where programs put what is to be filled in"},
    {"fim_sep_token_id", "where programs put what is to be filled in"},
    {"remove_extra_whitespaces", "llama.cpp reads it for unigram tokenizers alone"},
    {"precompiled_charsmap", "llama.cpp reads it for unigram tokenizers alone"},
};

/* A file that is being read. */
typedef struct reading {
    const wf_par_gguf *gguf;
    const char *path;
    app_gguf_tokenizer *t;
    wf_error *error;
} reading;

static wf_status refuse(const reading *c, wf_status why, const char *key, const char *what)
{
    return wf_error_set(c->error, why, "%s: %s: %s", c->path, key, what);
}

/* The value of a key and how many it has; NULL: there is none. A key of another kind is an
   error. */
static const void *find(const reading *c, const char *key, wf_par_gguf_kind kind, bool array,
                        int64_t *count)
{
    const wf_par_gguf_key *found = wf_par_gguf_find(c->gguf, key, kind, array, c->error);

    *count = found ? found->count : 0;
    return found ? found->values : NULL;
}

/* Refuses a key that is not known, by its name; unless it is false. */
static wf_status check_keys(const reading *c)
{
    static const char of[] = "tokenizer.ggml.", named[] = "tokenizer.chat_template.";
    const size_t n = sizeof of - 1;

    for (int64_t i = 0; i < wf_par_gguf_count(c->gguf); i++) {
        const wf_par_gguf_key *k = wf_par_gguf_at(c->gguf, i);
        size_t at = 0;

        if (strncmp(k->key, named, sizeof named - 1) == 0) {
            char name[96];

            snprintf(name, sizeof name, "%.90s", k->key);
            return refuse(c, WF_EUNSUPPORTED, wf_text_visible(name),
                          "a chat template of a name, and a folder is given the one without a "
                          "name alone; --tokenizer none converts the model without them");
        }
        if (strncmp(k->key, of, n) != 0 ||
            (k->kind == WF_PAR_GGUF_BOOL && !k->array && !*(const bool *)k->values))
            continue;
        while (at < sizeof known / sizeof *known && strcmp(known[at].key, k->key + n) != 0)
            at++;
        if (at == sizeof known / sizeof *known) {
            char name[96];

            snprintf(name, sizeof name, "%.90s", k->key);
            return refuse(c, WF_EUNSUPPORTED, wf_text_visible(name),
                          "it is not known what it says of a tokenizer; --tokenizer none "
                          "converts the model without one");
        }
    }
    return WF_OK;
}

static bool bool_of(const reading *c, const char *key, bool standard)
{
    int64_t count;
    const bool *value = find(c, key, WF_PAR_GGUF_BOOL, false, &count);

    return value ? *value : standard;
}

static void take_word(const reading *c, const char *key, char word[64])
{
    int64_t count;
    const wf_par_gguf_text *text = find(c, key, WF_PAR_GGUF_TEXT, false, &count);

    *word = 0;
    if (text)
        snprintf(word, 64, "%.*s", (int)(text->bytes < 63 ? text->bytes : 63), text->text);
}

/* An id of a token that there is. */
static void take_id(reading *c, int i)
{
    int64_t count;
    const int64_t *id = find(c, ids[i].key, WF_PAR_GGUF_I64, false, &count);

    c->t->id[i] = id && *id != UINT32_MAX ? *id : -1;
    if (c->t->id[i] < -1 || c->t->id[i] >= c->t->v.count)
        refuse(c, WF_EDATA, ids[i].key, "there is no such token");
}

/* Texts as a vocabulary has them. */
static wf_tok_vocabulary_text *take_texts(const reading *c, const char *key, int64_t *count)
{
    const wf_par_gguf_text *from = find(c, key, WF_PAR_GGUF_TEXT, true, count);
    wf_tok_vocabulary_text *to = calloc((size_t)*count + 1, sizeof *to);

    for (int64_t i = 0; to && i < *count; i++)
        to[i] = (wf_tok_vocabulary_text){from[i].text, from[i].bytes};
    return to;
}

/* One type of each token, and of characters one score. */
static wf_status take_numbers(const reading *c, bool characters)
{
    wf_tok_vocabulary *v = &c->t->v;
    int64_t n_types, n_scores;
    const int64_t *types =
        find(c, "tokenizer.ggml.token_type", WF_PAR_GGUF_I64, true, &n_types);
    const double *scores = find(c, "tokenizer.ggml.scores", WF_PAR_GGUF_F64, true, &n_scores);

    if (c->error->code != WF_OK)
        return c->error->code;
    if (n_types != v->count)
        return refuse(c, WF_EDATA, "tokenizer.ggml.token_type",
                      "there is not one of each token");
    if (characters && n_scores != v->count)
        return refuse(c, WF_EDATA, "tokenizer.ggml.scores", "there is not one of each token");
    v->types = malloc((size_t)v->count * sizeof *v->types);
    v->scores = characters ? malloc((size_t)v->count * sizeof *v->scores) : NULL;
    if (!v->types || (characters && !v->scores))
        return wf_error_set(c->error, WF_ENOMEM, "%s: no memory for its tokens", c->path);
    for (int32_t i = 0; i < v->count; i++) {
        v->types[i] = types[i] < 0 || types[i] > WF_TOK_VOCABULARY_BYTE ? 0 : (int32_t)types[i];
        if (characters)
            v->scores[i] = (float)scores[i];
    }
    return WF_OK;
}

static wf_status take_lists(const reading *c, int64_t rows)
{
    const bool characters = strcmp(c->t->model, "llama") == 0;
    wf_tok_vocabulary *v = &c->t->v;
    int64_t count, merges;

    v->tokens = take_texts(c, "tokenizer.ggml.tokens", &count);
    v->merges = take_texts(c, "tokenizer.ggml.merges", &merges);
    if (c->error->code != WF_OK)
        return c->error->code;
    if (!v->tokens || !v->merges)
        return wf_error_set(c->error, WF_ENOMEM, "%s: no memory for its tokens", c->path);
    if (count < 1 || count > rows)
        return refuse(
            c, WF_EDATA, "tokenizer.ggml.tokens",
            "there are none, or more than the model has; --tokenizer none converts the "
            "model without a tokenizer");
    if (!characters && strcmp(c->t->model, "gpt2") != 0)
        return refuse(c, WF_EUNSUPPORTED, "tokenizer.ggml.model",
                      "tokenizers are read of \"gpt2\", byte-level BPE, and \"llama\", "
                      "SentencePiece's BPE; --tokenizer none converts the model without one");
    if (!characters && merges == 0)
        return refuse(c, WF_EDATA, "tokenizer.ggml.merges",
                      "there are none, without which byte-level BPE gives a token for each "
                      "byte; --tokenizer none converts the model without a tokenizer");
    v->count = (int32_t)count;
    v->merge_count = characters ? 0 : merges;
    return take_numbers(c, characters);
}

/* Returns true where texts of byte-level BPE begin with a token though no key says so, as in
   llama.cpp. */
static bool begins(const char *pre)
{
    static const char *const names[] = {"llama3", "llama-v3", "llama-bpe", "tekken"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i], pre) == 0)
            return true;
    return false;
}

static wf_status read_tokenizer(reading *c, int64_t rows)
{
    wf_tok_vocabulary *v = &c->t->v;
    bool characters;

    take_word(c, "tokenizer.ggml.model", c->t->model);
    take_word(c, "tokenizer.ggml.pre", c->t->pre);
    if (c->error->code != WF_OK || check_keys(c) != WF_OK || take_lists(c, rows) != WF_OK)
        return c->error->code;
    for (int i = 0; i < APP_GGUF_IDS && c->error->code == WF_OK; i++)
        take_id(c, i);
    characters = strcmp(c->t->model, "llama") == 0;
    v->model = c->t->model;
    v->pre = c->t->pre;
    v->space_in_front = bool_of(c, "tokenizer.ggml.add_space_prefix", characters);
    v->begin = bool_of(c, "tokenizer.ggml.add_bos_token", characters || begins(c->t->pre));
    v->end = bool_of(c, "tokenizer.ggml.add_eos_token", false);
    v->bos = (int32_t)c->t->id[0];
    v->eos = (int32_t)c->t->id[1];
    v->unknown = (int32_t)c->t->id[3];
    return c->error->code == WF_OK
               ? wf_tok_vocabulary_json(v, c->path, &c->t->tokenizer, c->error)
               : c->error->code;
}

static json_t *text_of_id(const reading *c, int64_t id)
{
    return json_stringn(c->t->v.tokens[id].text, (size_t)c->t->v.tokens[id].bytes);
}

/* Makes the other files that transformers ask for. */
static wf_status make_configs(reading *c, int64_t positions)
{
    json_t *tokenizer =
        json_pack("{s:b, s:b, s:b, s:I, s:s}", "add_bos_token", c->t->v.begin, "add_eos_token",
                  c->t->v.end, "clean_up_tokenization_spaces", 0, "model_max_length",
                  (json_int_t)positions, "tokenizer_class", "PreTrainedTokenizerFast");
    json_t *generation = json_object(), *ends = json_array();

    for (int i = 0; i < APP_GGUF_IDS; i++) {
        char key[32];

        if (c->t->id[i] < 0 || !ids[i].theirs)
            continue;
        snprintf(key, sizeof key, "%s_id", ids[i].theirs);
        json_object_set_new(tokenizer, ids[i].theirs, text_of_id(c, c->t->id[i]));
        if (i < 3)
            json_object_set_new(generation, key, json_integer(c->t->id[i]));
    }
    for (int i = 1; i < APP_GGUF_IDS; i++) /* turns and messages end as a text does */
        if ((i == 1 || !ids[i].theirs) && c->t->id[i] >= 0 && c->t->id[i] != c->t->id[1])
            json_array_append_new(ends, json_integer(c->t->id[i]));
    if (json_array_size(ends) > 0) {
        if (c->t->id[1] >= 0)
            json_array_insert_new(ends, 0, json_integer(c->t->id[1]));
        json_object_set(generation, "eos_token_id", ends);
    }
    json_decref(ends);
    c->t->tokenizer_config = json_dumps(tokenizer, JSON_INDENT(2));
    c->t->generation_config = json_dumps(generation, JSON_INDENT(2));
    json_decref(tokenizer);
    json_decref(generation);
    return c->t->tokenizer_config && c->t->generation_config
               ? WF_OK
               : wf_error_set(c->error, WF_ENOMEM, "%s: no memory for its tokens", c->path);
}

static void add_file(const reading *c, const char *name, const char *text, size_t bytes)
{
    c->t->file[c->t->file_count++] = (app_gguf_file){name, text, bytes};
}

wf_status app_gguf_tokenizer_open(app_gguf_tokenizer *t, const wf_par_gguf *gguf,
                                  const char *path, const wf_nn_gpt_config *config,
                                  wf_error *error)
{
    reading c = {gguf, path, t, error};
    const wf_par_gguf_text *template;
    int64_t count;

    *t = (app_gguf_tokenizer){.id = {-1, -1, -1, -1, -1, -1}};
    if (read_tokenizer(&c, config->vocabulary) != WF_OK ||
        make_configs(&c, config->positions) != WF_OK)
        return error->code;
    template = find(&c, "tokenizer.chat_template", WF_PAR_GGUF_TEXT, false, &count);
    add_file(&c, "tokenizer.json", t->tokenizer.data, t->tokenizer.bytes);
    add_file(&c, "tokenizer_config.json", t->tokenizer_config, strlen(t->tokenizer_config));
    add_file(&c, "generation_config.json", t->generation_config, strlen(t->generation_config));
    if (template)
        add_file(&c, "chat_template.jinja", template->text, (size_t) template->bytes);
    return error->code;
}

void app_gguf_tokenizer_close(app_gguf_tokenizer *t)
{
    free(t->v.tokens);
    free(t->v.merges);
    free(t->v.types);
    free(t->v.scores);
    free(t->tokenizer_config);
    free(t->generation_config);
    wf_tok_bytes_free(&t->tokenizer);
    *t = (app_gguf_tokenizer){.file_count = 0};
}
