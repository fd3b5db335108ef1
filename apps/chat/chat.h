/*
 * apps/chat/chat.h - conversations as the text, and the token ids, that a model was trained on.
 *
 *     app_chat_template_find("smollm2", NULL, &template, &error);
 *     app_chat_text(template, messages, 2, APP_CHAT_PROMPT, &text, &error);
 *     app_chat_encode(encoder, &text, &ids, NULL, &error);
 *
 * Jinja is not run: a folder's template is known by what stands in it, as templates.def says.
 */
#ifndef WF_APPS_CHAT_CHAT_H
#define WF_APPS_CHAT_CHAT_H

#include "apps/tokenizer/tokenizer.h"

typedef struct app_chat_template app_chat_template;

/** app_chat_template_name - as --chat-template takes it. */
const char *app_chat_template_name(const app_chat_template *t);

/**
 * app_chat_template_find - the template of a name, or of a model
 *
 * @param tokenizer  a folder, or a file in one, whose template is looked for where there is no name; NULL: none
 * Errors:  WF_EINVAL (no such name; no folder), WF_EUNSUPPORTED (a template that is not known), and those of
 *          app_chat_template_text; the text says which names there are
 */
wf_status app_chat_template_find(const char *tokenizer, const char *name,
                                 const app_chat_template **t, wf_error *error);

typedef enum app_chat_role { APP_CHAT_SYSTEM, APP_CHAT_USER, APP_CHAT_ASSISTANT } app_chat_role;
enum { APP_CHAT_ROLES = 3 };

typedef struct app_chat_message {
    app_chat_role role;
    const char *content;
    size_t bytes;
} app_chat_message;

/** app_chat_role_of - of "system", "user" or "assistant"; false: of none of them. */
bool app_chat_role_of(const char *text, size_t bytes, app_chat_role *role);

/* What of a text an assistant says, the end of its turn included. */
typedef struct app_chat_span {
    size_t begin, end;
} app_chat_span;

/* Zero-initialise it; it grows as needed and may be used again. */
typedef struct app_chat_written {
    app_tokenizer_bytes text;
    app_chat_span *spans;
    size_t count, room;
} app_chat_written;

void app_chat_written_free(app_chat_written *written);

enum { APP_CHAT_PROMPT = 1 /* the text ends with what asks for an answer */ };

/**
 * app_chat_text - a conversation as text, in place of what `written` had
 *
 * Errors: WF_EDATA (what the template does not allow: a system message that is not the first, or any where it has
 *         none; turns that do not alternate where they must), WF_ENOMEM
 */
wf_status app_chat_text(const app_chat_template *t, const app_chat_message *messages,
                        size_t count, int flags, app_chat_written *written, wf_error *error);

/**
 * app_chat_encode - appends its ids; special tokens that stand in the text are such
 *
 * @param trained  NULL, or gets a 1 for each id that begins in a span, or at its begin, else a 0
 * Errors: WF_EDATA, WF_ENOMEM
 */
wf_status app_chat_encode(app_tokenizer_encoder *encoder, const app_chat_written *written,
                          app_tokenizer_ids *ids, app_tokenizer_ids *trained, wf_error *error);

#endif
