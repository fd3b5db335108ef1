/* apps/gpt_data/commands.h - the commands of gpt_data. Errors: as of what they read and
   write. */
#ifndef WF_APPS_GPT_DATA_COMMANDS_H
#define WF_APPS_GPT_DATA_COMMANDS_H

#include "apps/gpt_data/flags.h"

wf_status app_gpt_data_tokenize(const app_gpt_data_request *q, wf_error *error);
wf_status app_gpt_data_chat(const app_gpt_data_request *q, wf_error *error);
wf_status app_gpt_data_pack(const app_gpt_data_request *q, wf_error *error);
wf_status app_gpt_data_show(const app_gpt_data_request *q, wf_error *error);
wf_status app_gpt_data_train(const app_gpt_data_request *q, wf_error *error);

#endif
