/* kernels/cuda/plugin.c - what libweft_cuda.so shows: how many GPUs there are, and a device. */
#include "kernels/cuda/device_internal.h"

const wf_cuda_host *wf_cuda_host_table;

static int count(wf_error *error)
{
    int n = 0, driver = 0; /* left as they are by calls that fail */
    cudaError_t code = cudaGetDeviceCount(&n);

    if (code == cudaSuccess && n > 0)
        return n;
    cudaGetLastError(); /* reported here, not by the next check */
    cudaDriverGetVersion(&driver);
    if (code == cudaErrorInsufficientDriver && driver == 0)
        wf_cuda_host_table->error_set(error, WF_EUNSUPPORTED,
                                      "this machine has no NVIDIA driver");
    else if (code == cudaSuccess || code == cudaErrorNoDevice)
        wf_cuda_host_table->error_set(error, WF_EUNSUPPORTED,
                                      "no GPU can be seen here (CUDA_VISIBLE_DEVICES hides "
                                      "those that it does not name)");
    else
        wf_cuda_host_table->error_set(error, WF_EUNSUPPORTED, "no GPU can be used: %s (%s)",
                                      cudaGetErrorString(code), cudaGetErrorName(code));
    return 0;
}

static wf_device *open_device(const wf_cuda_options *options, wf_error *error)
{
    int n = options->plan ? 0 : count(error);

    if (n == 0 && !options->plan)
        return NULL;
    if (!options->plan && (options->ordinal < 0 || options->ordinal >= n)) {
        wf_cuda_host_table->error_set(error, WF_EINVAL,
                                      "there is no GPU %d: this process sees %d, 0 to %d",
                                      options->ordinal, n, n - 1);
        return NULL;
    }
    return wf_cuda_device_open(options, error);
}

__attribute__((visibility("default"))) const wf_cuda_plugin *wf_plugin(const wf_cuda_host *host)
{
    static const wf_cuda_plugin plugin = {
        .count = count, .open = open_device, .missing = wf_cuda_missing};

    if (host->size != sizeof *host || host->version != WF_CUDA_VERSION ||
        host->ops != WF_ID_count)
        return NULL;
    wf_cuda_host_table = host;
    return &plugin;
}
