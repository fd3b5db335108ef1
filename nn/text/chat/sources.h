/* nn/text/chat/sources.h - the chat templates of a Hugging Face folder, unparsed, and its
   special tokens. */
#ifndef WF_NN_TEXT_CHAT_SOURCES_H
#define WF_NN_TEXT_CHAT_SOURCES_H

#include "core/status.h"
#include <stddef.h>

WF_BEGIN_DECLS

enum { WF_CHAT_MOST_SOURCES = 16, WF_CHAT_MOST_SPECIAL = 32 };

typedef struct wf_chat_source {
    char *name; /* "default", "tool_use", .. */
    char *text; /* Jinja, with a zero byte after it */
    size_t bytes;
    char *file;
} wf_chat_source;

/* Zero-initialise it. */
typedef struct wf_chat_sources {
    wf_chat_source item[WF_CHAT_MOST_SOURCES];
    int count;
} wf_chat_sources;

/**
 * wf_chat_sources_read - reads chat_template.jinja and additional_chat_templates/NAME.jinja,
 * or, where none of them is there, "chat_template" of tokenizer_config.json: a text, or several
 * with names
 *
 * Owner:   the caller, wf_chat_sources_free in any case
 * Errors:  WF_EIO, WF_EDATA (file and key), WF_ENOMEM
 */
WF_API wf_status wf_chat_sources_read(const char *folder, wf_chat_sources *sources,
                                      wf_error *error);
WF_API void wf_chat_sources_free(wf_chat_sources *sources);

/** wf_chat_source_find - returns the template of a name; NULL: there is none */
WF_API const wf_chat_source *wf_chat_source_find(const wf_chat_sources *sources,
                                                 const char *name);

/* A special token as templates know it: "bos_token" and its text. */
typedef struct wf_chat_special {
    char *name, *text;
} wf_chat_special;

typedef struct wf_chat_specials {
    wf_chat_special item[WF_CHAT_MOST_SPECIAL];
    int count;
} wf_chat_specials;

/**
 * wf_chat_specials_read - reads the special tokens of tokenizer_config.json and
 * special_tokens_map.json, and for those that they do not name, the defaults of transformers
 * for the tokenizer's class
 *
 * Owner:   the caller, wf_chat_specials_free in any case
 * Errors:  WF_EIO, WF_EDATA (file and key), WF_ENOMEM
 */
WF_API wf_status wf_chat_specials_read(const char *folder, wf_chat_specials *specials,
                                       wf_error *error);
WF_API void wf_chat_specials_free(wf_chat_specials *specials);

WF_END_DECLS

#endif
