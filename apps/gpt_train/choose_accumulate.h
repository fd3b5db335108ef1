/* apps/gpt_train/choose_accumulate.h - what --accumulate auto and the default of --micro-batch-size stand for. */
#ifndef WF_APPS_CHOOSE_ACCUMULATE_H
#define WF_APPS_CHOOSE_ACCUMULATE_H

#include "apps/options/options.h"
#include <weft/weft.h>

enum { APP_CHOICE_TOLD = 400 };

/* Micro-batches of one sequence, whose gradients are reduced in each micro-step where nothing else is asked: the numbers of one rank
   on any number of data-parallel ranks, for any batch. Where the strategy has groups which its way of that does not serve, over all
   ranks. False, and nothing changed: none serves. */
bool app_choose_single(app_options *options, bool (*serves)(const app_options *options));

/*
 * With --device-memory, or the memory of --machine's devices (a plan) or --paced's (a run), --accumulate auto becomes the way of summing gradients over data-parallel ranks that moves
 * least of those that fit, by dry runs of every pipeline rank: local, then groups, the largest first, then
 * reduced. Where none fits, or nothing limits, it stays auto, which the strategy decides. The numbers
 * are the same.
 * told:    a line about it; "" where it stays
 * Errors:  none: what cannot be planned is left to the run to tell
 */
void app_choose_accumulate(app_options *options, char told[APP_CHOICE_TOLD]);

/* Micro-batches of one sequence as well, where the data-parallel ranks do not divide the batch, or where --micro-batch-size is not
   asked for and so many ranks have the numbers of one with these alone (docs/strategies.md). Each choice has its line on stdout where `tell` is true. */
void app_choose_sums(app_options *options, bool tell);

#endif
