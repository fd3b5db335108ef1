/* kernels/devices.h - the devices that come with Weft. */
#ifndef WF_KERNELS_DEVICES_H
#define WF_KERNELS_DEVICES_H

#include "core/device.h"

WF_BEGIN_DECLS

/**
 * wf_cpu_device - fp32 on the CPU, with the best kernels of this machine (AVX-512, AVX2 or
 * portable C; WEFT_CPU_ISA in the environment asks for another).
 *
 * @param threads  workers of this rank, the calling thread included; >= 1
 * Owner:   the context it is given to
 * Errors:  WF_EINVAL, WF_ENOMEM; result is then NULL
 */
WF_API wf_device *wf_cpu_device(int threads, wf_error *error);

/** wf_reference_device - f64 on the CPU, the plain loops that define every op. Slow. */
WF_API wf_device *wf_reference_device(wf_error *error);

WF_END_DECLS

#endif
