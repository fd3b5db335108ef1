/* parallel/device.c - see the header. */
#include "parallel/device.h"
#include "kernels/devices.h"
#include <string.h>

const char *wf_par_device_choose(const char *asked, bool plan, wf_error *why, wf_error *error)
{
    bool is_auto = strcmp(asked, "auto") == 0, is_cuda = strcmp(asked, "cuda") == 0;
    wf_error none = {WF_OK, ""};

    if (strcmp(asked, "cpu") == 0)
        return "cpu";
    if (!is_auto && !is_cuda) {
        wf_error_set(error, WF_EINVAL, ".device %.40s is none of auto, cpu and cuda", asked);
        return NULL;
    }
    if ((is_cuda && plan) || wf_cuda_count(is_auto, &none) > 0)
        return "cuda";
    if (is_cuda) {
        wf_error_set(error, none.code, ".device cuda: %s; use .device cpu", none.text);
        return NULL;
    }
    if (why)
        *why = none;
    return "cpu";
}
