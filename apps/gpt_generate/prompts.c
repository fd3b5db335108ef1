/* apps/gpt_generate/prompts.c - a prompt, or a file of them; see the header. */
#include "apps/gpt_generate/prompts.h"
#include "apps/chat/row.h"
#include "apps/program.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 1 << 26 };

static app_tokenizer_ids *add(app_prompts *p, wf_error *error)
{
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 16;
        app_tokenizer_ids *more = realloc(p->ids, (size_t)room * sizeof *more);

        if (!more) {
            wf_error_set(error, WF_ENOMEM, "no memory for prompts");
            return NULL;
        }
        p->ids = more;
        p->room = room;
    }
    p->ids[p->count] = (app_tokenizer_ids){.data = NULL};
    return &p->ids[p->count++];
}

/* What reading takes from hand to hand. */
typedef struct reading {
    const app_generate_request *request;
    app_prompts *prompts;
    app_tokenizer_encoder *encoder;
    const app_chat_template *template; /* NULL: no conversations */
    int64_t vocabulary;
    const char *name; /* where the prompt is from */
} reading;

static wf_status end_ids(const reading *r, const app_tokenizer_ids *ids, wf_error *error)
{
    if (error->code == WF_OK && !ids->count)
        wf_error_set(error, WF_EINVAL,
                     "%s has no token, and a text goes on from at least one; give a longer "
                     "prompt",
                     r->name);
    return error->code;
}

static wf_status add_chat(const reading *r, const app_chat_message *messages, size_t count,
                          wf_error *error)
{
    app_tokenizer_ids *ids = add(r->prompts, error);
    app_chat_written written = {.count = 0};
    wf_error why = {WF_OK, ""};

    if (!ids)
        return error->code;
    if (app_chat_text(r->template, messages, count, APP_CHAT_PROMPT, &written, &why) != WF_OK ||
        app_chat_encode(r->encoder, &written, ids, NULL, &why) != WF_OK)
        wf_error_set(error, why.code, "%s: %s", r->name, why.text);
    app_chat_written_free(&written);
    return end_ids(r, ids, error);
}

static wf_status add_text(const reading *r, const char *text, size_t bytes, wf_error *error)
{
    const char *system = r->request->system;
    const app_chat_message said[] = {
        {APP_CHAT_SYSTEM, system ? system : "", system ? strlen(system) : 0},
        {APP_CHAT_USER, text, bytes}};
    app_tokenizer_ids *ids;

    if (r->template)
        return add_chat(r, system ? said : said + 1, system ? 2 : 1, error);
    ids = add(r->prompts, error);
    if (ids)
        app_tokenizer_encode(r->encoder, text, bytes,
                             APP_TOKENIZER_SPECIAL | APP_TOKENIZER_TEMPLATE, ids, error);
    return ids ? end_ids(r, ids, error) : error->code;
}

static wf_status add_messages(const reading *r, const char *line, size_t bytes, wf_error *error)
{
    app_chat_row *row;

    if (app_chat_row_read(r->name, line, bytes, &row, error) == WF_OK) {
        size_t count;
        const app_chat_message *messages = app_chat_row_messages(row, &count);

        add_chat(r, messages, count, error);
    }
    app_chat_row_free(row);
    return error->code;
}

static wf_status add_ids(const reading *r, const json_t *list, wf_error *error)
{
    app_tokenizer_ids *ids = add(r->prompts, error);
    int64_t vocabulary = r->vocabulary;
    const char *name = r->name;

    if (!ids)
        return error->code;
    if (!json_is_array(list) || json_array_size(list) == 0)
        return wf_error_set(error, WF_EDATA, "%s: \"ids\" is no list of at least one token id",
                            name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);

        if (!json_is_integer(value) || json_integer_value(value) < 0 ||
            json_integer_value(value) >= vocabulary)
            return wf_error_set(error, WF_EDATA,
                                "%s: \"ids\" has at place %zu what is no token id of the "
                                "model, which are 0 to %lld",
                                name, i, (long long)vocabulary - 1);
        if (app_tokenizer_ids_append(ids, (int32_t)json_integer_value(value), error) != WF_OK)
            return error->code;
    }
    return WF_OK;
}

static wf_status add_line(const reading *r, const char *line, size_t bytes, wf_error *error)
{
    json_error_t why;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    const json_t *text = json_object_get(object, "prompt"),
                 *ids = json_object_get(object, "ids");

    if (!object && !*why.text)
        wf_error_set(error, WF_ENOMEM, "%s: no memory to read it", r->name);
    else if (!object)
        wf_error_set(error, WF_EDATA, "%s: no JSON: %s", r->name, why.text);
    else if (ids)
        add_ids(r, ids, error);
    else if (r->template && json_object_get(object, "messages"))
        add_messages(r, line, bytes, error);
    else if (!json_is_string(text))
        wf_error_set(error, WF_EDATA,
                     "%s: neither a text \"prompt\" nor a list \"ids\"; \"messages\" are "
                     "read with --chat",
                     r->name);
    else
        add_text(r, json_string_value(text), json_string_length(text), error);
    json_decref(object);
    return error->code;
}

static wf_status read_file(reading *r, const char *path, wf_error *error)
{
    FILE *file = app_program_file(path);
    char *line = NULL, name[4096];
    size_t room = 0;
    ssize_t n;

    if (!file)
        return wf_error_set(error, WF_EIO, "%s: %s: --prompts takes a file, --prompt a text",
                            path, strerror(errno));
    r->name = name;
    for (int64_t number = 1; error->code == WF_OK && (n = getline(&line, &room, file)) >= 0;
         number++) {
        snprintf(name, sizeof name, "%.3900s, line %lld", path, (long long)number);
        if (n > MOST_LINE)
            wf_error_set(error, WF_EDATA, "%s: it has more than %d bytes", name, MOST_LINE);
        else if (strspn(line, " \t\r\n") < (size_t)n)
            add_line(r, line, (size_t)n, error);
    }
    if (error->code == WF_OK && ferror(file))
        wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if (error->code == WF_OK && !r->prompts->count)
        wf_error_set(error, WF_EDATA, "%s has no prompt", path);
    free(line);
    fclose(file);
    return error->code;
}

wf_status app_prompts_read(const app_generate_request *q, const app_tokenizer *tokenizer,
                           const char *tokenizer_path, int64_t vocabulary, app_prompts *p,
                           wf_error *error)
{
    reading r = {.request = q, .prompts = p, .vocabulary = vocabulary, .name = "--prompt"};

    *p = (app_prompts){.count = 0};
    if (!q->prompt && !q->prompts) /* for a plan */
        return WF_OK;
    if (q->chat &&
        app_chat_template_find(tokenizer_path, q->chat_template, &r.template, error) != WF_OK)
        return error->code;
    if (app_tokenizer_encoder_new(tokenizer, &r.encoder, error) != WF_OK)
        return error->code;
    if (q->prompt)
        add_text(&r, q->prompt, strlen(q->prompt), error);
    else
        read_file(&r, q->prompts, error);
    for (int64_t i = 0; i < p->count; i++)
        if ((int64_t)p->ids[i].count > p->longest)
            p->longest = (int64_t)p->ids[i].count;
    app_tokenizer_encoder_free(r.encoder);
    return error->code;
}

void app_prompts_free(app_prompts *p)
{
    for (int64_t i = 0; i < p->count; i++)
        app_tokenizer_ids_free(&p->ids[i]);
    free(p->ids);
    *p = (app_prompts){.count = 0};
}
