/* kernels/devices.h - the devices that come with Weft. */
#ifndef WF_KERNELS_DEVICES_H
#define WF_KERNELS_DEVICES_H

#include "core/device.h"

WF_BEGIN_DECLS

/**
 * wf_device_options - settings of a rank's device.
 *
 * Where a process sees several devices of a kind, a rank has the one whose number is its local
 * rank modulo their number. A launcher may show a process all GPUs of the host or only its own
 * (CUDA_VISIBLE_DEVICES). More ranks than GPUs share them over transport threads; NCCL refuses
 * that, but for processes that are configured as hosts of their own (NCCL_HOSTID).
 */
typedef struct wf_device_options {
    int threads;     /* workers of this rank on the CPU, the calling thread included; >= 1 */
    int local_rank;  /* its number among the ranks of its host */
    int local_size;  /* ranks of its process, whose local ranks follow each other */
    bool in_place;   /* those ranks are threads, which read each other's memory in place */
    bool plan;       /* no device is touched, and memory is counted: for a context that plans */
    bool tf32;       /* wf_cuda_options.tf32; of cuda alone */
    bool cuda_graph; /* work will be captured (wf_device.graphs); of cuda alone */
} wf_device_options;

/**
 * wf_device_open - opens a rank's device, by its name
 *
 * @param name  "cpu" or "cuda"; NULL: "cpu"
 * Owner:   the context it is given to
 * Errors:  WF_EINVAL: there is no such device, or it does not offer what is asked for; else
 *          those of wf_cpu_device, wf_cuda_count and wf_cuda_device; result is then NULL
 */
WF_API wf_device *wf_device_open(const char *name, const wf_device_options *options,
                                 wf_error *error);

/**
 * wf_cpu_device - opens the CPU, fp32, with the best kernels of this machine (AVX-512, AVX2 or
 * portable C; WEFT_CPU_ISA in the environment asks for another) and a thread pool of its own.
 *
 * @param threads  workers of this rank, the calling thread included; >= 1
 * Owner:   the context it is given to
 * Errors:  WF_EINVAL, WF_ENOMEM; result is then NULL
 */
WF_API wf_device *wf_cpu_device(int threads, wf_error *error);

typedef struct wf_cuda_options {
    int ordinal; /* the number of a GPU of this process; several ranks may share one */
    /* GPUs 0 .. readers - 1 read its memory in place, as ranks that are threads do */
    int readers;
    bool plan; /* no GPU is touched, and memory is counted: for a context that plans */
    /* products of f32 may round their factors to tf32: faster, 10 bits; for exact off alone */
    bool tf32;
} wf_cuda_options;

/**
 * wf_cuda_device - opens an NVIDIA GPU, fp32, by way of the plugin libweft_cuda.so
 *
 * Tensors lie in the GPU's memory (core/host_data.h brings them to the host), and kernels run
 * on a stream of the device's own: a call returns before its work is done.
 *
 * Owner:   the context it is given to
 * Errors:  WF_EUNSUPPORTED (no plugin, driver or GPU, said in one line), WF_EINVAL (there are
 *          fewer GPUs), WF_EUNSUPPORTED (a reader that cannot reach it), WF_ENOMEM; result is
 *          then NULL
 */
WF_API wf_device *wf_cuda_device(const wf_cuda_options *options, wf_error *error);

/**
 * wf_cuda_count - returns the number of GPUs that this process can use; 0 with an error that
 * gives the reason
 *
 * @param quick  do not even load the plugin where there is no driver
 */
WF_API int wf_cuda_count(bool quick, wf_error *error);

/** wf_reference_device - opens the reference device, f64 on the CPU: the plain loops that
 * define every op. Slow. */
WF_API wf_device *wf_reference_device(wf_error *error);

WF_END_DECLS

#endif
