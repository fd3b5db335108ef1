/*
 * kernels/op_table_internal.h - the rows of ops.def as ids and signatures, for the files that
 * implement them. An op's file says
 *
 *     const wf_op wf_op_add = {WF_OP_ROW(add), .reference = {reference}, .backward = backward};
 *
 * Its reference loop works on f64 tensors in double. The kernels of a device are in the
 * device's own room, which has a table of them by id: kernels/cpu/table.c,
 * kernels/cuda/table.c.
 */
#ifndef WF_KERNELS_OP_TABLE_INTERNAL_H
#define WF_KERNELS_OP_TABLE_INTERNAL_H

#include "core/context.h"
#include "core/device.h"
#include "kernels/ops.h"
#include "kernels/parameters.h"

enum {
    WF_ID_none,
#define OP(name, signature, flags) WF_ID_##name,
#include "kernels/ops.def"
#undef OP
    WF_ID_count
};

enum {
#define OP(name, signature, flags) WF_FLAGS_##name = (flags),
#include "kernels/ops.def"
#undef OP
};

#define OP(name, signature, flags) extern const char wf_signature_##name[];
#include "kernels/ops.def"
#undef OP

#define WF_OP_ROW(row)                                                                         \
    .name = #row, .signature = wf_signature_##row, .flags = WF_FLAGS_##row, .id = WF_ID_##row

/* Returns the kernel of an op on a device, whose table has those of Weft's rows; an
   application's op brings its own. NULL: there is none. */
static inline const wf_kernel *wf_kernel_lookup(const wf_device *device,
                                                const wf_kernel *const rows[WF_ID_count],
                                                const wf_op *op)
{
    return op->id > 0 && op->id < WF_ID_count ? rows[op->id] : wf_op_kernel(op, device->name);
}

/* Returns elements of the dims [from, to) of the local part. */
static inline int64_t wf_extent(const wf_tensor *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->local[i];
    return n;
}

#endif
