/*
 * nn/documents.h - sequences that hold several documents: tokens see those of their own alone,
 * and positions begin at 0 in each of them.
 *
 *     wf_nn_documents outside = wf_nn_documents_switch(ctx, (wf_nn_documents){first,
 *     positions});
 *
 *     loss = wf_nn_gpt_loss(model, tokens, targets, weight);
 *     wf_nn_documents_switch(ctx, outside);
 *
 * Backward needs no switch: what it recomputes (nn/checkpointing.h) has the documents of its
 * forward pass.
 */
#ifndef WF_NN_DOCUMENTS_H
#define WF_NN_DOCUMENTS_H

#include "core/context.h"

WF_BEGIN_DECLS

/** wf_nn_documents - the bounds of documents, i32 [batch, tokens] both, split by sequences at
 * most; NULL: a sequence is one document */
typedef struct wf_nn_documents {
    wf_tensor *first; /* the first token of a token's document (wf_attention_options.first) */
    /* a token's position in its document; below the model's number of positions */
    wf_tensor *positions;
} wf_nn_documents;

/**
 * wf_nn_documents_switch - sets the documents of forward passes from now on; returns the last
 * ones
 *
 * Owner:  the caller, until another switch; tapes keep what they need
 */
WF_API wf_nn_documents wf_nn_documents_switch(wf_context *ctx, wf_nn_documents documents);

/** wf_nn_documents_now - returns the documents that are set. For modules. */
WF_API wf_nn_documents wf_nn_documents_now(wf_context *ctx);

WF_END_DECLS

#endif
