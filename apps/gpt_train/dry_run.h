/* apps/gpt_train/dry_run.h - gpt_train --plan: two steps on the fake device, on one rank of any world. */
#ifndef WF_APPS_DRY_RUN_H
#define WF_APPS_DRY_RUN_H

#include "apps/options/options.h"
#include <weft/weft.h>

/*
 * Plan what the flags say; print it, and write it where --json says. With --find-batch the
 * micro-batch is looked for first.
 */
wf_status wf_dry_run(const wf_options *options, FILE *out, wf_error *error);

/* What a rank's tensors take in the first step of a run: for --memory-check. */
wf_status wf_dry_run_memory(const wf_options *options, int rank, wf_memory_report *memory,
                            wf_error *error);

enum { WF_DRY_RUN_AXES = 4 };

/* The mesh's axes, outermost first, with what a rank receives over each in a step. */
wf_status wf_dry_run_axes(const wf_options *options, wf_place_axis axis[WF_DRY_RUN_AXES],
                          wf_error *error);

/* A run went out of memory under --device-memory: add to its error which strategy would fit. */
void wf_dry_run_advise(const wf_options *options, wf_error *error);

#endif
