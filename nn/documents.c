/* nn/documents.c - documents of a forward pass. */
#include "nn/documents.h"

wf_nn_documents wf_nn_documents_now(wf_context *ctx)
{
    const wf_uses *uses = wf_context_uses(ctx);

    return (wf_nn_documents){uses->first, uses->positions};
}

wf_nn_documents wf_nn_documents_switch(wf_context *ctx, wf_nn_documents documents)
{
    wf_nn_documents last = wf_nn_documents_now(ctx);

    wf_context_uses(ctx)->first = documents.first;
    wf_context_uses(ctx)->positions = documents.positions;
    return last;
}
