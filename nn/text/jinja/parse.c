/* nn/text/jinja/parse.c - statements, and what a template is made of. */
#include "nn/text/jinja/run_internal.h"
#include <stdio.h>
#include <stdlib.h>

void jinja_refuse(jinja_reader *r, wf_status status, uint32_t line, uint32_t column,
                  const char *format, ...)
{
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    wf_error_set(r->error, status, "%.400s:%u:%u: %s", r->template->name, line, column, text);
    longjmp(r->jump, 1);
}

void *jinja_reader_take(jinja_reader *r, size_t bytes)
{
    void *data = jinja_arena_take(&r->template->arena, bytes);

    if (!data) {
        wf_error_set(r->error, WF_ENOMEM, "%.400s: no memory for the template",
                     r->template->name);
        longjmp(r->jump, 1);
    }
    return data;
}

static size_t bucket_of(const char *text, size_t bytes)
{
    uint32_t hash = 2166136261u;

    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ (unsigned char)text[i]) * 16777619u;
    return hash % JINJA_BUCKETS;
}

const char *jinja_find_word(const wf_jinja *t, const char *text, size_t bytes)
{
    for (const jinja_word *w = t->words[bucket_of(text, bytes)]; w; w = w->next)
        if (w->bytes == bytes && memcmp(w->text, text, bytes) == 0)
            return w->text;
    return NULL;
}

const char *jinja_intern(jinja_reader *r, const char *text, size_t bytes)
{
    const char *found = jinja_find_word(r->template, text, bytes);
    jinja_word **bucket = &r->template->words[bucket_of(text, bytes)], *word;

    if (found)
        return found;
    word = jinja_reader_take(r, sizeof *word + bytes + 1);
    memcpy(word->text, text, bytes);
    word->bytes = (uint32_t)bytes;
    word->next = *bucket;
    *bucket = word;
    return word->text;
}

const jinja_token *jinja_peek(const jinja_reader *r)
{
    return &r->tokens[r->at];
}

bool jinja_is_operator(const jinja_token *t, const char *text)
{
    return t->kind == JINJA_OPERATOR && t->bytes == strlen(text) &&
           memcmp(t->text, text, t->bytes) == 0;
}

bool jinja_is_name(const jinja_token *t, const char *text)
{
    return t->kind == JINJA_NAME && strcmp(t->text, text) == 0;
}

bool jinja_skip_operator(jinja_reader *r, const char *text)
{
    bool found = jinja_is_operator(jinja_peek(r), text);

    r->at += found;
    return found;
}

bool jinja_skip_name(jinja_reader *r, const char *text)
{
    bool found = jinja_is_name(jinja_peek(r), text);

    r->at += found;
    return found;
}

void jinja_unexpected(jinja_reader *r, const char *wanted)
{
    const jinja_token *t = jinja_peek(r);

    if (t->kind == JINJA_END)
        jinja_refuse(r, WF_EDATA, t->line, t->column, "the template ends where %s is needed",
                     wanted);
    jinja_refuse(r, WF_EDATA, t->line, t->column, "%s is needed, not `%.*s`", wanted,
                 (int)(t->bytes < 40 ? t->bytes : 40), t->text);
}

void jinja_expect_operator(jinja_reader *r, const char *text)
{
    if (!jinja_skip_operator(r, text))
        jinja_unexpected(r, text);
}

void jinja_enter(jinja_reader *r)
{
    const jinja_token *t = jinja_peek(r);

    if (++r->nesting > JINJA_MOST_NESTING)
        jinja_refuse(r, WF_EDATA, t->line, t->column, "this is nested deeper than %d",
                     JINJA_MOST_NESTING);
}

void jinja_leave(jinja_reader *r)
{
    r->nesting--;
}

jinja_node *jinja_node_new(jinja_reader *r, jinja_node_kind kind, const jinja_token *at)
{
    jinja_node *n = jinja_reader_take(r, sizeof *n);

    n->kind = kind;
    n->line = at->line;
    n->column = at->column;
    return n;
}

void jinja_nodes_add(jinja_reader *r, jinja_nodes *nodes, jinja_node *node)
{
    if (nodes->count == nodes->room) {
        uint32_t room = 2 * nodes->room + 4;
        jinja_node **more = jinja_reader_take(r, room * sizeof(jinja_node *));

        if (nodes->count)
            memcpy(more, nodes->node, nodes->count * sizeof(jinja_node *));
        nodes->node = more;
        nodes->room = room;
    }
    nodes->node[nodes->count++] = node;
}

static void expect_end(jinja_reader *r)
{
    if (jinja_peek(r)->kind != JINJA_BLOCK_END)
        jinja_unexpected(r, "%}");
    r->at++;
}

static void statement(jinja_reader *r, jinja_nodes *body);

/* Reads up to a tag that begins with one of some words, after which it stops; returns that
   word. */
static const char *block(jinja_reader *r, jinja_nodes *body, const char *const *ends)
{
    jinja_enter(r);
    for (;;) {
        const jinja_token *t = jinja_peek(r);
        jinja_node *n;

        if (t->kind == JINJA_END) {
            if (ends)
                jinja_unexpected(r, ends[0]);
            jinja_leave(r);
            return NULL;
        }
        r->at++;
        if (t->kind == JINJA_DATA) {
            n = jinja_node_new(r, JINJA_WRITE, t);
            n->value = t->value;
            jinja_nodes_add(r, body, n);
        } else if (t->kind == JINJA_VARIABLE_BEGIN) {
            n = jinja_node_new(r, JINJA_PRINT, t);
            n->a = jinja_parse_tuple(r, true);
            if (jinja_peek(r)->kind != JINJA_VARIABLE_END)
                jinja_unexpected(r, "}}");
            r->at++;
            jinja_nodes_add(r, body, n);
        } else {
            for (int i = 0; ends && ends[i]; i++)
                if (jinja_skip_name(r, ends[i])) {
                    jinja_leave(r);
                    return ends[i];
                }
            statement(r, body);
        }
    }
}

static void parse_if(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endif", "elif", "else", NULL}, *const end[] = {"endif",
                                                                                       NULL};
    const char *word;

    jinja_enter(r);
    n->a = jinja_parse_tuple(r, false);
    expect_end(r);
    r->conditions++;
    word = block(r, &n->body, ends);
    if (strcmp(word, "elif") == 0) {
        jinja_node *next = jinja_node_new(r, JINJA_IF, jinja_peek(r));

        jinja_nodes_add(r, &n->other, next);
        parse_if(r, next);
    } else {
        if (strcmp(word, "else") == 0) {
            expect_end(r);
            block(r, &n->other, end);
        }
        expect_end(r);
    }
    r->conditions--;
    jinja_leave(r);
}

static void parse_for(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endfor", "else", NULL}, *const end[] = {"endfor", NULL};

    n->a = jinja_parse_target(r, false);
    if (!jinja_skip_name(r, "in"))
        jinja_unexpected(r, "in");
    n->b = jinja_parse_tuple(r, false);
    if (jinja_skip_name(r, "if")) {
        r->tests++;
        n->c = jinja_parse_expression(r);
        r->tests--;
    }
    if (jinja_is_name(jinja_peek(r), "recursive"))
        jinja_refuse(r, WF_EUNSUPPORTED, n->line, n->column,
                     "a recursive loop is not supported");
    expect_end(r);
    r->loops++;
    if (strcmp(block(r, &n->body, ends), "else") == 0) {
        r->loops--;
        expect_end(r);
        block(r, &n->other, end);
        r->loops++;
    }
    r->loops--;
    expect_end(r);
}

static void parse_set(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endset", NULL};

    n->a = jinja_parse_target(r, true);
    if (jinja_skip_operator(r, "=")) {
        n->b = jinja_parse_tuple(r, true);
    } else {
        n->kind = JINJA_SET_BLOCK;
        n->b = jinja_parse_filters(r, NULL, false);
        expect_end(r);
        block(r, &n->body, ends);
    }
    expect_end(r);
}

static void parse_macro(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endmacro", NULL};
    const int loops = r->loops;

    if (jinja_peek(r)->kind != JINJA_NAME)
        jinja_unexpected(r, "the name of a macro");
    n->name = jinja_peek(r)->text;
    r->at++;
    jinja_expect_operator(r, "(");
    while (!jinja_skip_operator(r, ")")) {
        jinja_node *parameter;

        if (n->list.count)
            jinja_expect_operator(r, ",");
        parameter = jinja_node_new(r, JINJA_VARIABLE, jinja_peek(r));
        if (jinja_peek(r)->kind != JINJA_NAME)
            jinja_unexpected(r, "the name of a parameter");
        parameter->name = jinja_peek(r)->text;
        r->at++;
        if (jinja_skip_operator(r, "="))
            parameter->a = jinja_parse_expression(r);
        else if (n->list.count && n->list.node[n->list.count - 1]->a)
            jinja_unexpected(r, "a standard, as the parameters before it have");
        jinja_nodes_add(r, &n->list, parameter);
    }
    expect_end(r);
    r->macros++;
    r->loops = 0;
    block(r, &n->body, ends);
    r->loops = loops;
    r->macros--;
    expect_end(r);
}

static void parse_generation(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endgeneration", NULL};
    const int loops = r->loops;

    expect_end(r);
    r->template->marks = true;
    r->loops = 0; /* its body is a function in Jinja: break does not leave it */
    block(r, &n->body, ends);
    r->loops = loops;
    expect_end(r);
}

static void parse_filter_block(jinja_reader *r, jinja_node *n)
{
    static const char *const ends[] = {"endfilter", NULL};

    n->b = jinja_parse_filters(r, NULL, true);
    expect_end(r);
    block(r, &n->body, ends);
    expect_end(r);
}

static void parse_jump(jinja_reader *r, jinja_node *n)
{
    if (!r->loops)
        jinja_refuse(r, WF_EDATA, n->line, n->column, "%s stands in no loop",
                     n->kind == JINJA_BREAK ? "break" : "continue");
    expect_end(r);
}

static void statement(jinja_reader *r, jinja_nodes *body)
{
    static const struct {
        const char *word;
        jinja_node_kind kind;
        void (*parse)(jinja_reader *r, jinja_node *n);
    } known[] = {{"if", JINJA_IF, parse_if},
                 {"for", JINJA_FOR, parse_for},
                 {"set", JINJA_SET, parse_set},
                 {"macro", JINJA_DEFINE, parse_macro},
                 {"generation", JINJA_GENERATION, parse_generation},
                 {"filter", JINJA_FILTER_BLOCK, parse_filter_block},
                 {"break", JINJA_BREAK, parse_jump},
                 {"continue", JINJA_CONTINUE, parse_jump}};
    const jinja_token *t = jinja_peek(r);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (jinja_skip_name(r, known[i].word)) {
            jinja_node *n = jinja_node_new(r, known[i].kind, t);

            jinja_nodes_add(r, body, n);
            known[i].parse(r, n);
            return;
        }
    if (t->kind != JINJA_NAME)
        jinja_unexpected(r, "a statement");
    jinja_refuse(r, WF_EUNSUPPORTED, t->line, t->column, "the statement %.60s is not supported",
                 t->text);
}

void jinja_parse(jinja_reader *r)
{
    block(r, &r->template->body, NULL);
}
