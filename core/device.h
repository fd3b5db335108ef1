/* core/device.h - the device table: filled in kernels/ (and by plugins), used by dispatch. */
#ifndef WF_CORE_DEVICE_H
#define WF_CORE_DEVICE_H

#include "core/op.h"

WF_BEGIN_DECLS

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
    /* copy past the caches what will not be read soon; NULL: there is no such copy */
    void (*stream)(const void *from, void *to, size_t bytes);
    /* required: sum of squares of floats in double: element i in lane i % 8, the lanes added 4,
       2, 1 apart */
    double (*sum_squares)(const float *x, int64_t n);
    /* required: out = a + b, same dtype and local shape, where two gradients meet; out may be a */
    void (*add)(const wf_tensor *a, const wf_tensor *b, wf_tensor *out);
    void (*close)(struct wf_device *device); /* required */
    void *self;
} wf_device;

WF_END_DECLS

#endif
