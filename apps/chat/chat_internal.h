/* apps/chat/chat_internal.h - templates and rows, as the files of this folder share them. */
#ifndef WF_APPS_CHAT_CHAT_INTERNAL_H
#define WF_APPS_CHAT_CHAT_INTERNAL_H

#include "apps/chat/chat.h"
#include "apps/chat/json_value_internal.h"
#include "apps/chat/sources.h"

struct app_chat_template {
    char *name;
    app_jinja *plain, *tools; /* tools: of conversations that have some; NULL: the same one */
    app_chat_specials specials;
    app_json variables; /* no values: none */
    char *ignored;      /* ",a,b," */
    wf_error why;       /* for errors in `variables` */
};

/* A message of a row. */
typedef struct app_chat_message {
    uint32_t value;   /* in the row's JSON; of a text that stands for a message: its content */
    const char *role; /* where a text stands for the message; NULL: it has one */
    bool assistant, trained;
} app_chat_message;

struct app_chat_row {
    app_json json;
    app_chat_message *messages;
    size_t count, room;
    uint32_t tools, documents, variables; /* APP_JSON_NONE: there are none */
};

/* What a thread writes with. */
struct app_chat_writer {
    const app_chat_template *t;
    app_jinja_run *run;
    const app_chat_row *row;
    const app_jinja *jinja; /* the template for this row */
    app_jinja_value *messages, all, variables;
    size_t room;
    /* What is rendered: so many messages, and whether an answer is asked for. */
    size_t count;
    bool prompt;
};

/* Names under which transformers takes what a model thinks; templates read the first, some the second. */
enum { APP_CHAT_REASONING = 3 };
extern const char *const app_chat_reasoning[APP_CHAT_REASONING];

/* writer.c: renders the first messages of a row. */
wf_status app_chat_render(app_chat_writer *w, size_t count, bool prompt, app_jinja_output *out,
                          wf_error *error);

/* checks.c: refuses messages of which the template, which has been rendered, drops something without a word. */
wf_status app_chat_check(const app_chat_writer *w, size_t count, wf_error *error);

/* spans.c: finds what is trained of the first `count` messages, which are written; `turn` is the one of LAST and EACH. */
wf_status app_chat_find_spans(app_chat_writer *w, app_chat_train train, size_t turn,
                              size_t count, const app_jinja_output *out,
                              app_chat_written *written, wf_error *error);
/* The number of an assistant's turn that is trained, from the first on or from the last one back; the row's number of
   messages: there is none. */
size_t app_chat_turn(const app_chat_row *row, size_t number, bool last);

/* Refuses variables that a template gets from elsewhere. */
wf_status app_chat_check_variables(const app_json *json, uint32_t object);

#endif
