/* apps/gpt_generate/prompts.c - a prompt, or a file of them; see the header. */
#include "apps/gpt_generate/prompts.h"
#include "core/files/input.h"
#include "nn/text/chat/chat.h"
#include "apps/program.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 1 << 26 };

static wf_tok_ids *add(app_prompts *p, wf_error *error)
{
    if (p->count == p->room) {
        int64_t room = p->room ? 2 * p->room : 16;
        wf_tok_ids *more = realloc(p->ids, (size_t)room * sizeof *more);

        if (!more) {
            wf_error_set(error, WF_ENOMEM, "no memory for prompts");
            return NULL;
        }
        p->ids = more;
        p->room = room;
    }
    p->ids[p->count] = (wf_tok_ids){.data = NULL};
    return &p->ids[p->count++];
}

/* The state of reading prompts. */
typedef struct reading {
    const app_generate_request *request;
    app_prompts *prompts;
    wf_tok_encoder *encoder;
    wf_chat_template *template; /* NULL: no conversations */
    wf_chat_writer *writer;
    int64_t vocabulary;
    const char *name; /* the prompt's source */
} reading;

static wf_status end_ids(const reading *r, const wf_tok_ids *ids, wf_error *error)
{
    if (error->code == WF_OK && !ids->count)
        wf_error_set(error, WF_EINVAL,
                     "%s has no token, and a text continues at least one; give a longer "
                     "prompt",
                     r->name);
    return error->code;
}

/* Adds a conversation, a line of JSON, followed by the request for an answer. */
static wf_status add_chat(const reading *r, const char *line, size_t bytes, wf_error *error)
{
    wf_tok_ids *ids = add(r->prompts, error);
    wf_chat_written written = {.count = 0};
    wf_chat_row *row = NULL;

    if (!ids)
        return error->code;
    if (wf_chat_row_read(r->template, r->name, line, bytes, &row, error) == WF_OK &&
        wf_chat_write(r->writer, row, WF_CHAT_PROMPT, 0, &written, error) == WF_OK)
        wf_chat_encode(r->encoder, &written, ids, NULL, error);
    wf_chat_row_free(row);
    wf_chat_written_free(&written);
    return end_ids(r, ids, error);
}

/* Adds a user's message, after the system's. */
static wf_status add_turn(const reading *r, const char *text, size_t bytes, wf_error *error)
{
    const char *system = r->request->system;
    json_t *messages = json_array(), *row = json_pack("{s:o}", "messages", messages);
    json_t *said = json_stringn(text, bytes), *before = system ? json_string(system) : NULL;
    char *line;

    if (!said || (system && !before)) {
        json_decref(row);
        json_decref(said);
        json_decref(before);
        return wf_error_set(error, WF_EDATA,
                            "%s or --system is no UTF-8, which a chat template needs", r->name);
    }
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:o}", "role", "system", "content", before));
    json_array_append_new(messages, json_pack("{s:s, s:o}", "role", "user", "content", said));
    line = json_dumps(row, JSON_COMPACT);
    json_decref(row);
    if (!line)
        return wf_error_set(error, WF_ENOMEM, "%s: no memory to write it", r->name);
    add_chat(r, line, strlen(line), error);
    free(line);
    return error->code;
}

static wf_status add_text(const reading *r, const char *text, size_t bytes, wf_error *error)
{
    wf_tok_ids *ids;

    if (r->template)
        return add_turn(r, text, bytes, error);
    ids = add(r->prompts, error);
    if (ids)
        wf_tok_encode(r->encoder, text, bytes, WF_TOK_SPECIAL | WF_TOK_TEMPLATE, ids, error);
    return ids ? end_ids(r, ids, error) : error->code;
}

static wf_status add_ids(const reading *r, const json_t *list, wf_error *error)
{
    wf_tok_ids *ids = add(r->prompts, error);
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
                                "%s: \"ids\" has at index %zu what is no token id of the "
                                "model, which are 0 to %lld",
                                name, i, (long long)vocabulary - 1);
        if (wf_tok_ids_append(ids, (int32_t)json_integer_value(value), error) != WF_OK)
            return error->code;
    }
    return WF_OK;
}

/* Refuses fields of a line that nothing reads. */
static wf_status check_fields(const reading *r, json_t *object, const char *own,
                              wf_error *error)
{
    const char *key;
    json_t *value;

    json_object_foreach(object, key, value) if (
        strcmp(key, own) != 0 && !json_is_null(value) && !wf_chat_is_harmless(key) &&
        !(r->template &&
          wf_chat_is_ignored(
              r->template, key,
              strlen(key)))) return wf_error_set(error, WF_EUNSUPPORTED,
                                                 "%s: the field \"%.60s\" is not known here: a "
                                                 "line has \"prompt\", \"ids\", "
                                                 "or, with --chat, \"messages\"",
                                                 r->name, key);
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
    else if (ids && check_fields(r, object, "ids", error) == WF_OK)
        add_ids(r, ids, error);
    else if (r->template && json_object_get(object, "messages"))
        add_chat(r, line, bytes, error);
    else if (error->code == WF_OK && !json_is_string(text))
        wf_error_set(error, WF_EDATA,
                     "%s: neither a text \"prompt\" nor a list \"ids\"; \"messages\" are "
                     "read with --chat",
                     r->name);
    else if (check_fields(r, object, "prompt", error) == WF_OK)
        add_text(r, json_string_value(text), json_string_length(text), error);
    json_decref(object);
    return error->code;
}

/* Keeps the length of the last prompt where it is the longest. */
static void keep_longest(app_prompts *p, int64_t line)
{
    int64_t tokens = p->count ? (int64_t)p->ids[p->count - 1].count : 0;

    if (tokens > p->longest) {
        p->longest = tokens;
        p->longest_line = line;
    }
}

static wf_status read_file(reading *r, const char *path, wf_error *error)
{
    FILE *file = wf_input_open(path);
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
        keep_longest(r->prompts, number);
    }
    if (error->code == WF_OK && ferror(file))
        wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if (error->code == WF_OK && !r->prompts->count)
        wf_error_set(error, WF_EDATA, "%s has no prompt", path);
    free(line);
    fclose(file);
    return error->code;
}

wf_status app_prompts_read(const app_generate_request *q, const wf_tok *tokenizer,
                           const char *tokenizer_path, int64_t vocabulary, app_prompts *p,
                           wf_error *error)
{
    const wf_chat_options chat = {.tokenizer = tokenizer_path,
                                  .name = q->chat_template,
                                  .variables = q->chat_variables,
                                  .ignored = q->ignored_fields};
    reading r = {.request = q, .prompts = p, .vocabulary = vocabulary, .name = "--prompt"};

    *p = (app_prompts){.count = 0};
    if (!q->prompt && !q->prompts) /* for a plan */
        return WF_OK;
    if (q->chat && wf_chat_template_open(&chat, &r.template, error) == WF_OK)
        wf_chat_writer_new(r.template, &r.writer, error);
    if (error->code == WF_OK)
        wf_tok_encoder_new(tokenizer, &r.encoder, error);
    if (error->code == WF_OK && q->prompt)
        add_text(&r, q->prompt, strlen(q->prompt), error);
    else if (error->code == WF_OK)
        read_file(&r, q->prompts, error);
    if (q->prompt)
        keep_longest(p, 0);
    wf_tok_encoder_free(r.encoder);
    wf_chat_writer_free(r.writer);
    wf_chat_template_close(r.template);
    return error->code;
}

void app_prompts_free(app_prompts *p)
{
    for (int64_t i = 0; i < p->count; i++)
        wf_tok_ids_free(&p->ids[i]);
    free(p->ids);
    *p = (app_prompts){.count = 0};
}
