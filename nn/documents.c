/* nn/documents.c - documents of a forward pass. */
#include "nn/documents.h"
#include "nn/uses_internal.h"

wf_nn_documents wf_nn_documents_now(wf_context *ctx)
{
    const wf_nn_uses *uses = wf_nn_uses_of(ctx);

    return (wf_nn_documents){uses->first, uses->positions};
}

wf_nn_documents wf_nn_documents_switch(wf_context *ctx, wf_nn_documents documents)
{
    wf_nn_documents last = wf_nn_documents_now(ctx);

    wf_nn_uses_of(ctx)->first = documents.first;
    wf_nn_uses_of(ctx)->positions = documents.positions;
    return last;
}
