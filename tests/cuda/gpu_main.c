/* tests/cuda/gpu_main.c - see gpu_main.h. */
#include "tests/cuda/gpu_main.h"
#include "core/host_data.h"
#include "kernels/devices.h"
#include "tests/mesh/ranks.h"

int gpu_test_main(const char *suite, const wf_test *tests)
{
    wf_error why = {WF_OK, ""};

    if (wf_cuda_count(false, &why) == 0) {
        wf_test_skip_all(why.text);
        return 77;
    }
    return wf_test_main(suite, tests);
}

wf_context *gpu_context(void)
{
    wf_error error = {WF_OK, ""};
    wf_device *device = wf_cuda_device(&(wf_cuda_options){.ordinal = 0}, &error);
    wf_context *ctx = wf_context_open(device, &(wf_context_options){.seed = 7}, &error);

    CU_ASSERT_PTR_NOT_NULL_FATAL(ctx);
    return ctx;
}

wf_tensor *gpu_filled(wf_tensor *t, int member)
{
    wf_host_data view;
    float *x = wf_data_write(t, false, &view);

    for (int64_t i = 0; x && i < wf_tensor_local_count(t); i++)
        x[i] = number(member, 0, i);
    wf_data_close(&view);
    return t;
}
