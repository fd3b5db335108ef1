/* apps/gpt_generate/gather_texts.h - gathers texts that other processes have generated to the
   first one, which prints. */
#ifndef WF_APPS_GPT_GENERATE_GATHER_TEXTS_H
#define WF_APPS_GPT_GENERATE_GATHER_TEXTS_H

#include "apps/gpt_generate/output.h"
#include <weft/weft.h>

/* Gathers the texts to rank 0, from `dp` copies of the model, each of `tp` ranks, over which
   they were divided. Collective over the world, after wf_gen_run. Errors: of wf_par_gather,
   WF_ENOMEM, in the context of par. */
wf_status app_gather_texts(app_output *o, wf_rank *rank, wf_par *par, int64_t tp, int64_t dp);

#endif
