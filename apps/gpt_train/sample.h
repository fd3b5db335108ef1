/* apps/gpt_train/sample.h - --sample: text from the trained model. */
#ifndef WF_APPS_SAMPLE_H
#define WF_APPS_SAMPLE_H

#include "apps/gpt_train/sample_text.h"
#include "apps/options/options.h"
#include <weft/weft.h>

/* The model of a sample, and its prompt. */
typedef struct app_sampled {
    wf_par *par;
    wf_nn_gpt *model;
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    const app_sample_prompt *prompt;
} app_sampled;

/* Generates options->sample tokens after the prompt, or up to the one that ends a text; rank 0
   prints. Collective. stopped: a rank got SIGTERM before the last one, and nothing is
   printed. */
wf_status app_sample_text(const app_options *options, const app_sampled *from, FILE *out,
                          bool *stopped);

/* In a plan: the token of options->sample that sees most of the text. */
void app_sample_plan(const app_options *options, const app_sampled *from);

#endif
