/* apps/gpt_train/calibrate.h - gpt_train --calibrate FILE: the figures of this machine, for
   --plan --machine. */
#ifndef WF_APPS_CALIBRATE_H
#define WF_APPS_CALIBRATE_H

#include "apps/gpt_train/job.h"
#include <stdio.h>
#include <weft/weft.h>

/* Runs the model of the job for a few steps on every core at once, each a data-parallel rank
   that looks at what its ops take; then collectives between them; and write a machine file. */
wf_status app_calibrate(app_job *job, FILE *out, wf_error *error);

#endif
