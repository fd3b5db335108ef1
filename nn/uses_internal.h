/*
 * nn/uses_internal.h - what a context runs for nn: how uses of parameters are numbered, in the
 * order of a forward pass, and the state that such a pass carries. Not installed.
 */
#ifndef WF_NN_USES_INTERNAL_H
#define WF_NN_USES_INTERNAL_H

#include "core/context.h"

typedef struct wf_nn_uses {
    /* the number of the next use: none comes twice, but where a module is recomputed */
    int64_t next;
    bool recompute;          /* a module is, in backward */
    bool rerun;              /* a module runs a second time in forward, with a tape */
    int64_t losses;          /* losses that modules have added and that want a gradient */
    struct wf_nn_pass *pass; /* the forward pass that they are uses in (nn/pass.h) */
    struct wf_nn_cache
        *cache; /* keys and values of earlier tokens (nn/cache.h); NULL: there are none */
    /* documents of its sequences (nn/documents.h): the first token that each token sees, and
       its position in its document; NULL: a sequence is one document */
    wf_tensor *first, *positions;
} wf_nn_uses;

/* Returns those of a context, never NULL: where there is no memory, which is an error of the
   context, none that last. */
wf_nn_uses *wf_nn_uses_of(wf_context *ctx);

#endif
