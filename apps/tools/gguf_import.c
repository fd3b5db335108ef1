/* apps/tools/gguf_import.c - see the header. */
#include "apps/tools/gguf_import.h"
#include "apps/tokenizer/vocabulary.h"
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <weft/weft.h>

typedef struct import {
    wf_par_gguf *g;
    const char *file, *folder;
    const wf_par_gguf_text *tokens;
    const int64_t *types;
    int64_t count;
    wf_error *error;
} import;

/* The value of "tokenizer.ggml.KEY" and how many it has; NULL: there is none of this kind. */
static const void *value_of(const import *m, const char *key, wf_par_gguf_kind kind, bool array,
                            int64_t *count)
{
    char name[128];
    const wf_par_gguf_key *found;

    snprintf(name, sizeof name, "tokenizer.%s", key);
    found = wf_par_gguf_find(m->g, name, kind, array);
    if (found && count)
        *count = found->count;
    return found ? found->values : NULL;
}

static wf_status no_memory(import *m)
{
    return wf_error_set(m->error, WF_ENOMEM, "no memory for the tokenizer of %.900s", m->file);
}

/* A value that is damaged, as a JSON that is missing tells: jansson takes no text that is not UTF-8. */
static wf_status damaged(import *m, const char *key)
{
    return wf_error_set(
        m->error, WF_EDATA,
        "%.900s: key \"tokenizer.ggml.%s\" has a text that is no UTF-8, or is of "
        "no token",
        m->file, key);
}

static json_t *text_of(const wf_par_gguf_text *text)
{
    return json_stringn(text->text, (size_t)text->bytes);
}

/* Ids of a key; -1: there is none. */
static int64_t id_of(const import *m, const char *key)
{
    const int64_t *id = value_of(m, key, WF_PAR_GGUF_I64, false, NULL);

    return id && *id >= 0 && *id < m->count ? *id : -1;
}

static bool is_added(const import *m, int64_t id)
{
    return m->types[id] == APP_VOCABULARY_CONTROL || m->types[id] == APP_VOCABULARY_USER ||
           m->types[id] == APP_VOCABULARY_UNKNOWN;
}

static json_t *added_tokens(import *m)
{
    json_t *list = json_array();

    for (int64_t id = 0; id < m->count; id++) {
        bool special = m->types[id] != APP_VOCABULARY_USER;
        json_t *text;

        if (!is_added(m, id))
            continue;
        text = text_of(&m->tokens[id]);
        if (!text) {
            damaged(m, "tokens");
            break;
        }
        json_array_append_new(list, json_pack("{s:I, s:o, s:b, s:b, s:b, s:b, s:b}", "id",
                                              (json_int_t)id, "content", text, "single_word", 0,
                                              "lstrip", 0, "rstrip", 0, "normalized", 0,
                                              "special", (int)special));
    }
    return list;
}

/* Tokens that are pieces of words, with their ids, and added ones before the last of those: others number added
   tokens that are not here anew, behind all that are. Those that no text gets fill a file up, and are left out. */
static json_t *vocabulary(import *m)
{
    json_t *object = json_object();
    int64_t last = m->count - 1;

    while (last > 0 && (is_added(m, last) || m->types[last] == APP_VOCABULARY_UNUSED))
        last--;
    for (int64_t id = 0; id < m->count && m->error->code == WF_OK; id++) {
        const wf_par_gguf_text *t = &m->tokens[id];

        if (m->types[id] == APP_VOCABULARY_UNUSED || (is_added(m, id) && id > last))
            continue;
        if (json_object_setn_new(object, t->text, (size_t)t->bytes,
                                 json_integer((json_int_t)id)) != 0)
            damaged(m, "tokens");
    }
    return object;
}

static json_t *merges(import *m)
{
    int64_t count = 0;
    const wf_par_gguf_text *list = value_of(m, "ggml.merges", WF_PAR_GGUF_TEXT, true, &count);
    json_t *array = json_array();

    for (int64_t i = 0; i < count && m->error->code == WF_OK; i++)
        if (json_array_append_new(array, text_of(&list[i])) != 0)
            damaged(m, "merges");
    return array;
}

static json_t *byte_level(bool space)
{
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space",
                     (int)space, "trim_offsets", 1, "use_regex", 0);
}

static json_t *pre_tokenizer(const app_vocabulary_split *split, bool space)
{
    json_t *steps = json_array();

    if (split->digits)
        json_array_append_new(
            steps, json_pack("{s:s, s:b}", "type", "Digits", "individual_digits", 1));
    json_array_append_new(steps, json_pack("{s:s, s:{s:s}, s:s, s:b}", "type", "Split",
                                           "pattern", "Regex", split->pattern, "behavior",
                                           "Isolated", "invert", 0));
    json_array_append_new(steps, byte_level(space));
    return json_pack("{s:s, s:o}", "type", "Sequence", "pretokenizers", steps);
}

/* Where the file says so, each text begins with the first token. */
static json_t *post_processor(import *m)
{
    const bool *begin = value_of(m, "ggml.add_bos_token", WF_PAR_GGUF_BOOL, false, NULL);
    int64_t bos = id_of(m, "ggml.bos_token_id");
    json_t *text, *special, *sequence, *object;

    if (!begin || !*begin || bos < 0)
        return json_null();
    text = text_of(&m->tokens[bos]);
    special = json_pack("{s:{s:O, s:i}}", "SpecialToken", "id", text, "type_id", 0);
    sequence = json_pack("{s:{s:s, s:i}}", "Sequence", "id", "A", "type_id", 0);
    object = json_pack("{s:s, s:[O, O], s:[O, O], s:{s:{s:O, s:[I], s:[O]}}}", "type",
                       "TemplateProcessing", "single", special, sequence, "pair", special,
                       sequence, "special_tokens", json_string_value(text), "id", text, "ids",
                       (json_int_t)bos, "tokens", text);
    json_decref(special);
    json_decref(sequence);
    json_decref(text);
    return object;
}

static json_t *normalizer(const app_vocabulary_split *split)
{
    return split->nfc ? json_pack("{s:s}", "type", "NFC") : json_null();
}

static json_t *tokenizer(import *m, const app_vocabulary_split *split)
{
    const bool *space = value_of(m, "ggml.add_space_prefix", WF_PAR_GGUF_BOOL, false, NULL);
    json_t *model =
        json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}", "type", "BPE",
                  "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", 0, "byte_fallback", 0, "ignore_merges", (int)split->whole_words,
                  "vocab", vocabulary(m), "merges", merges(m));

    return json_pack("{s:s, s:n, s:n, s:o, s:o, s:o, s:o, s:o, s:o}", "version", "1.0",
                     "truncation", "padding", "added_tokens", added_tokens(m), "normalizer",
                     normalizer(split), "pre_tokenizer", pre_tokenizer(split, space && *space),
                     "post_processor", post_processor(m), "decoder", byte_level(false), "model",
                     model);
}

/* A file of the folder, whole or not at all. */
static wf_status write_file(import *m, const char *name, const char *text, size_t bytes)
{
    char path[4400], partial[4400];
    FILE *file;
    bool good;

    snprintf(path, sizeof path, "%.4000s/%s", m->folder, name);
    snprintf(partial, sizeof partial, "%.4000s/%s.partial", m->folder, name);
    file = fopen(partial, "we");
    good = file && fwrite(text, 1, bytes, file) == bytes;
    if (file)
        good = fclose(file) == 0 && good;
    if (good && rename(partial, path) == 0)
        return WF_OK;
    return wf_error_set(m->error, WF_EIO, "%s: %s", path, strerror(errno));
}

/* Takes the object. */
static wf_status write_json(import *m, const char *name, json_t *object)
{
    char *text = object && m->error->code == WF_OK ? json_dumps(object, JSON_INDENT(1)) : NULL;

    json_decref(object);
    if (text)
        write_file(m, name, text, strlen(text));
    else if (m->error->code == WF_OK)
        no_memory(m);
    free(text);
    return m->error->code;
}

/* The tokens and their types, and how texts are cut in words. */
static wf_status find_tokenizer(import *m, app_vocabulary_split *split)
{
    const wf_par_gguf_text *model = value_of(m, "ggml.model", WF_PAR_GGUF_TEXT, false, NULL);
    const wf_par_gguf_text *pre = value_of(m, "ggml.pre", WF_PAR_GGUF_TEXT, false, NULL);
    char name[64];
    int64_t types = 0;

    m->tokens = value_of(m, "ggml.tokens", WF_PAR_GGUF_TEXT, true, &m->count);
    m->types = value_of(m, "ggml.token_type", WF_PAR_GGUF_I64, true, &types);
    if (!model || !m->tokens || !m->types || types != m->count)
        return wf_error_set(m->error, WF_EDATA,
                            "%.900s has no tokenizer, or one without \"tokenizer.ggml.model\", "
                            "\".tokens\" or a \".token_type\" for each; --tokenizer none "
                            "converts it without",
                            m->file);
    if (model->bytes != 4 || memcmp(model->text, "gpt2", 4) != 0)
        return wf_error_set(m->error, WF_EUNSUPPORTED,
                            "%.900s: key \"tokenizer.ggml.model\" is not gpt2, byte-level BPE, "
                            "which alone is read; --tokenizer none converts the model without "
                            "one, and its tokenizer.json or tokenizer.model goes beside it",
                            m->file);
    if (pre && app_vocabulary_split_of(pre->text, (size_t)pre->bytes, split))
        return WF_OK;
    snprintf(name, sizeof name, "%.*s", pre && pre->bytes < 60 ? (int)pre->bytes : 0,
             pre ? pre->text : "");
    return wf_error_set(
        m->error, WF_EUNSUPPORTED,
        "%.900s: key \"tokenizer.ggml.pre\" is \"%s\", which is no known way to "
        "cut texts in words; --tokenizer none converts the model without a "
        "tokenizer",
        m->file, wf_text_visible(name));
}

static json_t *token(const import *m, const char *key)
{
    int64_t id = id_of(m, key);

    return id < 0 ? json_null() : text_of(&m->tokens[id]);
}

static json_t *id(const import *m, const char *key)
{
    int64_t value = id_of(m, key);

    return value < 0 ? json_null() : json_integer((json_int_t)value);
}

static wf_status write_tokenizer(import *m)
{
    const wf_par_gguf_text *template =
        value_of(m, "chat_template", WF_PAR_GGUF_TEXT, false, NULL);
    app_vocabulary_split split;

    if (find_tokenizer(m, &split) != WF_OK ||
        write_json(m, "tokenizer.json", tokenizer(m, &split)) != WF_OK)
        return m->error->code;
    write_json(m, "tokenizer_config.json",
               json_pack("{s:s, s:o, s:o, s:o}", "tokenizer_class", "PreTrainedTokenizerFast",
                         "bos_token", token(m, "ggml.bos_token_id"), "eos_token",
                         token(m, "ggml.eos_token_id"), "pad_token",
                         token(m, "ggml.padding_token_id")));
    if (template && m->error->code == WF_OK)
        write_file(m, "chat_template.jinja", template->text, (size_t) template->bytes);
    return m->error->code;
}

wf_status app_gguf_import(const char *file, const char *folder, bool tokenizer, wf_error *error)
{
import m = {.file = file, .folder = folder, .error = error };

    m.g = wf_par_gguf_open(file, error);
    if (m.g && mkdir(folder, 0755) != 0 && errno != EEXIST)
        wf_error_set(error, WF_EIO, "cannot make directory %.900s: %s", folder,
                     strerror(errno));
    if (error->code == WF_OK && tokenizer)
        write_tokenizer(&m);
    if (error->code == WF_OK)
        write_json(&m, "config.json",
                   json_pack("{s:o, s:o, s:o}", "bos_token_id", id(&m, "ggml.bos_token_id"),
                             "eos_token_id", id(&m, "ggml.eos_token_id"), "pad_token_id",
                             id(&m, "ggml.padding_token_id")));
    wf_par_gguf_close(m.g);
    return error->code;
}
