/* apps/chat/row.h - a line of chat data: a conversation in JSON, from strangers. */
#ifndef WF_APPS_CHAT_ROW_H
#define WF_APPS_CHAT_ROW_H

#include "apps/chat/chat.h"

typedef struct app_chat_row app_chat_row;

/**
 * app_chat_row_read - reads {"messages": [{"role": .., "content": ..}, ..]}, or {"prompt": .., "completion": ..}, whose
 * values are such lists, or what a user says and what the assistant answers
 *
 * @param name  of the line, for errors
 * Owner:   the caller, app_chat_row_free, in any case
 * Errors:  WF_EDATA (name and key), WF_EUNSUPPORTED (roles other than system, user and assistant; contents that are
 *          no text; calls of tools), WF_ENOMEM; *row is then NULL
 */
wf_status app_chat_row_read(const char *name, const char *text, size_t bytes,
                            app_chat_row **row, wf_error *error);
void app_chat_row_free(app_chat_row *row);

/** app_chat_row_messages - what is said, in its order. Owner: the row. */
const app_chat_message *app_chat_row_messages(const app_chat_row *row, size_t *count);

#endif
