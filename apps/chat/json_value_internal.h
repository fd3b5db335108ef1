/* apps/chat/json_value_internal.h - JSON as values of a chat template. */
#ifndef WF_APPS_CHAT_JSON_VALUE_INTERNAL_H
#define WF_APPS_CHAT_JSON_VALUE_INTERNAL_H

#include "apps/jinja/jinja.h"
#include "apps/tokenizer/json_internal.h"

/* Returns the value of JSON, whose texts stay in `json`. Called within app_jinja_protect; a key that is there twice and a
   whole number beyond 64 bits are refused. */
app_jinja_value app_chat_json_value(app_jinja_run *run, const app_json *json, uint32_t value);

#endif
