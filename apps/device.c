/* apps/device.c - see the header. */
#include "apps/device.h"
#include <stdio.h>
#include <string.h>

const char *app_device_choose(const char *asked, bool plan, bool tells, wf_error *error)
{
    bool is_auto = strcmp(asked, "auto") == 0, is_cuda = strcmp(asked, "cuda") == 0;
    wf_error why = {WF_OK, ""};

    if (strcmp(asked, "cpu") == 0)
        return "cpu";
    if (!is_auto && !is_cuda) {
        wf_error_set(error, WF_EINVAL, "--device %.40s is none of auto, cpu and cuda", asked);
        return NULL;
    }
    if ((is_cuda && plan) || wf_cuda_count(is_auto, &why) > 0)
        return "cuda";
    if (is_cuda) {
        wf_error_set(error, why.code, "--device cuda: %s; use --device cpu", why.text);
        return NULL;
    }
    if (tells && wf_launcher_detected().process <= 0)
        fprintf(stderr, "device auto: the CPU serves, since %s\n", why.text);
    return "cpu";
}
