/* nn/text/chat/sources.c - see the header. */
#include "nn/text/chat/sources.h"
#include "nn/text/tokenizer/load_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wf_chat_sources_free(wf_chat_sources *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->item[i].name);
        free(s->item[i].text);
        free(s->item[i].file);
    }
    s->count = 0;
}

const wf_chat_source *wf_chat_source_find(const wf_chat_sources *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->item[i].name, name) == 0)
            return &s->item[i];
    return NULL;
}

/* Takes a template's text over. */
static wf_status add(wf_chat_sources *s, const char *name, size_t name_bytes, char *text,
                     size_t bytes, const char *file, wf_error *error)
{
    wf_chat_source one = {strndup(name, name_bytes), text, bytes, strdup(file)};

    if (!one.name || !one.text || !one.file || s->count == WF_CHAT_MOST_SOURCES ||
        wf_chat_source_find(s, one.name)) {
        bool memory = !one.name || !one.text || !one.file;

        wf_error_set(error, memory ? WF_ENOMEM : WF_EDATA,
                     memory ? "%s: out of memory"
                            : "%s: there are more than %d chat templates, or two of one name",
                     file, WF_CHAT_MOST_SOURCES);
        free(one.name);
        free(one.text);
        free(one.file);
        return error->code;
    }
    s->item[s->count++] = one;
    return WF_OK;
}

static wf_status add_file(wf_chat_sources *s, const char *path, const char *name,
                          size_t name_bytes, wf_error *error)
{
    char *text;
    size_t bytes;

    if (wf_tok_file_read(path, &text, &bytes, error) != WF_OK)
        return error->code;
    return add(s, name, name_bytes, text, bytes, path, error);
}

/* Adds the files of additional_chat_templates. */
static wf_status add_folder(wf_chat_sources *s, const char *folder, wf_error *error)
{
    char path[WF_TOK_MOST_PATH];
    struct dirent *entry;
    DIR *dir;

    snprintf(path, sizeof path, "%.3500s/additional_chat_templates", folder);
    dir = opendir(path);
    if (!dir)
        return errno == ENOENT || errno == ENOTDIR
                   ? WF_OK
                   : wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    while (error->code == WF_OK && (entry = readdir(dir))) {
        size_t n = strlen(entry->d_name);

        if (n <= 6 || strcmp(entry->d_name + n - 6, ".jinja") != 0)
            continue;
        snprintf(path, sizeof path, "%.3500s/additional_chat_templates/%s", folder,
                 entry->d_name);
        add_file(s, path, entry->d_name, n - 6, error);
    }
    closedir(dir);
    return error->code;
}

static wf_status add_value(wf_chat_sources *s, const wf_text_json *json, const char *name,
                           size_t name_bytes, uint32_t value)
{
    size_t bytes;
    const char *found = wf_text_json_text(json, value, &bytes);
    char *text = malloc(bytes + 1);

    if (text) {
        memcpy(text, found, bytes);
        text[bytes] = '\0';
    }
    return add(s, name, name_bytes, text, bytes, json->name, json->error);
}

/* "chat_template" of tokenizer_config.json. */
static wf_status of_config(wf_chat_sources *s, const wf_text_json *json)
{
    uint32_t value = wf_text_json_is(json, 0) == WF_TEXT_JSON_OBJECT
                         ? wf_text_json_get(json, 0, "chat_template")
                         : WF_TEXT_JSON_NONE;

    if (json->error->code != WF_OK || value == WF_TEXT_JSON_NONE)
        return json->error->code;
    if (wf_text_json_is(json, value) == WF_TEXT_JSON_STRING)
        return add_value(s, json, "default", 7, value);
    if (wf_text_json_is(json, value) != WF_TEXT_JSON_ARRAY)
        return wf_text_json_refuse(json, value, WF_EDATA,
                                   "is neither a text nor a list of templates");
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;
         i = wf_text_json_after(json, i)) {
        uint32_t name = wf_text_json_need(json, i, "name", WF_TEXT_JSON_STRING);
        uint32_t text = name == WF_TEXT_JSON_NONE
                            ? name
                            : wf_text_json_need(json, i, "template", WF_TEXT_JSON_STRING);
        size_t bytes;
        const char *word =
            text == WF_TEXT_JSON_NONE ? NULL : wf_text_json_text(json, name, &bytes);

        if (word)
            add_value(s, json, word, bytes, text);
    }
    return json->error->code;
}

/* Opens a file of JSON where it is there. */
static bool open_json(const char *folder, const char *name, char path[WF_TOK_MOST_PATH],
                      wf_text_json *json, wf_error *error)
{
    char *text;
    size_t bytes;

    *json = (wf_text_json){.name = path, .error = error};
    snprintf(path, WF_TOK_MOST_PATH, "%.4000s/%s", folder, name);
    return wf_tok_file_there(path) && wf_tok_file_read(path, &text, &bytes, error) == WF_OK &&
           wf_text_json_open(json, path, text, bytes, error) == WF_OK;
}

wf_status wf_chat_sources_read(const char *folder, wf_chat_sources *s, wf_error *error)
{
    char path[WF_TOK_MOST_PATH];
    wf_text_json json;

    *s = (wf_chat_sources){.count = 0};
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (wf_tok_file_there(path))
        add_file(s, path, "default", 7, error);
    if (error->code == WF_OK)
        add_folder(s, folder, error);
    if (error->code != WF_OK || s->count)
        return error->code;
    if (open_json(folder, "tokenizer_config.json", path, &json, error))
        of_config(s, &json);
    wf_text_json_close(&json);
    return error->code;
}

void wf_chat_specials_free(wf_chat_specials *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->item[i].name);
        free(s->item[i].text);
    }
    s->count = 0;
}

/* Sets or replaces a special token; a text of NULL says that there is none, though its class
   has one. */
static void set(wf_chat_specials *s, const char *name, size_t name_bytes, const char *text,
                size_t bytes, wf_error *error)
{
    wf_chat_special one = {strndup(name, name_bytes), text ? strndup(text, bytes) : NULL};
    int i = 0;

    while (one.name && i < s->count && strcmp(s->item[i].name, one.name) != 0)
        i++;
    if (!one.name || (text && !one.text) || i == WF_CHAT_MOST_SPECIAL) {
        wf_error_set(error, one.name && (!text || one.text) ? WF_EDATA : WF_ENOMEM,
                     "there is no room for the special token %.*s", (int)name_bytes, name);
        free(one.name);
        free(one.text);
        return;
    }
    if (i < s->count) {
        free(s->item[i].name);
        free(s->item[i].text);
    }
    s->item[i] = one;
    s->count += i == s->count;
}

/* Takes the keys that end in _token, whose value is a text or an object with one, and those of
   the objects that have more. */
static void take(wf_chat_specials *s, const wf_text_json *json, uint32_t object)
{
    for (uint32_t i = object + 1; i < json->values[object].next && json->error->code == WF_OK;
         i = wf_text_json_after(json, i + 1)) {
        uint32_t value = i + 1;
        size_t bytes, text_bytes;
        const char *key = wf_text_json_text(json, i, &bytes), *text;

        if (wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT &&
            (wf_text_json_equals(json, i, "extra_special_tokens") ||
             wf_text_json_equals(json, i, "model_specific_special_tokens"))) {
            take(s, json, value);
            continue;
        }
        if (bytes < 6 || memcmp(key + bytes - 6, "_token", 6) != 0)
            continue;
        if (wf_text_json_is(json, value) == WF_TEXT_JSON_NULL)
            set(s, key, bytes, NULL, 0, json->error);
        if (wf_text_json_is(json, value) == WF_TEXT_JSON_OBJECT)
            value = wf_text_json_need(json, value, "content", WF_TEXT_JSON_STRING);
        if (value == WF_TEXT_JSON_NONE || wf_text_json_is(json, value) != WF_TEXT_JSON_STRING)
            continue; /* add_bos_token and the like */
        text = wf_text_json_text(json, value, &text_bytes);
        set(s, key, bytes, text, text_bytes, json->error);
    }
}

/* Sets what transformers gives a class of tokenizers where tokenizer_config.json does not say
   it. */
static void take_standard(wf_chat_specials *s, const wf_text_json *json)
{
    static const struct {
        const char *class, *name, *text;
    } standard[] = {
        {"Llama", "bos_token", "<s>"},           {"Llama", "eos_token", "</s>"},
        {"Llama", "unk_token", "<unk>"},         {"GPT2", "bos_token", "<|endoftext|>"},
        {"GPT2", "eos_token", "<|endoftext|>"},  {"GPT2", "unk_token", "<|endoftext|>"},
        {"Qwen2", "eos_token", "<|endoftext|>"}, {"Qwen2", "pad_token", "<|endoftext|>"},
        {"Qwen2", "unk_token", "<|endoftext|>"}, {"Gemma", "bos_token", "<bos>"},
        {"Gemma", "eos_token", "<eos>"},         {"Gemma", "unk_token", "<unk>"},
        {"Gemma", "pad_token", "<pad>"},         {"Gemma", "mask_token", "<mask>"}};
    uint32_t value = wf_text_json_get(json, 0, "tokenizer_class");
    char class[64];

    for (size_t i = 0; value != WF_TEXT_JSON_NONE && i < sizeof standard / sizeof *standard &&
                       json->error->code == WF_OK;
         i++) {
        bool fits = false;

        for (int fast = 0; fast < 2; fast++) {
            snprintf(class, sizeof class, "%sTokenizer%s", standard[i].class,
                     fast ? "Fast" : "");
            fits = fits || (wf_text_json_is(json, value) == WF_TEXT_JSON_STRING &&
                            wf_text_json_equals(json, value, class));
        }
        if (fits)
            set(s, standard[i].name, strlen(standard[i].name), standard[i].text,
                strlen(standard[i].text), json->error);
    }
}

wf_status wf_chat_specials_read(const char *folder, wf_chat_specials *s, wf_error *error)
{
    char path[WF_TOK_MOST_PATH];
    bool decoder = false;
    wf_text_json json;

    *s = (wf_chat_specials){.count = 0};
    if (open_json(folder, "tokenizer_config.json", path, &json, error) &&
        wf_text_json_is(&json, 0) == WF_TEXT_JSON_OBJECT) {
        take_standard(s, &json);
        take(s, &json, 0);
        decoder = wf_text_json_get(&json, 0, "added_tokens_decoder") != WF_TEXT_JSON_NONE;
    }
    wf_text_json_close(&json);
    if (error->code != WF_OK ||
        decoder) /* transformers reads the other file for older folders alone */
        return error->code;
    if (open_json(folder, "special_tokens_map.json", path, &json, error) &&
        wf_text_json_is(&json, 0) == WF_TEXT_JSON_OBJECT)
        take(s, &json, 0);
    wf_text_json_close(&json);
    return error->code;
}
