/*
 * kernels/shared.h - what an op's file and its CPU kernel have in common: the parameters that a
 * wrapper hands to the kernel, and where a local element lies in the whole.
 */
#ifndef WF_KERNELS_SHARED_H
#define WF_KERNELS_SHARED_H

#include "kernels/op_table.h"

typedef struct wf_scale_attr {
    float factor;
} wf_scale_attr;

typedef struct wf_linear_attr {
    bool add; /* the product is added to what the output holds */
} wf_linear_attr;

static inline bool wf_linear_adds(const wf_call *call)
{
    const wf_linear_attr *attr = call->attr;

    return attr && attr->add;
}

/* The position is kept, so that the gradient has its forward's mask whenever it runs. */
typedef struct wf_dropout_attr {
    int64_t step, first_sequence;
    uint64_t key;
    float p;
    int site;
} wf_dropout_attr;

/* The numbers of an initialisation are in the order of its wrapper's parameters. */
typedef struct wf_init_attr {
    uint64_t key, stream;
    float arg[WF_INIT_ARGS];
    wf_init_run *elements;
    wf_init_all *whole;
} wf_init_attr;

static inline wf_init_site wf_init_site_of(const wf_init_attr *attr)
{
    return (wf_init_site){attr->key, attr->stream, attr->arg};
}

/*
 * wf_global_index - index of local element e in the whole, both counted over the dims [from,
 * ndim) alone. *run: as many elements from e on are neighbours in the whole too.
 */
static inline int64_t wf_global_index(const wf_tensor *t, int from, int64_t e, int64_t *run)
{
    int64_t length = 1, index = 0, stride = 1, rest = e;
    bool whole = true;

    for (int d = t->ndim - 1; d >= from; d--) {
        if (whole)
            length *= t->local[d];
        whole = whole && t->local[d] == t->dim[d].size;
        index += (t->start[d] + rest % t->local[d]) * stride;
        rest /= t->local[d];
        stride *= t->dim[d].size;
    }
    *run = length - e % length;
    return index;
}

/*
 * wf_check_tokens - WF_EINVAL, naming the token and its place, where one of an i32 operand is
 * outside [0, vocabulary).
 */
wf_status wf_check_tokens(const wf_call *call, const wf_tensor *tokens, int64_t vocabulary);

#endif
