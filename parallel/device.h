/* parallel/device.h - the device of a run that leaves it to the machine. */
#ifndef WF_PARALLEL_DEVICE_H
#define WF_PARALLEL_DEVICE_H

#include "core/status.h"
#include <stdbool.h>

WF_BEGIN_DECLS

/**
 * wf_par_device_choose - returns "cpu" or "cuda" for one of auto, cpu and cuda; auto is the GPU
 * where there is one
 *
 * @param plan  nothing is computed: a plan for GPUs needs none
 * @param why   why the CPU serves where auto was asked for; may be NULL
 * Errors:      NULL: WF_EINVAL (none of the three), those of wf_cuda_count
 */
WF_API const char *wf_par_device_choose(const char *asked, bool plan, wf_error *why,
                                        wf_error *error);

WF_END_DECLS

#endif
