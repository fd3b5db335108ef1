/* tests/cuda/gpu_main.c - see gpu_main.h. */
#include "tests/cuda/gpu_main.h"
#include "core/host_data.h"
#include "kernels/devices.h"
#include "tests/mesh/ranks.h"
#include <stdlib.h>

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

void gpu_over_ranks(wf_status (*rank_of)(wf_rank *rank, void *arg))
{
    static const char *const transports[] = {"threads", "nccl"};
    wf_error error = {WF_OK, ""};

    setenv("WEFT_EMULATOR_DEVICES", "4", 1);
    if (wf_cuda_count(false, &error) < GPU_RANKS)
        printf("\n    not looked at: this machine has no four emulated GPUs\n");
    else
        for (int i = 0; i < 2; i++) {
            const wf_launch_options o = {.ranks = GPU_RANKS, .transport = transports[i]};

            CU_ASSERT_EQUAL(wf_launch(&o, rank_of, NULL, &error), WF_OK);
            if (error.code != WF_OK)
                printf("\n    %s: %s\n", transports[i], error.text);
        }
    unsetenv("WEFT_EMULATOR_DEVICES");
}
