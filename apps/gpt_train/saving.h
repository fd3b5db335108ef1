/* apps/gpt_train/saving.h - checkpoints of the flags' run: parallel/program/saving.h with what
   gpt_train keeps in them. */
#ifndef WF_APPS_SAVING_H
#define WF_APPS_SAVING_H

#include "apps/gpt_train/resume.h"
#include "parallel/program/saving.h"
#include <weft/weft.h>

/* Texts that the flags add to a rank's checkpoints. */
typedef struct app_saving {
    const app_options *options;
    const char **texts; /* in checkpoints: the flags, and the base of adapters */
    char **flags;
    int64_t flag_count;
    char base[17]; /* the checksum of what adapters are for, or "" */
} app_saving;

/* Returns how the flags save. */
wf_saving_options app_saving_options(const app_options *options);

/* Makes the texts, where the run has steps, and adds them to the options, which refer to them.
   Collective. Errors: in the context. Owner: caller, app_saving_close, also after errors. */
wf_status app_saving_open(app_saving *s, const app_options *options, wf_par *par,
                          wf_nn_gpt *model, wf_saving_options *saving);
void app_saving_close(app_saving *s);

#endif
