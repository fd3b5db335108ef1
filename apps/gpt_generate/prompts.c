/* apps/gpt_generate/prompts.c - a prompt, or a file of them; see the header. */
#include "apps/gpt_generate/prompts.h"
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

static wf_status add_text(app_prompts *p, app_tokenizer_encoder *encoder, const char *name,
                          const char *text, size_t bytes, wf_error *error)
{
    app_tokenizer_ids *ids = add(p, error);

    if (!ids || app_tokenizer_encode(encoder, text, bytes,
                                     APP_TOKENIZER_SPECIAL | APP_TOKENIZER_TEMPLATE, ids,
                                     error) != WF_OK)
        return error->code;
    if (!ids->count)
        return wf_error_set(error, WF_EINVAL,
                            "%s has no token, and a text goes on from at least one; give a "
                            "longer prompt",
                            name);
    return WF_OK;
}

static wf_status add_ids(app_prompts *p, const char *name, const json_t *list,
                         int64_t vocabulary, wf_error *error)
{
    app_tokenizer_ids *ids = add(p, error);

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

static wf_status add_line(app_prompts *p, app_tokenizer_encoder *encoder, const char *name,
                          const char *line, size_t bytes, int64_t vocabulary, wf_error *error)
{
    json_error_t why;
    json_t *object = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, &why);
    const json_t *text = json_object_get(object, "prompt"),
                 *ids = json_object_get(object, "ids");

    if (!object)
        wf_error_set(error, WF_EDATA, "%s: no JSON: %s", name, why.text);
    else if (ids)
        add_ids(p, name, ids, vocabulary, error);
    else if (!json_is_string(text))
        wf_error_set(error, WF_EDATA, "%s: neither a text \"prompt\" nor a list \"ids\"", name);
    else
        add_text(p, encoder, name, json_string_value(text), json_string_length(text), error);
    json_decref(object);
    return error->code;
}

static wf_status read_file(const char *path, app_prompts *p, app_tokenizer_encoder *encoder,
                           int64_t vocabulary, wf_error *error)
{
    FILE *file = app_program_file(path, "r");
    char *line = NULL, name[4096];
    size_t room = 0;
    ssize_t n;

    if (!file)
        return wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    for (int64_t number = 1; error->code == WF_OK && (n = getline(&line, &room, file)) >= 0;
         number++) {
        snprintf(name, sizeof name, "%.3900s, line %lld", path, (long long)number);
        if (n > MOST_LINE)
            wf_error_set(error, WF_EDATA, "%s: it has more than %d bytes", name, MOST_LINE);
        else if (strspn(line, " \t\r\n") < (size_t)n)
            add_line(p, encoder, name, line, (size_t)n, vocabulary, error);
    }
    if (error->code == WF_OK && ferror(file))
        wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if (error->code == WF_OK && !p->count)
        wf_error_set(error, WF_EDATA, "%s has no prompt", path);
    free(line);
    fclose(file);
    return error->code;
}

wf_status app_prompts_read(const app_generate_request *q, const app_tokenizer *tokenizer,
                           int64_t vocabulary, app_prompts *p, wf_error *error)
{
    app_tokenizer_encoder *encoder;

    *p = (app_prompts){.count = 0};
    if (!q->prompt && !q->prompts) /* for a plan */
        return WF_OK;
    if (app_tokenizer_encoder_new(tokenizer, &encoder, error) != WF_OK)
        return error->code;
    if (q->prompt)
        add_text(p, encoder, "--prompt", q->prompt, strlen(q->prompt), error);
    else
        read_file(q->prompts, p, encoder, vocabulary, error);
    for (int64_t i = 0; i < p->count; i++)
        if ((int64_t)p->ids[i].count > p->longest)
            p->longest = (int64_t)p->ids[i].count;
    app_tokenizer_encoder_free(encoder);
    return error->code;
}

void app_prompts_free(app_prompts *p)
{
    for (int64_t i = 0; i < p->count; i++)
        app_tokenizer_ids_free(&p->ids[i]);
    free(p->ids);
    *p = (app_prompts){.count = 0};
}
