/* apps/setup.h - the flags as the library's options, for a run and for its plan. */
#ifndef WF_APPS_SETUP_H
#define WF_APPS_SETUP_H

#include "apps/options.h"
#include <weft/weft.h>

wf_par_options wf_setup_rank(const wf_options *options, bool plan);
wf_nn_gpt_config wf_setup_model(const wf_options *options);
wf_par_train_options wf_setup_training(const wf_options *options);

#endif
