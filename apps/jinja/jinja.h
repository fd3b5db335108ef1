/*
 * apps/jinja/jinja.h - chat templates, rendered: the part of Jinja that they use, with the results of transformers.
 *
 *     app_jinja_compile("chat_template.jinja", text, bytes, &template, &error);
 *     app_jinja_run_new(&run, &error);
 *     app_jinja_protect(run, build_variables, &arg, &error);      makes values by the functions below
 *     app_jinja_render(run, template, variables, &output, &error);
 *
 * The environment is that of transformers: a sandbox without autoescape, with trim_blocks and lstrip_blocks, break and
 * continue, generation blocks, raise_exception, strftime_now, namespace, dict, range and a tojson that escapes no HTML.
 * What is not supported is an error that names the construct, its line and its column; nothing is skipped.
 */
#ifndef WF_APPS_JINJA_JINJA_H
#define WF_APPS_JINJA_JINJA_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A compiled template: constant, so that several threads may render it. */
typedef struct app_jinja app_jinja;

/* Values and output of one thread. */
typedef struct app_jinja_run app_jinja_run;

typedef enum app_jinja_kind {
    APP_JINJA_UNDEFINED, /* `text` is the name of what is missing */
    APP_JINJA_NONE,
    APP_JINJA_BOOL,
    APP_JINJA_INTEGER,
    APP_JINJA_REAL,
    APP_JINJA_TEXT,
    APP_JINJA_MARKUP, /* a text that the filter `safe` marked */
    APP_JINJA_LIST,
    APP_JINJA_TUPLE,
    APP_JINJA_GENERATOR, /* items that can be read once, and have no length */
    APP_JINJA_VIEW,      /* items, keys or values of a dictionary */
    APP_JINJA_RANGE,
    APP_JINJA_DICT,
    APP_JINJA_NAMESPACE,
    APP_JINJA_LOOP,
    APP_JINJA_MACRO,
    APP_JINJA_FUNCTION, /* a global function */
    APP_JINJA_METHOD,   /* a method with its object */
    APP_JINJA_MISSING   /* an argument that was not given */
} app_jinja_kind;

typedef struct app_jinja_value {
    app_jinja_kind kind;
    uint32_t bytes; /* a text's */
    union {
        bool truth;
        int64_t integer;
        double real;
        const char *text; /* UTF-8, without an end */
        struct jinja_list *list;
        struct jinja_dict *dict; /* a namespace's too */
        struct jinja_loop *loop;
        struct jinja_macro *macro;
        struct jinja_method *method;
        const struct jinja_function *function;
    };
} app_jinja_value;

/**
 * app_jinja_compile - reads a template
 *
 * @param name  of the template, for errors
 * Owner:   the caller, app_jinja_free
 * Errors:  WF_EDATA (syntax), WF_EUNSUPPORTED (a construct outside the supported part): name:line:column; WF_ENOMEM
 */
wf_status app_jinja_compile(const char *name, const char *text, size_t bytes,
                            app_jinja **template, wf_error *error);
void app_jinja_free(app_jinja *template);

/** app_jinja_mentions - says whether a word is the name of a variable, an attribute or a text constant of the template */
bool app_jinja_mentions(const app_jinja *template, const char *word, size_t bytes);

/** app_jinja_marks - says whether the template has generation blocks */
bool app_jinja_marks(const app_jinja *template);

/** app_jinja_run_new - Owner: the caller, app_jinja_run_free */
wf_status app_jinja_run_new(app_jinja_run **run, wf_error *error);
void app_jinja_run_free(app_jinja_run *run);

/** app_jinja_run_reset - drops all values */
void app_jinja_run_reset(app_jinja_run *run);

/**
 * app_jinja_protect - calls `build`, which makes values; where one of the functions below finds no memory or a key that
 * cannot be, it leaves `build` at once (longjmp)
 *
 * Errors: WF_EDATA, WF_ENOMEM
 */
wf_status app_jinja_protect(app_jinja_run *run, void (*build)(app_jinja_run *run, void *arg),
                            void *arg, wf_error *error);

/* Values. Texts are not copied; they stay valid until the run is reset. */
app_jinja_value app_jinja_none(void);
app_jinja_value app_jinja_bool(bool truth);
app_jinja_value app_jinja_integer(int64_t integer);
app_jinja_value app_jinja_real(double real);
app_jinja_value app_jinja_text(app_jinja_run *run, const char *text, size_t bytes);
app_jinja_value app_jinja_list(app_jinja_run *run);
app_jinja_value app_jinja_dict(app_jinja_run *run);
void app_jinja_list_add(app_jinja_run *run, app_jinja_value list, app_jinja_value item);

/** app_jinja_dict_set - sets the value of a key, in place of one that it has */
void app_jinja_dict_set(app_jinja_run *run, app_jinja_value dict, app_jinja_value key,
                        app_jinja_value value);

/** app_jinja_dict_get - the value of a key; of kind APP_JINJA_MISSING: there is none */
app_jinja_value app_jinja_dict_get(app_jinja_value dict, const char *key);

/** app_jinja_was_read - says whether a render has read the value of a key */
bool app_jinja_was_read(app_jinja_value dict, const char *key, size_t bytes);

/** app_jinja_abort - records an error and leaves `build` of app_jinja_protect */
_Noreturn void app_jinja_abort(app_jinja_run *run, wf_status status, const char *format, ...)
    WF_PRINTF(3, 4);

/* Bytes of the output that a generation block wrote. */
typedef struct app_jinja_span {
    size_t begin, end;
} app_jinja_span;

typedef struct app_jinja_output {
    const char *text; /* zero-terminated */
    size_t bytes;
    const app_jinja_span *spans;
    size_t span_count;
} app_jinja_output;

/**
 * app_jinja_render - writes a template with the variables of a dictionary
 *
 * Owner:   the run: valid until it renders again
 * Errors:  WF_EDATA (what raise_exception says, what Python would raise, more than the limits of steps, depth and
 *          output), WF_EUNSUPPORTED: name:line:column; WF_ENOMEM
 */
wf_status app_jinja_render(app_jinja_run *run, const app_jinja *template,
                           app_jinja_value variables, app_jinja_output *output,
                           wf_error *error);

#endif
