/* kernels/cuda.c - the CUDA device, which is a library of its own:
   kernels/cuda_host_internal.h. */
#include "core/nf4_tensor.h"
#include "core/plugin.h"
#include "kernels/cuda_host_internal.h"
#include "kernels/op_table_internal.h"
#include <dlfcn.h>
#include <string.h>

static const void *enter(void *symbol)
{
    static const wf_cuda_host host = {
        .size = sizeof host,
        .version = WF_CUDA_VERSION,
        .ops = WF_ID_count,
        .error_set = wf_error_set,
        .fail = wf_fail,
        .context_device = wf_context_device,
        .context_warn = wf_context_warn,
        .context_exact = wf_context_exact,
        .context_dry_run = wf_context_dry_run,
        .context_pool = wf_context_pool,
        .pool_take = wf_pool_take,
        .pool_give = wf_pool_give,
        .chunk_cuts = wf_chunk_cuts,
        .tensor_local_count = wf_tensor_local_count,
        .dtype_size = wf_dtype_size,
        .truncate = wf_truncate,
        .dynamic8_levels = {wf_dynamic8_signed, wf_dynamic8_unsigned},
        .nf4_levels = wf_nf4_levels,
        .dynamic8_map_make = wf_dynamic8_map_make,
        .dynamic8_row_of = wf_dynamic8_row_of,
        .nf4_part_of = wf_nf4_part_of,
        .nf4_row_bytes = wf_nf4_row_bytes,
        .update_lion = wf_update_lion,
        .update_sign = wf_update_sign,
        .update_keep = wf_update_keep};
    wf_cuda_entry *entry;

    memcpy(&entry, &symbol, sizeof entry);
    return entry(&host);
}

static const wf_cuda_plugin *plugin(wf_error *error)
{
    return wf_plugin_find(&(wf_plugin_ask){.name = "cuda",
                                           .what = "the plugin for GPUs",
                                           .needs = "CUDA 12 or later (nvcc)",
                                           .enter = enter,
                                           .version = WF_CUDA_VERSION},
                          error);
}

/* Returns whether there is a driver: its own library comes with it, never with CUDA. */
static bool has_driver(wf_error *error)
{
    void *driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);

    if (!driver)
        wf_error_set(error, WF_EUNSUPPORTED, "this machine has no NVIDIA driver");
    else
        dlclose(driver);
    return driver != NULL;
}

int wf_cuda_count(bool quick, wf_error *error)
{
    const wf_cuda_plugin *cuda = !quick || has_driver(error) ? plugin(error) : NULL;

    return cuda ? cuda->count(error) : 0;
}

wf_device *wf_cuda_device(const wf_cuda_options *options, wf_error *error)
{
    const wf_cuda_plugin *cuda = plugin(error);
    wf_device *device = cuda ? cuda->open(options, error) : NULL;

    if (device)
        device->batch_sum = &wf_op_batch_sum;
    return device;
}
