/* apps/chat/sources.c - see the header. */
#include "apps/chat/sources.h"
#include "apps/tokenizer/load_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void app_chat_sources_free(app_chat_sources *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->item[i].name);
        free(s->item[i].text);
        free(s->item[i].file);
    }
    s->count = 0;
}

const app_chat_source *app_chat_source_find(const app_chat_sources *s, const char *name)
{
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->item[i].name, name) == 0)
            return &s->item[i];
    return NULL;
}

/* Takes a template's text over. */
static wf_status add(app_chat_sources *s, const char *name, size_t name_bytes, char *text,
                     size_t bytes, const char *file, wf_error *error)
{
    app_chat_source one = {strndup(name, name_bytes), text, bytes, strdup(file)};

    if (!one.name || !one.text || !one.file || s->count == APP_CHAT_MOST_SOURCES ||
        app_chat_source_find(s, one.name)) {
        bool memory = !one.name || !one.text || !one.file;

        wf_error_set(error, memory ? WF_ENOMEM : WF_EDATA,
                     memory ? "%s: out of memory"
                            : "%s: there are more than %d chat templates, or two of one name",
                     file, APP_CHAT_MOST_SOURCES);
        free(one.name);
        free(one.text);
        free(one.file);
        return error->code;
    }
    s->item[s->count++] = one;
    return WF_OK;
}

static wf_status add_file(app_chat_sources *s, const char *path, const char *name,
                          size_t name_bytes, wf_error *error)
{
    char *text;
    size_t bytes;

    if (app_file_read(path, &text, &bytes, error) != WF_OK)
        return error->code;
    return add(s, name, name_bytes, text, bytes, path, error);
}

/* The files of additional_chat_templates. */
static wf_status add_folder(app_chat_sources *s, const char *folder, wf_error *error)
{
    char path[APP_MOST_PATH];
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

static wf_status add_value(app_chat_sources *s, const app_json *json, const char *name,
                           size_t name_bytes, uint32_t value)
{
    size_t bytes;
    const char *found = app_json_text(json, value, &bytes);
    char *text = malloc(bytes + 1);

    if (text) {
        memcpy(text, found, bytes);
        text[bytes] = '\0';
    }
    return add(s, name, name_bytes, text, bytes, json->name, json->error);
}

/* "chat_template" of tokenizer_config.json. */
static wf_status of_config(app_chat_sources *s, const app_json *json)
{
    uint32_t value = app_json_is(json, 0) == APP_JSON_OBJECT
                         ? app_json_get(json, 0, "chat_template")
                         : APP_JSON_NONE;

    if (json->error->code != WF_OK || value == APP_JSON_NONE)
        return json->error->code;
    if (app_json_is(json, value) == APP_JSON_STRING)
        return add_value(s, json, "default", 7, value);
    if (app_json_is(json, value) != APP_JSON_ARRAY)
        return app_json_refuse(json, value, WF_EDATA,
                               "is neither a text nor a list of templates");
    for (uint32_t i = value + 1; i < json->values[value].next && json->error->code == WF_OK;
         i = app_json_after(json, i)) {
        uint32_t name = app_json_need(json, i, "name", APP_JSON_STRING);
        uint32_t text =
            name == APP_JSON_NONE ? name : app_json_need(json, i, "template", APP_JSON_STRING);
        size_t bytes;
        const char *word = text == APP_JSON_NONE ? NULL : app_json_text(json, name, &bytes);

        if (word)
            add_value(s, json, word, bytes, text);
    }
    return json->error->code;
}

/* Opens a file of JSON where it is there. */
static bool open_json(const char *folder, const char *name, char path[APP_MOST_PATH],
                      app_json *json, wf_error *error)
{
    char *text;
    size_t bytes;

    *json = (app_json){.name = path, .error = error};
    snprintf(path, APP_MOST_PATH, "%.4000s/%s", folder, name);
    return app_file_there(path) && app_file_read(path, &text, &bytes, error) == WF_OK &&
           app_json_open(json, path, text, bytes, error) == WF_OK;
}

wf_status app_chat_sources_read(const char *folder, app_chat_sources *s, wf_error *error)
{
    char path[APP_MOST_PATH];
    app_json json;

    *s = (app_chat_sources){.count = 0};
    snprintf(path, sizeof path, "%.4000s/chat_template.jinja", folder);
    if (app_file_there(path))
        add_file(s, path, "default", 7, error);
    if (error->code == WF_OK)
        add_folder(s, folder, error);
    if (error->code != WF_OK || s->count)
        return error->code;
    if (open_json(folder, "tokenizer_config.json", path, &json, error))
        of_config(s, &json);
    app_json_close(&json);
    return error->code;
}

void app_chat_specials_free(app_chat_specials *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->item[i].name);
        free(s->item[i].text);
    }
    s->count = 0;
}

/* Sets a special token, in place of one that it has; a text of NULL says that there is none, though its class has one. */
static void set(app_chat_specials *s, const char *name, size_t name_bytes, const char *text,
                size_t bytes, wf_error *error)
{
    app_chat_special one = {strndup(name, name_bytes), text ? strndup(text, bytes) : NULL};
    int i = 0;

    while (one.name && i < s->count && strcmp(s->item[i].name, one.name) != 0)
        i++;
    if (!one.name || (text && !one.text) || i == APP_CHAT_MOST_SPECIAL) {
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

/* Takes the keys that end in _token, whose value is a text or an object with one, and those of the objects that have more. */
static void take(app_chat_specials *s, const app_json *json, uint32_t object)
{
    for (uint32_t i = object + 1; i < json->values[object].next && json->error->code == WF_OK;
         i = app_json_after(json, i + 1)) {
        uint32_t value = i + 1;
        size_t bytes, text_bytes;
        const char *key = app_json_text(json, i, &bytes), *text;

        if (app_json_is(json, value) == APP_JSON_OBJECT &&
            (app_json_equals(json, i, "extra_special_tokens") ||
             app_json_equals(json, i, "model_specific_special_tokens"))) {
            take(s, json, value);
            continue;
        }
        if (bytes < 6 || memcmp(key + bytes - 6, "_token", 6) != 0)
            continue;
        if (app_json_is(json, value) == APP_JSON_NULL)
            set(s, key, bytes, NULL, 0, json->error);
        if (app_json_is(json, value) == APP_JSON_OBJECT)
            value = app_json_need(json, value, "content", APP_JSON_STRING);
        if (value == APP_JSON_NONE || app_json_is(json, value) != APP_JSON_STRING)
            continue; /* add_bos_token and the like */
        text = app_json_text(json, value, &text_bytes);
        set(s, key, bytes, text, text_bytes, json->error);
    }
}

/* Sets what transformers gives a class of tokenizers where tokenizer_config.json does not say it. */
static void take_standard(app_chat_specials *s, const app_json *json)
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
    uint32_t value = app_json_get(json, 0, "tokenizer_class");
    char class[64];

    for (size_t i = 0; value != APP_JSON_NONE && i < sizeof standard / sizeof *standard &&
                       json->error->code == WF_OK;
         i++) {
        bool fits = false;

        for (int fast = 0; fast < 2; fast++) {
            snprintf(class, sizeof class, "%sTokenizer%s", standard[i].class,
                     fast ? "Fast" : "");
            fits = fits || (app_json_is(json, value) == APP_JSON_STRING &&
                            app_json_equals(json, value, class));
        }
        if (fits)
            set(s, standard[i].name, strlen(standard[i].name), standard[i].text,
                strlen(standard[i].text), json->error);
    }
}

wf_status app_chat_specials_read(const char *folder, app_chat_specials *s, wf_error *error)
{
    char path[APP_MOST_PATH];
    bool decoder = false;
    app_json json;

    *s = (app_chat_specials){.count = 0};
    if (open_json(folder, "tokenizer_config.json", path, &json, error) &&
        app_json_is(&json, 0) == APP_JSON_OBJECT) {
        take_standard(s, &json);
        take(s, &json, 0);
        decoder = app_json_get(&json, 0, "added_tokens_decoder") != APP_JSON_NONE;
    }
    app_json_close(&json);
    if (error->code != WF_OK ||
        decoder) /* transformers reads the other file for older folders alone */
        return error->code;
    if (open_json(folder, "special_tokens_map.json", path, &json, error) &&
        app_json_is(&json, 0) == APP_JSON_OBJECT)
        take(s, &json, 0);
    app_json_close(&json);
    return error->code;
}
