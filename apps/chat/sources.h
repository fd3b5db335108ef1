/* apps/chat/sources.h - the chat templates that a folder of Hugging Face has, as they stand there, and its special tokens. */
#ifndef WF_APPS_CHAT_SOURCES_H
#define WF_APPS_CHAT_SOURCES_H

#include "core/status.h"
#include <stddef.h>

enum { APP_CHAT_MOST_SOURCES = 16, APP_CHAT_MOST_SPECIAL = 32 };

typedef struct app_chat_source {
    char *name; /* "default", "tool_use", .. */
    char *text; /* Jinja, with an end behind it */
    size_t bytes;
    char *file;
} app_chat_source;

/* Zero-initialise it. */
typedef struct app_chat_sources {
    app_chat_source item[APP_CHAT_MOST_SOURCES];
    int count;
} app_chat_sources;

/**
 * app_chat_sources_read - reads chat_template.jinja and additional_chat_templates/NAME.jinja, or, where none of them is
 * there, "chat_template" of tokenizer_config.json: a text, or several with names
 *
 * Owner:   the caller, app_chat_sources_free in any case
 * Errors:  WF_EIO, WF_EDATA (file and key), WF_ENOMEM
 */
wf_status app_chat_sources_read(const char *folder, app_chat_sources *sources, wf_error *error);
void app_chat_sources_free(app_chat_sources *sources);

/** app_chat_source_find - the template of a name; NULL: there is none */
const app_chat_source *app_chat_source_find(const app_chat_sources *sources, const char *name);

/* A special token as templates know it: "bos_token" and its text. */
typedef struct app_chat_special {
    char *name, *text;
} app_chat_special;

typedef struct app_chat_specials {
    app_chat_special item[APP_CHAT_MOST_SPECIAL];
    int count;
} app_chat_specials;

/**
 * app_chat_specials_read - reads the special tokens of tokenizer_config.json and special_tokens_map.json; of those that
 * they do not name, the ones that transformers gives the class of the tokenizer
 *
 * Owner:   the caller, app_chat_specials_free in any case
 * Errors:  WF_EIO, WF_EDATA (file and key), WF_ENOMEM
 */
wf_status app_chat_specials_read(const char *folder, app_chat_specials *specials,
                                 wf_error *error);
void app_chat_specials_free(app_chat_specials *specials);

#endif
