/* apps/gpt_train/train_loop.h - what every rank of gpt_train does. */
#ifndef WF_APPS_TRAIN_LOOP_H
#define WF_APPS_TRAIN_LOOP_H

#include "apps/gpt_train/train_job.h"

/* rank_main of wf_launch; arg is the app_train_job. */
wf_status app_train_rank(wf_rank *rank, void *arg);

#endif
