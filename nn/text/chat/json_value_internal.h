/* nn/text/chat/json_value_internal.h - JSON as values of a chat template. */
#ifndef WF_NN_TEXT_CHAT_JSON_VALUE_INTERNAL_H
#define WF_NN_TEXT_CHAT_JSON_VALUE_INTERNAL_H

#include "nn/text/jinja/jinja_internal.h"
#include "nn/text/json.h"

/* Returns the value of JSON, whose texts stay in `json`. Called within wf_jinja_protect; a key
   that is there twice and a whole number beyond 64 bits are refused. */
wf_jinja_value wf_chat_json_value(wf_jinja_run *run, const wf_text_json *json, uint32_t value);

#endif
