/*
 * apps/gpt_train/resume.h - which checkpoints a run may go on from, and whether its flags fit
 * them.
 *
 * Mesh, strategy, threads and micro-batch may differ freely. A flag that makes another model is
 * refused; one that makes other numbers from here on (rate, data, seed, ..) is told and
 * allowed.
 */
#ifndef WF_APPS_RESUME_H
#define WF_APPS_RESUME_H

#include "apps/options/options.h"
#include "parallel/checkpoint/resume.h"
#include <weft/weft.h>

/*
 * Opens what --resume says (parallel/checkpoint/resume.h). Owner: caller, wf_resume_close.
 * WF_EINVAL: flags, or tensors of other shapes, that don't fit; else there is no checkpoint
 * that can be used.
 */
wf_status app_resume_open(const app_options *options, wf_resume *resume, wf_error *error);

/* Whether checkpoints are looked for at all. */
bool app_resume_looks(const app_options *options);

/* Returns whether the run may continue one before it, and so its logs: it looks for checkpoints
   or for what hosts have kept. It may begin again all the same, where it was ended before there
   were any. */
bool app_resume_continues(const app_options *options);

/* Tell on stderr which flags differ from those of a checkpoint. */
void app_resume_tell(const app_options *options, const wf_par_checkpoint *checkpoint);

/* A checkpoint does not fit the model: say which flags may be why, behind the text of the
   error. */
void app_resume_explain(const app_options *options, const wf_par_checkpoint *checkpoint,
                        wf_error *error);

/* The flags that a checkpoint keeps: key, value, ..; NULL where memory ran out. Owner: caller,
   app_resume_free_texts. */
char **app_resume_texts(const app_options *options, int64_t *count);
void app_resume_free_texts(char **texts, int64_t count);

#endif
