/* nn/text/chat/chat_internal.h - templates and rows, as the files of this folder share them. */
#ifndef WF_NN_TEXT_CHAT_CHAT_INTERNAL_H
#define WF_NN_TEXT_CHAT_CHAT_INTERNAL_H

#include "nn/text/chat/chat.h"
#include "nn/text/chat/json_value_internal.h"
#include "nn/text/chat/sources.h"

struct wf_chat_template {
    char *name;
    wf_jinja *plain, *tools; /* tools: of conversations that have some; NULL: the same one */
    wf_chat_specials specials;
    wf_text_json variables; /* no values: none */
    char *ignored;          /* ",a,b," */
    wf_error why;           /* for errors in `variables` */
};

/* A message of a row. */
typedef struct wf_chat_message {
    uint32_t value;   /* in the row's JSON; of a text instead of a message: its content */
    const char *role; /* the message's, where it is a text alone; NULL: it has one */
    bool assistant, trained;
} wf_chat_message;

struct wf_chat_row {
    wf_text_json json;
    wf_chat_message *messages;
    size_t count, room;
    uint32_t tools, documents, variables; /* WF_TEXT_JSON_NONE: there are none */
};

/* The state of a thread that writes. */
struct wf_chat_writer {
    const wf_chat_template *t;
    wf_jinja_run *run;
    const wf_chat_row *row;
    const wf_jinja *jinja; /* the template for this row */
    wf_jinja_value *messages, all, variables;
    size_t room;
    /* The rendered part: the number of messages, and a request for an answer or none. */
    size_t count;
    bool prompt;
};

/* Names under which transformers takes what a model thinks; templates read the first, some the
   second. */
enum { WF_CHAT_REASONING = 3 };
extern const char *const wf_chat_reasoning[WF_CHAT_REASONING];

/* writer.c: renders the first messages of a row. */
wf_status wf_chat_render(wf_chat_writer *w, size_t count, bool prompt, wf_jinja_output *out,
                         wf_error *error);

/* checks.c: refuses messages of which the template, which has been rendered, drops something
   without a word. */
wf_status wf_chat_check(const wf_chat_writer *w, size_t count, wf_error *error);

/* spans.c: finds the trained parts of the first `count` messages, which are written; `turn` is
   the one of LAST and EACH. */
wf_status wf_chat_find_spans(wf_chat_writer *w, wf_chat_train train, size_t turn, size_t count,
                             const wf_jinja_output *out, wf_chat_written *written,
                             wf_error *error);
/* Returns the number of an assistant's turn that is trained, from the first on or from the last
   one back; the row's number of messages: there is none. */
size_t wf_chat_turn(const wf_chat_row *row, size_t number, bool last);

/* Refuses variables that a template gets from elsewhere. */
wf_status wf_chat_check_variables(const wf_text_json *json, uint32_t object);

#endif
