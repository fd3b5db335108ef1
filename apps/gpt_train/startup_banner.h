/* apps/gpt_train/startup_banner.h - what a run says first. */
#ifndef WF_APPS_TRAIN_STARTUP_BANNER_H
#define WF_APPS_TRAIN_STARTUP_BANNER_H

#include "nn/dataset/dataset.h"
#include "apps/options/options.h"
#include <stdio.h>
#include <weft/weft.h>

/* Prints model, mesh and, where there is any, data. A vocabulary that is larger than the bytes
   of a text need is reported on stderr. */
void app_print_banner(FILE *out, const app_options *options, wf_nn_module *model,
                      const wf_par_pipeline *pipeline, const wf_dataset *data);

#endif
