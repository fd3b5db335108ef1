/* apps/chat/chat.c - see the header. */
#include "apps/chat/chat.h"
#include "apps/chat/template_text.h"
#include "apps/tokenizer/tokenizer_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MARKS = 3 };

struct app_chat_template {
    const char *name, *begin, *standard, *prompt;
    enum { KEPT, CONTENT, TURN, ANSWER } trim;
    enum { OWN, FIRST, LAST, NONE } system;
    const char *known_by[MARKS], *lacks[MARKS];
    struct {
        const char *before, *behind, *after;
    } role[APP_CHAT_ROLES];
};

static const app_chat_template templates[] = {
#define TEMPLATE(text, ...) {.name = text, __VA_ARGS__},
#include "apps/chat/templates.def"
#undef TEMPLATE
};
enum { TEMPLATES = sizeof templates / sizeof *templates };

static const char *const role_names[APP_CHAT_ROLES] = {"system", "user", "assistant"};

bool app_chat_role_of(const char *text, size_t bytes, app_chat_role *role)
{
    for (int i = 0; i < APP_CHAT_ROLES; i++)
        if (strlen(role_names[i]) == bytes && memcmp(role_names[i], text, bytes) == 0) {
            *role = (app_chat_role)i;
            return true;
        }
    return false;
}

const char *app_chat_template_name(const app_chat_template *t)
{
    return t->name;
}

/* What is wrong, and which names there are. */
static wf_status refuse(wf_status status, const char *what, const char *name, wf_error *error)
{
    char list[512] = "";
    size_t used = 0;

    for (int i = 0; i < TEMPLATES; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "",
                                 templates[i].name);
    return wf_error_set(error, status, "%s%.300s: --chat-template takes one of %s", what, name,
                        list);
}

static bool fits(const app_chat_template *t, const char *jinja)
{
    for (int i = 0; i < MARKS; i++)
        if ((t->known_by[i] && !strstr(jinja, t->known_by[i])) ||
            (t->lacks[i] && strstr(jinja, t->lacks[i])))
            return false;
    return true;
}

/* The folder that a path is, or lies in. */
static void folder_of(const char *path, char folder[4096])
{
    const char *slash = strrchr(path, '/');
    struct stat s;

    snprintf(folder, 4096, "%s", path);
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        snprintf(folder, 4096, "%.*s.", slash ? (int)(slash + 1 - path) : 0, path);
}

wf_status app_chat_template_find(const char *tokenizer, const char *name,
                                 const app_chat_template **t, wf_error *error)
{
    char folder[4096], *jinja = NULL;
    size_t bytes;

    *t = NULL;
    for (int i = 0; name && i < TEMPLATES; i++)
        if (strcmp(templates[i].name, name) == 0)
            *t = &templates[i];
    if (name)
        return *t ? WF_OK : refuse(WF_EINVAL, "there is no chat template ", name, error);
    if (!tokenizer)
        return refuse(WF_EINVAL, "there is no folder with a chat template", "", error);
    folder_of(tokenizer, folder);
    if (app_chat_template_text(folder, &jinja, &bytes, error) != WF_OK)
        return error->code;
    if (!jinja)
        return refuse(WF_EINVAL, "there is no chat template beside ", tokenizer, error);
    for (int i = 0; i < TEMPLATES && !*t; i++)
        if (fits(&templates[i], jinja))
            *t = &templates[i];
    free(jinja);
    return *t ? WF_OK
              : refuse(WF_EUNSUPPORTED, "no template that is known is the one beside ",
                       tokenizer, error);
}

void app_chat_written_free(app_chat_written *w)
{
    app_tokenizer_bytes_free(&w->text);
    free(w->spans);
    *w = (app_chat_written){.count = 0};
}

static bool put(app_chat_written *w, const char *text)
{
    return app_tokenizer_bytes_add(&w->text, text, strlen(text));
}

static bool is_white(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f);
}

/* A content, without white space at its ends as the template says. */
static bool put_content(app_chat_written *w, const char *content, size_t bytes, bool left,
                        bool right)
{
    while (left && bytes && is_white(*content)) {
        content++;
        bytes--;
    }
    while (right && bytes && is_white(content[bytes - 1]))
        bytes--;
    return app_tokenizer_bytes_add(&w->text, content, bytes);
}

static bool add_span(app_chat_written *w, size_t begin)
{
    if (w->count == w->room) {
        size_t room = 2 * w->room + 8;
        app_chat_span *spans = realloc(w->spans, room * sizeof *spans);

        if (!spans)
            return false;
        w->spans = spans;
        w->room = room;
    }
    w->spans[w->count++] = (app_chat_span){begin, w->text.bytes};
    return true;
}

/* A turn; system: what stands in front of a user's content, or NULL. */
static bool put_turn(const app_chat_template *t, app_chat_written *w,
                     const app_chat_message *message, const app_chat_message *system)
{
    const bool answer = message->role == APP_CHAT_ASSISTANT;
    const bool right = t->trim == ANSWER ? answer : t->trim != KEPT;
    const bool left = right && !(t->trim == TURN && system);
    bool ok = put(w, t->role[message->role].before);
    size_t begin = w->text.bytes;

    if (system)
        ok = ok && put(w, t->role[APP_CHAT_SYSTEM].before) &&
             put_content(w, system->content, system->bytes, false, false) &&
             put(w, t->role[APP_CHAT_SYSTEM].behind);
    ok = ok && put_content(w, message->content, message->bytes, left, right) &&
         put(w, t->role[message->role].behind);
    if (answer)
        ok = ok && add_span(w, begin);
    return ok && put(w, t->role[message->role].after);
}

/* What the template does not allow; NULL: nothing. Where turns have no marks of their own they alternate. */
static const char *wrong(const app_chat_template *t, const app_chat_message *m, size_t count)
{
    size_t first = count && m[0].role == APP_CHAT_SYSTEM;

    if (count == 0)
        return "has no messages";
    if (first && t->system == NONE)
        return "begins with a system message, which its template has not";
    for (size_t i = first; i < count; i++) {
        if (m[i].role == APP_CHAT_SYSTEM)
            return "has a system message that is not the first one";
        if (t->system != OWN &&
            m[i].role != ((i - first) % 2 ? APP_CHAT_ASSISTANT : APP_CHAT_USER))
            return "has turns that do not alternate between user and assistant, as its "
                   "template asks";
    }
    return NULL;
}

wf_status app_chat_text(const app_chat_template *t, const app_chat_message *m, size_t count,
                        int flags, app_chat_written *w, wf_error *error)
{
    const char *why = wrong(t, m, count);
    const app_chat_message *system = count && m[0].role == APP_CHAT_SYSTEM ? m : NULL;
    bool ok;

    w->text.bytes = w->count = 0;
    if (why)
        return wf_error_set(error, WF_EDATA, "the conversation %s (%s)", why, t->name);
    ok = put(w, t->begin);
    if (system && t->system == OWN)
        ok = ok && put_turn(t, w, system, NULL);
    else if (t->standard)
        ok = ok &&
             put_turn(t, w,
                      &(app_chat_message){APP_CHAT_SYSTEM, t->standard, strlen(t->standard)},
                      NULL);
    for (size_t i = system != NULL, first = i; ok && i < count; i++) {
        bool with =
            system && m[i].role == APP_CHAT_USER &&
            ((t->system == FIRST && i == first) || (t->system == LAST && i == count - 1));

        ok = put_turn(t, w, &m[i], with ? system : NULL);
    }
    if (flags & APP_CHAT_PROMPT)
        ok = ok && put(w, t->prompt);
    return ok ? WF_OK : wf_error_set(error, WF_ENOMEM, "out of memory: a conversation");
}

/* How many ids come before the one that has byte `at` of the text: those that its beginning has, too. */
static wf_status ids_before(app_tokenizer_encoder *encoder, const app_chat_written *w,
                            size_t at, const int32_t *all, size_t most, size_t *count,
                            wf_error *error)
{
    app_tokenizer_ids some = {0};
    wf_status status =
        app_tokenizer_encode(encoder, w->text.data, at, APP_TOKENIZER_SPECIAL, &some, error);

    *count = 0;
    while (*count < some.count && *count < most && some.data[*count] == all[*count])
        ++*count;
    app_tokenizer_ids_free(&some);
    return status;
}

/* Marks ids up to a number of them. */
static wf_status mark(app_tokenizer_ids *trained, size_t count, int32_t value, wf_error *error)
{
    while (trained->count < count)
        if (app_tokenizer_ids_append(trained, value, error) != WF_OK)
            return error->code;
    return WF_OK;
}

wf_status app_chat_encode(app_tokenizer_encoder *encoder, const app_chat_written *w,
                          app_tokenizer_ids *ids, app_tokenizer_ids *trained, wf_error *error)
{
    const size_t base = ids->count, marked = trained ? trained->count : 0;
    wf_status status = app_tokenizer_encode(encoder, w->text.data, w->text.bytes,
                                            APP_TOKENIZER_SPECIAL, ids, error);
    const size_t all = ids->count - base;

    for (size_t i = 0; trained && status == WF_OK && i < w->count; i++) {
        size_t begin, end;

        status =
            ids_before(encoder, w, w->spans[i].begin, ids->data + base, all, &begin, error);
        if (status == WF_OK)
            status =
                ids_before(encoder, w, w->spans[i].end, ids->data + base, all, &end, error);
        if (status == WF_OK)
            status = mark(trained, marked + begin, 0, error);
        if (status == WF_OK)
            status = mark(trained, marked + end, 1, error);
    }
    return status == WF_OK && trained ? mark(trained, marked + all, 0, error) : status;
}
