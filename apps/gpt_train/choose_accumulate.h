/* apps/gpt_train/choose_accumulate.h - what --accumulate auto stands for where a rank's memory is limited. */
#ifndef WF_APPS_CHOOSE_ACCUMULATE_H
#define WF_APPS_CHOOSE_ACCUMULATE_H

#include "apps/options/options.h"
#include <weft/weft.h>

enum { APP_CHOICE_TOLD = 400 };

/*
 * With --device-memory, or the memory of --machine's devices (a plan) or --paced's (a run), --accumulate auto becomes the way of summing gradients over data-parallel ranks that moves
 * least of those that fit, by dry runs of every pipeline rank: local, then groups, the largest first, then
 * reduced. Where none fits, or nothing limits, it stays auto, which the strategy decides. The numbers
 * are the same.
 * told:    a line about it; "" where it stays
 * Errors:  none: what cannot be planned is left to the run to tell
 */
void app_choose_accumulate(app_options *options, char told[APP_CHOICE_TOLD]);

#endif
