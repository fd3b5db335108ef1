/* apps/gpt_train/first_lines.h - what a run says first. */
#ifndef WF_APPS_FIRST_LINES_H
#define WF_APPS_FIRST_LINES_H

#include "nn/dataset/dataset.h"
#include "apps/options/options.h"
#include <stdio.h>
#include <weft/weft.h>

/* Prints model, mesh and, where there is any, data. A vocabulary that is larger than the bytes
   of a text need is reported on stderr. */
void app_first_lines(FILE *out, const app_options *options, wf_nn_module *model,
                     const wf_par_pipeline *pipeline, const wf_dataset *data);

#endif
