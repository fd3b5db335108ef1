/*
 * kernels/route_capacity_internal.h - what route_capacity and its kernel share.
 */
#ifndef WF_KERNELS_ROUTE_CAPACITY_INTERNAL_H
#define WF_KERNELS_ROUTE_CAPACITY_INTERNAL_H

#include "kernels/moe_internal.h"

/* Attributes of route_capacity. */
typedef struct wf_capacity {
    int64_t experts, most; /* most: tokens that an expert takes of a sequence */
    /* not 0: operand 1 has counts of earlier tokens; else firsts of documents */
    int64_t resumes;
} wf_capacity;

/* A sequence: its choices, as T, and where they go. */
#define WF_CAPACITY_ROW(T)                                                                     \
    static inline void wf_capacity_row(const wf_call *call, int64_t b, int32_t *count)         \
    {                                                                                          \
        const wf_capacity *o = call->attr;                                                     \
        const wf_tensor *index = call->in[0];                                                  \
        const int64_t tokens = index->local[1], k = index->local[2];                           \
        const T *from = (const T *)index->data + b * tokens * k;                               \
        const int32_t *with = call->n_in > 1 ? call->in[1]->data : NULL;                       \
        T *to = (T *)call->out[0]->data + b * tokens * k;                                      \
                                                                                               \
        for (int64_t e = 0; e < o->experts; e++)                                               \
            count[e] = with && o->resumes ? with[b * o->experts + e] : 0;                      \
        for (int64_t t = 0; t < tokens; t++) {                                                 \
            if (with && !o->resumes && with[b * tokens + t] == t)                              \
                memset(count, 0, (size_t)o->experts * sizeof *count);                          \
            for (int64_t i = t * k; i < (t + 1) * k; i++)                                      \
                to[i] = count[(int64_t)from[i]]++ < o->most ? from[i] : (T)o->experts;         \
        }                                                                                      \
    }

/* Checks that indices are of experts that there are: WF_EINVAL. `at`: element e of them. */
wf_status wf_capacity_check(const wf_call *call, double (*at)(const void *data, int64_t e));

#endif
