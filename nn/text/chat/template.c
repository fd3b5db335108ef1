/* nn/text/chat/template.c - chat templates by folder, name or file. */
#include "nn/text/chat/chat_internal.h"
#include "nn/text/tokenizer/load_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name, *text;
} known[] = {
#define TEMPLATE(name, text) {name, text},
#include "nn/text/chat/templates.def"
#undef TEMPLATE
};
enum { KNOWN = sizeof known / sizeof *known };

const char *wf_chat_template_name(const wf_chat_template *t)
{
    return t->name;
}

/* Refuses a template: the reason, and the existing templates. */
static wf_status refuse(const char *what, const char *name, const wf_chat_sources *sources,
                        wf_error *error)
{
    char list[900] = "";
    size_t used = 0;

    for (int i = 0; i < sources->count && used < 600; i++)
        used +=
            (size_t)snprintf(list + used, sizeof list - used, "%.60s, ", sources->item[i].name);
    for (int i = 0; i < KNOWN; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 known[i].name);
    return wf_error_set(error, WF_EINVAL, "%s%.300s: .name takes one of %s, or a file of Jinja",
                        what, name, list);
}

/* Finds the folder that a path is, or lies in. */
static void folder_of(const char *path, char folder[4096])
{
    const char *slash = strrchr(path, '/');
    struct stat s;

    snprintf(folder, 4096, "%s", path);
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        snprintf(folder, 4096, "%.*s.", slash ? (int)(slash + 1 - path) : 0, path);
}

static wf_status name_it(wf_chat_template *t, const char *name, wf_error *error)
{
    t->name = strdup(name);
    return t->name ? WF_OK : wf_error_set(error, WF_ENOMEM, "out of memory: a chat template");
}

static wf_status compile(wf_chat_template *t, const char *name, const char *text, size_t bytes,
                         wf_error *error)
{
    return name_it(t, name, error) == WF_OK
               ? wf_jinja_compile(name, text, bytes, &t->plain, error)
               : error->code;
}

/* Opens the template of a name: the model's, a built-in one, a file. */
static wf_status by_name(wf_chat_template *t, const char *name, const wf_chat_sources *sources,
                         wf_error *error)
{
    const wf_chat_source *source = wf_chat_source_find(sources, name);
    char *text;
    size_t bytes;

    if (source)
        return compile(t, source->file, source->text, source->bytes, error);
    for (int i = 0; i < KNOWN; i++)
        if (strcmp(known[i].name, name) == 0)
            return compile(t, name, known[i].text, strlen(known[i].text), error);
    if (!wf_tok_file_there(name))
        return refuse("there is no chat template ", name, sources, error);
    if (wf_tok_file_read(name, &text, &bytes, error) != WF_OK)
        return error->code;
    compile(t, name, text, bytes, error);
    free(text);
    return error->code;
}

/* Opens the template of a folder, and the one that it has for tools. */
static wf_status by_folder(wf_chat_template *t, const char *path,
                           const wf_chat_sources *sources, wf_error *error)
{
    const wf_chat_source *plain = wf_chat_source_find(sources, "default"),
                         *tools = wf_chat_source_find(sources, "tool_use");

    if (!plain)
        return refuse(sources->count ? "no chat template is called default beside "
                                     : "there is no chat template beside ",
                      path, sources, error);
    if (compile(t, plain->file, plain->text, plain->bytes, error) == WF_OK && tools)
        wf_jinja_compile(tools->file, tools->text, tools->bytes, &t->tools, error);
    return error->code;
}

wf_status wf_chat_check_variables(const wf_text_json *json, uint32_t object)
{
    static const char *const reserved[] = {"messages", "tools", "documents",
                                           "add_generation_prompt"};

    if (wf_text_json_is(json, object) != WF_TEXT_JSON_OBJECT)
        return wf_text_json_refuse(json, object, WF_EDATA,
                                   "is no object with variables of a chat template");
    for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++) {
        uint32_t value = wf_text_json_get(json, object, reserved[i]);

        if (value != WF_TEXT_JSON_NONE)
            return wf_text_json_refuse(json, value, WF_EDATA,
                                       "cannot be set here: it is what a conversation has");
    }
    return json->error->code;
}

/* Refuses variables that no template reads. */
static wf_status check_read(const wf_chat_template *t, const wf_text_json *json,
                            uint32_t object)
{
    size_t bytes;

    for (uint32_t i = object + 1; i < json->values[object].next;
         i = wf_text_json_after(json, i + 1)) {
        const char *name = wf_text_json_text(json, i, &bytes);

        if (!wf_jinja_mentions(t->plain, name, bytes) &&
            !(t->tools && wf_jinja_mentions(t->tools, name, bytes)))
            return wf_text_json_refuse(json, i, WF_EINVAL,
                                       "is no variable of the chat template %s", t->name);
    }
    return WF_OK;
}

static wf_status read_variables(wf_chat_template *t, const char *text, wf_error *error)
{
    char *copy = strdup(text);

    if (!copy)
        return wf_error_set(error, WF_ENOMEM, "out of memory: variables of a chat template");
    if (wf_text_json_open(&t->variables, ".variables", copy, strlen(copy), error) == WF_OK &&
        wf_chat_check_variables(&t->variables, 0) == WF_OK)
        check_read(t, &t->variables, 0);
    t->variables.error = &t->why; /* `error` is the caller's */
    return error->code;
}

bool wf_chat_is_ignored(const wf_chat_template *t, const char *field, size_t bytes)
{
    for (const char *p = t->ignored; p && bytes && (p = strchr(p, ',')) && p[1]; p++)
        if (strncmp(p + 1, field, bytes) == 0 && p[1 + bytes] == ',')
            return true;
    return false;
}

static wf_status open_parts(wf_chat_template *t, const wf_chat_options *o,
                            wf_chat_sources *sources, wf_error *error)
{
    char folder[4096] = "";

    if (o->tokenizer && strcmp(o->tokenizer, "bytes") != 0)
        folder_of(o->tokenizer, folder);
    if (*folder && (wf_chat_sources_read(folder, sources, error) != WF_OK ||
                    wf_chat_specials_read(folder, &t->specials, error) != WF_OK))
        return error->code;
    if (!o->name && !*folder)
        return refuse("there is no folder with a chat template", "", sources, error);
    if ((o->name ? by_name(t, o->name, sources, error)
                 : by_folder(t, o->tokenizer, sources, error)) != WF_OK)
        return error->code;
    if (o->ignored) {
        size_t room = strlen(o->ignored) + 3;

        if (!(t->ignored = malloc(room)))
            return wf_error_set(error, WF_ENOMEM, "out of memory: fields to ignore");
        snprintf(t->ignored, room, ",%s,", o->ignored);
    }
    return o->variables ? read_variables(t, o->variables, error) : WF_OK;
}

wf_status wf_chat_template_open(const wf_chat_options *o, wf_chat_template **t, wf_error *error)
{
    wf_chat_sources sources = {.count = 0};

    *t = calloc(1, sizeof **t);
    if (!*t)
        return wf_error_set(error, WF_ENOMEM, "out of memory: a chat template");
    open_parts(*t, o, &sources, error);
    wf_chat_sources_free(&sources);
    if (error->code != WF_OK) {
        wf_chat_template_close(*t);
        *t = NULL;
    }
    return error->code;
}

void wf_chat_template_close(wf_chat_template *t)
{
    if (!t)
        return;
    wf_jinja_free(t->plain);
    wf_jinja_free(t->tools);
    wf_chat_specials_free(&t->specials);
    wf_text_json_close(&t->variables);
    free(t->ignored);
    free(t->name);
    free(t);
}
