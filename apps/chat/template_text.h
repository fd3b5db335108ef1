/* apps/chat/template_text.h - the chat template that a folder of Hugging Face has, as it stands there: Jinja. */
#ifndef WF_APPS_CHAT_TEMPLATE_TEXT_H
#define WF_APPS_CHAT_TEMPLATE_TEXT_H

#include "core/status.h"
#include <stddef.h>

/**
 * app_chat_template_text - of chat_template.jinja, or "chat_template" of tokenizer_config.json: a text, or, of
 * several, the one that is called "default"
 *
 * @param text  with an end behind it; NULL: the folder has none
 * Owner:   caller, free
 * Errors:  WF_EIO, WF_EDATA (file and key), WF_ENOMEM
 */
wf_status app_chat_template_text(const char *folder, char **text, size_t *bytes,
                                 wf_error *error);

#endif
