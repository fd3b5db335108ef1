/* apps/gpt_generate/gather_texts.h - texts that other processes have generated come to the first one, which prints. */
#ifndef WF_APPS_GPT_GENERATE_GATHER_TEXTS_H
#define WF_APPS_GPT_GENERATE_GATHER_TEXTS_H

#include "apps/gpt_generate/output.h"
#include <weft/weft.h>

/* Of `dp` copies of the model, each of `tp` ranks, that have dealt the texts. Collective over the world, behind
   wf_gen_run. Errors: of wf_par_gather, WF_ENOMEM, in the context of par. */
wf_status app_gather_texts(app_output *o, wf_rank *rank, wf_par *par, int64_t tp, int64_t dp);

#endif
