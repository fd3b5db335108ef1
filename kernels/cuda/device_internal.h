/* kernels/cuda/device_internal.h - the parts of the device, between plugin.c, device.c,
   memory.c, table.c. */
#ifndef WF_KERNELS_CUDA_DEVICE_INTERNAL_H
#define WF_KERNELS_CUDA_DEVICE_INTERNAL_H

#include "kernels/cuda/cuda_internal.h"

/* The entry that the plugin exports. */
wf_cuda_entry wf_plugin;

/* device.c: the device of a GPU that is there, or of a plan. */
wf_device *wf_cuda_device_open(const wf_cuda_options *options, wf_error *error);

/* device.c: returns WF_OK, or the first failure that was not returned by a call. */
wf_status wf_cuda_failure(wf_cuda *cuda, wf_error *error);

/* Makes this GPU the one of the calling thread; kernels and copies do no more. */
void wf_cuda_enter(const wf_cuda *cuda);

/* memory.c */
/* `readers`: as in wf_cuda_options. */
wf_status wf_cuda_memory_open(wf_cuda *cuda, int readers, wf_error *error);
void wf_cuda_memory_close(wf_cuda *cuda);
extern const wf_device_memory wf_cuda_memory;

/* Queues a copy, and counts it. */
cudaError_t wf_cuda_queue_copy(void *to, const void *from, size_t bytes,
                               enum cudaMemcpyKind kind, cudaStream_t stream);

/* moves.c: wf_device_memory.copy, copy_all and reduce */
wf_status wf_cuda_copy(wf_device *device, const wf_copy *c, bool side_stream, wf_error *error);
wf_status wf_cuda_copy_all(wf_device *device, const wf_copy *copies, int64_t n,
                           bool side_stream, wf_error *error);
wf_status wf_cuda_reduce(wf_device *device, const wf_reduce *r, int64_t n, bool side_stream,
                         wf_error *error);

/* points.c: wf_device_memory.mark, follow, point_wait and point_free */
wf_status wf_cuda_mark(wf_device *device, bool side_stream, wf_point **point, wf_error *error);
wf_status wf_cuda_follow(wf_device *device, bool side_stream, const wf_point *point,
                         wf_error *error);
wf_status wf_cuda_point_wait(const wf_point *point, wf_error *error);
void wf_cuda_point_free(wf_point *point);

/* transfers.c: wf_device_memory.copy_begin, copy_join and copy_wait */
int64_t wf_cuda_copy_begin(wf_device *device, void *to, const void *from, size_t bytes);
void wf_cuda_copy_join(wf_device *device, int64_t copy);
void wf_cuda_copy_wait(wf_device *device, int64_t copy);
void wf_cuda_transfers_close(wf_cuda *cuda);

/* graph.c */
extern const wf_graphs wf_cuda_graphs;
void wf_cuda_graph_close(wf_cuda *cuda);

/* table.c: the kernel of an op, NULL for an application's that brings none; and why a row has
   none. */
const wf_kernel *wf_cuda_kernel(const wf_device *device, const wf_op *op);
const char *wf_cuda_missing(int id);

#endif
