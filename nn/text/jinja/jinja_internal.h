/*
 * nn/text/jinja/jinja_internal.h - chat templates, rendered: the part of Jinja that they use,
 * with the results of transformers.
 *
 *     wf_jinja_compile("chat_template.jinja", text, bytes, &template, &error);
 *     wf_jinja_run_new(&run, &error);
 *     wf_jinja_protect(run, build_variables, &arg, &error);      makes values by the functions
 *                                                                below
 *     wf_jinja_render(run, template, variables, &output, &error);
 *
 * The environment is that of transformers: a sandbox without autoescape, with trim_blocks and
 * lstrip_blocks, break and continue, generation blocks, raise_exception, strftime_now,
 * namespace, dict, range and a tojson that escapes no HTML. What is not supported is an error
 * that names the construct, its line and its column; nothing is skipped.
 */
#ifndef WF_NN_TEXT_JINJA_JINJA_INTERNAL_H
#define WF_NN_TEXT_JINJA_JINJA_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A compiled template: constant, so that several threads may render it. */
typedef struct wf_jinja wf_jinja;

/* Values and output of one thread. */
typedef struct wf_jinja_run wf_jinja_run;

typedef enum wf_jinja_kind {
    WF_JINJA_UNDEFINED, /* `text` is the name of what is missing */
    WF_JINJA_NONE,
    WF_JINJA_BOOL,
    WF_JINJA_INTEGER,
    WF_JINJA_REAL,
    WF_JINJA_TEXT,
    WF_JINJA_MARKUP, /* a text that the filter `safe` marked */
    WF_JINJA_LIST,
    WF_JINJA_TUPLE,
    WF_JINJA_GENERATOR, /* items that can be read once, and have no length */
    WF_JINJA_VIEW,      /* items, keys or values of a dictionary */
    WF_JINJA_RANGE,
    WF_JINJA_DICT,
    WF_JINJA_NAMESPACE,
    WF_JINJA_LOOP,
    WF_JINJA_MACRO,
    WF_JINJA_FUNCTION, /* a global function */
    WF_JINJA_METHOD,   /* a method with its object */
    WF_JINJA_MISSING   /* an argument that was not given */
} wf_jinja_kind;

typedef struct wf_jinja_value {
    wf_jinja_kind kind;
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
} wf_jinja_value;

/**
 * wf_jinja_compile - reads a template
 *
 * @param name  of the template, for errors
 * Owner:   the caller, wf_jinja_free
 * Errors:  WF_EDATA (syntax), WF_EUNSUPPORTED (a construct outside the supported part):
 *          name:line:column; WF_ENOMEM
 */
wf_status wf_jinja_compile(const char *name, const char *text, size_t bytes,
                           wf_jinja **template, wf_error *error);
void wf_jinja_free(wf_jinja *template);

/** wf_jinja_mentions - says whether a word is the name of a variable, an attribute or a text
 * constant of the template */
bool wf_jinja_mentions(const wf_jinja *template, const char *word, size_t bytes);

/** wf_jinja_marks - says whether the template has generation blocks */
bool wf_jinja_marks(const wf_jinja *template);

/** wf_jinja_run_new - Owner: the caller, wf_jinja_run_free */
wf_status wf_jinja_run_new(wf_jinja_run **run, wf_error *error);
void wf_jinja_run_free(wf_jinja_run *run);

/** wf_jinja_run_reset - drops all values */
void wf_jinja_run_reset(wf_jinja_run *run);

/**
 * wf_jinja_protect - calls `build`, which makes values; where one of the functions below finds
 * no memory or a key that cannot be, it leaves `build` at once (longjmp)
 *
 * Errors: WF_EDATA, WF_ENOMEM
 */
wf_status wf_jinja_protect(wf_jinja_run *run, void (*build)(wf_jinja_run *run, void *arg),
                           void *arg, wf_error *error);

/* Values. Texts are not copied; they stay valid until the run is reset. */
wf_jinja_value wf_jinja_none(void);
wf_jinja_value wf_jinja_bool(bool truth);
wf_jinja_value wf_jinja_integer(int64_t integer);
wf_jinja_value wf_jinja_real(double real);
wf_jinja_value wf_jinja_text(wf_jinja_run *run, const char *text, size_t bytes);
wf_jinja_value wf_jinja_list(wf_jinja_run *run);
wf_jinja_value wf_jinja_dict(wf_jinja_run *run);
void wf_jinja_list_add(wf_jinja_run *run, wf_jinja_value list, wf_jinja_value item);

/** wf_jinja_dict_set - sets or replaces the value of a key */
void wf_jinja_dict_set(wf_jinja_run *run, wf_jinja_value dict, wf_jinja_value key,
                       wf_jinja_value value);

/** wf_jinja_dict_get - the value of a key; of kind WF_JINJA_MISSING: there is none */
wf_jinja_value wf_jinja_dict_get(wf_jinja_value dict, const char *key);

/** wf_jinja_was_read - says whether a render has read the value of a key */
bool wf_jinja_was_read(wf_jinja_value dict, const char *key, size_t bytes);

/** wf_jinja_abort - records an error and leaves `build` of wf_jinja_protect */
_Noreturn void wf_jinja_abort(wf_jinja_run *run, wf_status status, const char *format, ...)
    WF_PRINTF(3, 4);

/* Bytes of the output that a generation block wrote. */
typedef struct wf_jinja_span {
    size_t begin, end;
} wf_jinja_span;

typedef struct wf_jinja_output {
    const char *text; /* zero-terminated */
    size_t bytes;
    const wf_jinja_span *spans;
    size_t span_count;
} wf_jinja_output;

/**
 * wf_jinja_render - writes a template with the variables of a dictionary
 *
 * Owner:   the run: valid until its next render
 * Errors:  WF_EDATA (what raise_exception says, what Python would raise, more than the limits
 *          of steps, depth and output), WF_EUNSUPPORTED: name:line:column; WF_ENOMEM
 */
wf_status wf_jinja_render(wf_jinja_run *run, const wf_jinja *template, wf_jinja_value variables,
                          wf_jinja_output *output, wf_error *error);

#endif
