/* nn/text/jinja/jinja.c - see the header: templates and runs as their users see them. */
#include "nn/text/jinja/jinja_internal.h"
#include "nn/text/jinja/run_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void read_template(jinja_reader *r, const char *name)
{
    char *copy = jinja_reader_take(r, strlen(name) + 1);

    r->template->name = strcpy(copy, name);
    if (r->bytes > JINJA_MOST_SOURCE)
        jinja_refuse(r, WF_EDATA, 1, 1, "the template has more than %d bytes",
                     JINJA_MOST_SOURCE);
    if (!jinja_is_utf8(r->source, r->bytes))
        jinja_refuse(r, WF_EDATA, 1, 1, "the template is no UTF-8");
    jinja_lex(r);
    jinja_parse(r);
}

wf_status wf_jinja_compile(const char *name, const char *text, size_t bytes,
                           wf_jinja **template, wf_error *error)
{
    wf_jinja *t = calloc(1, sizeof *t);
    wf_error why = {WF_OK, ""};
    jinja_reader r = {.template = t, .error = &why, .source = text, .bytes = bytes};

    *template = NULL;
    if (!t)
        return wf_error_set(error, WF_ENOMEM, "%s: no memory for the template", name);
    t->name = "";
    t->arena.most = JINJA_MOST_MEMORY;
    if (setjmp(r.jump) == 0)
        read_template(&r, name);
    if (why.code != WF_OK) {
        wf_jinja_free(t);
        return wf_error_set(error, why.code, "%s", why.text);
    }
    *template = t;
    return WF_OK;
}

void wf_jinja_free(wf_jinja *t)
{
    if (t)
        jinja_arena_free(&t->arena);
    free(t);
}

bool wf_jinja_mentions(const wf_jinja *t, const char *word, size_t bytes)
{
    return jinja_find_word(t, word, bytes);
}

bool wf_jinja_marks(const wf_jinja *t)
{
    return t->marks;
}

wf_status wf_jinja_run_new(wf_jinja_run **run, wf_error *error)
{
    *run = calloc(1, sizeof **run);
    if (!*run)
        return wf_error_set(error, WF_ENOMEM, "no memory for a chat template");
    (*run)->arena.most = JINJA_MOST_MEMORY;
    return WF_OK;
}

void wf_jinja_run_free(wf_jinja_run *run)
{
    if (!run)
        return;
    jinja_arena_free(&run->arena);
    free(run->out);
    free(run->spans);
    free(run);
}

void wf_jinja_run_reset(wf_jinja_run *run)
{
    jinja_arena_reset(&run->arena);
}

wf_status wf_jinja_protect(wf_jinja_run *run, void (*build)(wf_jinja_run *run, void *arg),
                           void *arg, wf_error *error)
{
    wf_error why = {WF_OK, ""};

    run->error = &why;
    run->at = NULL;
    run->steps = 0;
    run->depth = 0;
    if (setjmp(run->jump) == 0)
        build(run, arg);
    run->error = NULL;
    return why.code == WF_OK ? WF_OK : wf_error_set(error, why.code, "%s", why.text);
}

static _Noreturn void leave(wf_jinja_run *run, wf_status status, const char *text)
{
    if (run->at)
        wf_error_set(run->error, status, "%.400s:%u:%u: %s", run->template->name, run->at->line,
                     run->at->column, text);
    else
        wf_error_set(run->error, status, "%s", text);
    longjmp(run->jump, 1);
}

#define LEAVE(run, status, format)                                                             \
    do {                                                                                       \
        char text_[1024];                                                                      \
        va_list args_;                                                                         \
                                                                                               \
        va_start(args_, format);                                                               \
        vsnprintf(text_, sizeof text_, format, args_);                                         \
        va_end(args_);                                                                         \
        leave(run, status, text_);                                                             \
    } while (0)

void jinja_fail(wf_jinja_run *run, const char *format, ...)
{
    LEAVE(run, WF_EDATA, format);
}

void jinja_unsupported(wf_jinja_run *run, const char *format, ...)
{
    LEAVE(run, WF_EUNSUPPORTED, format);
}

void wf_jinja_abort(wf_jinja_run *run, wf_status status, const char *format, ...)
{
    LEAVE(run, status, format);
}

void *jinja_take(wf_jinja_run *run, size_t bytes)
{
    void *data = jinja_arena_take(&run->arena, bytes);

    if (!data && run->arena.used + bytes > run->arena.most)
        jinja_fail(run,
                   "more than %d MiB of values: the template or the conversation is too large",
                   JINJA_MOST_MEMORY >> 20);
    if (!data)
        leave(run, WF_ENOMEM, "no memory for values");
    return data;
}

void jinja_work(wf_jinja_run *run, size_t size)
{
    run->steps += 1 + size / 64;
    if (run->steps > JINJA_MOST_STEPS)
        jinja_fail(run, "the template takes more than %d steps", JINJA_MOST_STEPS);
}

void jinja_deeper(wf_jinja_run *run)
{
    if (++run->depth > JINJA_MOST_DEPTH)
        jinja_fail(run, "this is nested deeper than %d calls or values", JINJA_MOST_DEPTH);
}

void jinja_put(wf_jinja_run *run, const char *text, size_t bytes)
{
    if (bytes > JINJA_MOST_OUTPUT - run->out_bytes)
        jinja_fail(run, "the template writes more than %d MiB", JINJA_MOST_OUTPUT >> 20);
    if (run->out_bytes + bytes + 1 > run->out_room) {
        size_t room = 2 * (run->out_bytes + bytes) + 1024;
        char *out = realloc(run->out, room);

        if (!out)
            leave(run, WF_ENOMEM, "no memory for the output");
        run->out = out;
        run->out_room = room;
    }
    if (bytes)
        memcpy(run->out + run->out_bytes, text, bytes);
    run->out_bytes += bytes;
}

/* Makes the variables that the template names. */
static void render(wf_jinja_run *run, void *arg)
{
    const wf_jinja_value *variables = arg;
    const jinja_dict *dict = variables->dict;
    jinja_scope *globals;

    jinja_put(run, "", 0);
    run->scope = globals = jinja_take(run, sizeof *run->scope);
    for (size_t i = 0; i < dict->count; i++) {
        const jinja_entry *e = &dict->entries[i];
        const char *name = jinja_find_word(run->template, e->key.text, e->key.bytes);

        if (name)
            jinja_set(run, name, e->value);
    }
    run->scope = jinja_take(run, sizeof *run->scope);
    run->scope->parent = globals;
    jinja_execute_template(run);
    run->out[run->out_bytes] = '\0';
}

wf_status wf_jinja_render(wf_jinja_run *run, const wf_jinja *template, wf_jinja_value variables,
                          wf_jinja_output *output, wf_error *error)
{
    const jinja_mark mark = jinja_arena_mark(&run->arena);
    wf_status status;

    run->template = template;
    run->out_bytes = run->span_count = 0;
    run->captures = 0;
    status = wf_jinja_protect(run, render, &variables, error);
    jinja_arena_release(&run->arena, mark);
    *output = (wf_jinja_output){.text = status == WF_OK ? run->out : "",
                                .bytes = status == WF_OK ? run->out_bytes : 0,
                                .spans = run->spans,
                                .span_count = status == WF_OK ? run->span_count : 0};
    return status;
}
