/*
 * kernels/op_table_internal.h - the rows of ops.def as ids and signatures, for the files that implement
 * them. An op's file says
 *
 *     const wf_op wf_op_add = {WF_OP_ROW(add), .reference = {reference}, .backward = backward,
 *                              .cpu = &wf_cpu_add};
 *
 * Its reference loop works on f64 tensors in double; its CPU kernel, in kernels/cpu/, on f32.
 */
#ifndef WF_KERNELS_OP_TABLE_INTERNAL_H
#define WF_KERNELS_OP_TABLE_INTERNAL_H

#include "core/context.h"
#include "kernels/ops.h"

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

#define OP(name, signature, flags)                                                             \
    extern const char wf_signature_##name[];                                                   \
    extern const wf_kernel wf_cpu_##name;
#include "kernels/ops.def"
#undef OP

#define WF_OP_ROW(row)                                                                         \
    .name = #row, .signature = wf_signature_##row, .flags = WF_FLAGS_##row, .id = WF_ID_##row

/* Elements of the dims [from, to) of the local part. */
static inline int64_t wf_extent(const wf_tensor *t, int from, int to)
{
    int64_t n = 1;

    for (int i = from; i < to; i++)
        n *= t->local[i];
    return n;
}

#endif
