/* apps/tools/checkpoint_diff.h - two checkpoints, of any layouts, compared bit by bit. */
#ifndef WF_APPS_CHECKPOINT_DIFF_H
#define WF_APPS_CHECKPOINT_DIFF_H

#include "core/status.h"
#include <stdbool.h>
#include <stdio.h>

/*
 * Finds the checkpoint that a path means: itself, or the one that a run would continue from in
 * a directory of them. text has 4096 bytes; false: neither, or, with an error, it cannot be
 * known.
 */
bool app_checkpoint_find(const char *path, char *text, wf_error *error);

/* Say on `out` in which step and tensors they differ, one line each; *same: nothing. One tensor
   of each is in memory at a time. */
wf_status app_checkpoint_diff(const char *a, const char *b, FILE *out, bool *same,
                              wf_error *error);

/* Say on `out` that A and B were computed by other rules, where both numerics identities are
   known and differ: bits may differ then though model, data and flags are the same. NULL or "":
   not known. */
void app_report_numerics(FILE *out, const char *a, const char *b);

#endif
