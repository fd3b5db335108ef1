/*
 * core/offload.h - tensors that rest in host memory, beside a device that has memory of its own
 * (CPU offload), or in files of a folder (wf_context_options.offload_allocator).
 *
 * Such a tensor is absent from the device: ops refuse it until it is fetched, and host code
 * reads and writes it in place (core/host_data.h). It comes and goes with all that share its
 * data. Host memory is counted in a pool of its own, by the same kinds.
 *
 * Files are mapped (core/files/scratch.h). A device without memory of its own has nothing to
 * move: its ops use the mapped data where they rest.
 */
#ifndef WF_CORE_OFFLOAD_H
#define WF_CORE_OFFLOAD_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_tensor_offload - moves the data of a tensor to host memory, where it rests from now on
 *
 * @param t  fake or absent: nothing happens; NULL is allowed
 * Errors:   WF_EUNSUPPORTED (the device's memory is the host's, and there is no
 *           offload_allocator), WF_ENOMEM, those of the copy;
 *           recorded in the context and returned
 */
WF_API wf_status wf_tensor_offload(wf_tensor *t);

/**
 * wf_tensor_offload_stacked - does the same for a tensor that is fetched before those that were
 * offloaded so earlier, as activations are in backward;
 * wf_offload_fetch_next - begins to bring the last of them to the device, ahead of
 * wf_tensor_fetch
 *
 * Copies run beside what the device computes. Memory of one that has left stays on the device
 * until the next one leaves, and memory for one that comes is there from wf_offload_fetch_next
 * on.
 *
 * Errors:  as of wf_tensor_offload
 */
WF_API wf_status wf_tensor_offload_stacked(wf_tensor *t);
WF_API wf_status wf_offload_fetch_next(wf_context *ctx);

/**
 * wf_tensor_fetch - brings a tensor that rests in host memory to the device, to be used;
 * wf_tensor_put_back - moves it to where it rests
 *
 * Both leave other tensors as they are; NULL is allowed.
 *
 * Errors:  as of wf_tensor_offload
 */
WF_API wf_status wf_tensor_fetch(wf_tensor *t);
WF_API wf_status wf_tensor_put_back(wf_tensor *t);

/** wf_tensor_is_offloaded - returns true where the data are in host memory now. */
WF_API bool wf_tensor_is_offloaded(const wf_tensor *t);

/** wf_context_host_pool - returns the pool of host memory that offloaded tensors are counted
 * in; NULL: none was offloaded yet. */
WF_API wf_pool *wf_context_host_pool(const wf_context *ctx);

WF_END_DECLS

#endif
