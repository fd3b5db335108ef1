/*
 * apps/gpt_train/resume.h - checkpoints that a run may continue from, by whether its flags fit
 * them.
 *
 * Mesh, strategy, threads and micro-batch may differ freely. A flag that makes another model is
 * refused; one that makes other numbers from here on (rate, data, seed, ..) is reported and
 * allowed.
 */
#ifndef WF_APPS_RESUME_H
#define WF_APPS_RESUME_H

#include "apps/options/options.h"
#include "parallel/checkpoint/resume.h"
#include <weft/weft.h>

/* Returns which checkpoints a run may continue from, and the check that its flags fit them. */
wf_resume_options app_resume_options(const app_options *options);

/* Reports on stderr which flags differ from those of a checkpoint. */
void app_resume_warn(const app_options *options, const wf_par_checkpoint *checkpoint);

/* Adds to the error of a checkpoint that does not fit the model which flags may be why. */
void app_resume_explain(const app_options *options, const wf_par_checkpoint *checkpoint,
                        wf_error *error);

/* Returns the flags that a checkpoint keeps: key, value, ..; NULL where memory ran out. Owner:
   caller, app_resume_free_texts. */
char **app_resume_texts(const app_options *options, int64_t *count);
void app_resume_free_texts(char **texts, int64_t count);

#endif
