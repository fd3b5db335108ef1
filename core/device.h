/* core/device.h - the device table: filled in kernels/ (and by plugins), used by dispatch. */
#ifndef WF_CORE_DEVICE_H
#define WF_CORE_DEVICE_H

#include "core/op.h"

WF_BEGIN_DECLS

struct wf_exact_sum; /* core/exact_sum.h */

/** wf_device - where tensors live and ops run; one per context, owned by it. */
typedef struct wf_device {
    const char *name;
    wf_dtype dtype; /* of the floats that its kernels take */
    wf_allocator allocator;
    /* required: the kernel of an op on this device, or NULL (the call is then an error) */
    const wf_kernel *(*kernel)(const struct wf_device *device, const wf_op *op);
    /* required: sums or maxima of many buffers, for the reductions over ranks */
    void (*sum)(const float *const *src, int64_t n_src, bool tree, float *dst, int64_t n);
    void (*maximum)(const float *a, const float *b, float *dst, int64_t n);
    /* sum, to many results, past the caches where `stream`; NULL: sum, then copies */
    void (*sum_to_all)(const float *const *src, int64_t n_src, bool tree, float *const *dst,
                       int64_t n_dst, bool stream, int64_t n);
    /* copy past the caches what will not be read soon; NULL: there is no such copy */
    void (*stream)(const void *from, void *to, size_t bytes);
    /* required: add the squares of a tensor's local floats to a sum, in double. A leaf is one row
       of dim 0 times one of dim 1's 8 cuts: element i in lane i % 8, the lanes added 4, 2, 1
       apart */
    void (*sum_squares)(const wf_tensor *t, struct wf_exact_sum *sum);
    /* required: out = a + b (out may be a), same dtype and local shape, where two gradients meet */
    void (*add)(const wf_tensor *a, const wf_tensor *b, wf_tensor *out);
    void (*close)(struct wf_device *device); /* required */
    void *self;
} wf_device;

WF_END_DECLS

#endif
