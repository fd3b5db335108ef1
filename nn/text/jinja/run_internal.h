/* nn/text/jinja/run_internal.h - values, and a template that is being rendered. */
#ifndef WF_NN_TEXT_JINJA_RUN_INTERNAL_H
#define WF_NN_TEXT_JINJA_RUN_INTERNAL_H

#include "nn/text/jinja/ast_internal.h"
#include <string.h>

typedef wf_jinja_value value;

typedef struct jinja_list {
    value *items;
    size_t count, room;
    size_t taken;     /* GENERATOR: items that were read */
    const char *name; /* VIEW: dict_items, dict_keys or dict_values */
} jinja_list;

typedef struct jinja_entry {
    value key, value;
    bool read;
} jinja_entry;

typedef struct jinja_dict {
    jinja_entry *entries;
    uint32_t *index; /* open addressing: number of an entry, from 1 on; NULL for few */
    size_t count, room, index_room;
} jinja_dict;

typedef struct jinja_loop {
    const value *items;
    size_t count, at;
    int64_t depth;
    value changed; /* last value of loop.changed; MISSING: none yet */
} jinja_loop;

typedef struct jinja_variable {
    const char *name; /* interned */
    value value;
    struct jinja_variable *next;
} jinja_variable;

typedef struct jinja_scope {
    struct jinja_scope *parent;
    jinja_variable *variables;
} jinja_scope;

typedef struct jinja_macro {
    const jinja_node *node;
    jinja_scope *scope;
} jinja_macro;

/* Arguments as they are given. */
typedef struct jinja_args {
    const value *values;
    const char *const *names; /* NULL for those without a name */
    size_t count;
} jinja_args;

typedef struct jinja_method {
    const struct jinja_row *row;
    value object;
} jinja_method;

/* A filter, a test, a method or a global function. Parameters: "first second|third" has two
   that must be given. */
typedef struct jinja_row {
    const char *name, *parameters;
    value (*call)(wf_jinja_run *run, value input, const value *args);
} jinja_row;

typedef struct jinja_function {
    const char *name;
    value (*call)(wf_jinja_run *run, const jinja_args *args);
} jinja_function;

enum {
    JINJA_MOST_ARGS = 8,
    JINJA_MOST_DEPTH = 1200,
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    JINJA_MOST_STEPS = 100000,
#else
    JINJA_MOST_STEPS = 20000000,
#endif
    JINJA_MOST_MEMORY = 256 << 20,
    JINJA_MOST_OUTPUT = 64 << 20,
    JINJA_MOST_RANGE = 100000
};

struct wf_jinja_run {
    jinja_arena arena;
    const wf_jinja *template;
    const jinja_node *at; /* position of an error */
    wf_error *error;
    jmp_buf jump;
    jinja_scope *scope; /* the innermost one */
    uint64_t steps;
    int depth, captures;
    char *out;
    size_t out_bytes, out_room;
    wf_jinja_span *spans;
    size_t span_count, span_room;
};

/* Errors leave a render at once. */
_Noreturn void jinja_fail(wf_jinja_run *run, const char *format, ...) WF_PRINTF(2, 3);
_Noreturn void jinja_unsupported(wf_jinja_run *run, const char *format, ...) WF_PRINTF(2, 3);
void *jinja_take(wf_jinja_run *run, size_t bytes);
/* Counts work: one step, and one for each 64 bytes or items. */
void jinja_work(wf_jinja_run *run, size_t size);
void jinja_deeper(wf_jinja_run *run);

/* Values. */
static inline bool jinja_is_text(value v)
{
    return v.kind == WF_JINJA_TEXT || v.kind == WF_JINJA_MARKUP;
}
static inline bool jinja_is_list(value v)
{
    return v.kind >= WF_JINJA_LIST && v.kind <= WF_JINJA_RANGE;
}
static inline bool jinja_is_integer(value v)
{
    return v.kind == WF_JINJA_INTEGER || v.kind == WF_JINJA_BOOL;
}
static inline bool jinja_is_number(value v)
{
    return jinja_is_integer(v) || v.kind == WF_JINJA_REAL;
}
static inline bool jinja_equals_word(value v, const char *word)
{
    return v.bytes == strlen(word) && memcmp(v.text, word, v.bytes) == 0;
}
int64_t jinja_integer_of(value v);
double jinja_real_of(value v);
value jinja_undefined(const char *name);
value jinja_text_copy(wf_jinja_run *run, const char *text, size_t bytes);
value jinja_text_format(wf_jinja_run *run, const char *format, ...) WF_PRINTF(2, 3);
value jinja_list_of(wf_jinja_run *run, wf_jinja_kind kind, size_t room);
const char *jinja_type(value v); /* as Python calls it */
bool jinja_truth(wf_jinja_run *run, value v);
bool jinja_equal(wf_jinja_run *run, value a, value b);
int jinja_order(wf_jinja_run *run, value a,
                value b); /* -1, 0, 1; an error where Python has one */
bool jinja_contains(wf_jinja_run *run, value in, value what);
size_t jinja_length(wf_jinja_run *run, value v);
/* Returns what iterating has: the items of lists, the keys of dictionaries, the characters of
   texts. */
jinja_list *jinja_iterate(wf_jinja_run *run, value v);
const jinja_entry *jinja_dict_find(const jinja_dict *dict, value key, bool mark);
value jinja_dict_view(wf_jinja_run *run, value dict, char part, wf_jinja_kind kind);
bool jinja_same_key(value a, value b);
void jinja_check_key(wf_jinja_run *run, value key);

/* Attributes and items. */
value jinja_attribute(wf_jinja_run *run, value of, const char *name);
value jinja_item(wf_jinja_run *run, value of, value key);
value jinja_slice(wf_jinja_run *run, value of, const value part[3]);
/* Returns the item by a name such as "function.name", or by a number. */
value jinja_by_path(wf_jinja_run *run, value of, value path);

/* Texts. */
bool jinja_is_space(uint32_t character);
size_t jinja_character(const char *text, size_t bytes,
                       uint32_t *character); /* bytes of the first one */
size_t jinja_characters(wf_jinja_run *run, value text);
size_t jinja_put_utf8(char *to, uint32_t character);
value jinja_string(wf_jinja_run *run, value v); /* str(v) */
value jinja_strip(wf_jinja_run *run, value text, value characters, bool left, bool right);
value jinja_split(wf_jinja_run *run, value text, value separator, int64_t most);
value jinja_split_lines(wf_jinja_run *run, value text, bool ends);
value jinja_replace(wf_jinja_run *run, value text, value old, value with, int64_t most);
const char *jinja_search(wf_jinja_run *run, value text, value what, size_t from);
value jinja_case(
    wf_jinja_run *run, value text,
    char how); /* 'l'ower, 'u'pper, 'c'apitalize, 't'itle, 'w': the filter's title */
value jinja_escape(wf_jinja_run *run, value text);
value jinja_formatted(wf_jinja_run *run, value format, value given); /* format % given */
value jinja_json(wf_jinja_run *run, value v, const value *args);
size_t jinja_real_text(double real, char to[40]);

/* A text that grows at the end of the arena's newest output. */
typedef struct jinja_builder {
    wf_jinja_run *run;
    char *data;
    size_t bytes, room;
} jinja_builder;
void jinja_build(jinja_builder *b, const char *text, size_t bytes);
void jinja_build_word(jinja_builder *b, const char *word);
void jinja_build_repr(jinja_builder *b, value v); /* repr(v) */
value jinja_built(const jinja_builder *b);

/* Calls. */
void jinja_bind(wf_jinja_run *run, const char *name, const char *parameters,
                const jinja_args *args, value bound[JINJA_MOST_ARGS]);
value jinja_call_value(wf_jinja_run *run, value what, const jinja_args *args);
value jinja_call_row(wf_jinja_run *run, const jinja_row *row, value input,
                     const jinja_args *args);
const jinja_row *jinja_find_filter(const char *name);
const jinja_row *jinja_find_test(const char *name);
const jinja_row *jinja_find_method(value of, const char *name);
bool jinja_is_python_attribute(value of, const char *name);
bool jinja_changes_object(value of, const char *name);
const jinja_function *jinja_find_function(const char *name);

/* Evaluation. */
value jinja_evaluate(wf_jinja_run *run, const jinja_node *node);
value jinja_binary(wf_jinja_run *run, int op, value a, value b);
value jinja_unary(wf_jinja_run *run, int op, value a);
bool jinja_compare(wf_jinja_run *run, int op, value a, value b);
value jinja_call_macro(wf_jinja_run *run, const jinja_macro *macro, const jinja_args *args);
void jinja_set(wf_jinja_run *run, const char *name, value v);
void jinja_put(wf_jinja_run *run, const char *text, size_t bytes);
void jinja_execute_template(wf_jinja_run *run);

extern const jinja_row jinja_filters[], jinja_list_filters[], jinja_tests[];

#endif
