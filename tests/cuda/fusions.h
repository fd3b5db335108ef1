/* tests/cuda/fusions.h - one call on the emulated GPU, by how many launches, and whether it has
   the bits of others. */
#ifndef WF_TESTS_CUDA_FUSIONS_H
#define WF_TESTS_CUDA_FUSIONS_H

#include "kernels/attention_internal.h"
#include "tests/cuda/device_parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static inline int64_t launches(const numbers *n)
{
    return wf_context_device(n->t.ctx)->counts().launches;
}

/* Runs a call, and returns the number of launches that it took, but for those of the copies
   there and back. */
static inline int64_t run(const wf_op *op, const void *attr, int n_in, numbers *in, int n_out,
                          numbers *out)
{
    const wf_call call = {.op = op,
                          .n_in = n_in,
                          .n_out = n_out,
                          .attr = attr,
                          .attr_size = attr ? sizeof(wf_rope_attr) : 0};
    const int64_t begun = launches(in);

    run_on_device(&call, in, out, false);
    return launches(in) - begun - n_in - n_out;
}

static inline void check_same(const char *what, const numbers *a, const numbers *b)
{
    bool same = memcmp(a->host, b->host, bytes_of(&a->t)) == 0;

    CU_ASSERT(same);
    if (!same)
        printf("\n%s: not the bits of the ops apart\n", what);
}

static inline void forget(int n, numbers *of)
{
    for (int i = 0; i < n; i++)
        free(of[i].host);
}

#endif
