/* parallel/models/gpt/pretrained_internal.h - loading a pretrained model by file calls of one's own. */
#ifndef WF_PARALLEL_MODELS_GPT_PRETRAINED_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_PRETRAINED_INTERNAL_H

#include "parallel/models/gpt/pretrained.h"
#include "parallel/files/files_internal.h"

/* wf_par_pretrained_load by these calls. */
wf_status wf_hf_load(wf_par *par, wf_nn_gpt *model, const wf_file_calls *calls,
                     const char *folder);

#endif
