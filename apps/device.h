/* apps/device.h - what --device stands for on this machine. */
#ifndef WF_APPS_DEVICE_H
#define WF_APPS_DEVICE_H

#include <weft/weft.h>

/* "cpu" or "cuda" for one of auto, cpu and cuda. auto is the GPU where there is one; where the
   CPU serves, and `tells`, that is told in a line on stderr. A plan needs no GPU. NULL with an
   error: WF_EINVAL (none of these), and what wf_cuda_count says. */
const char *app_device_choose(const char *asked, bool plan, bool tells, wf_error *error);

#endif
