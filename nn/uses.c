/* nn/uses.c - nn's memory in a context. */
#include "nn/uses_internal.h"

wf_nn_uses *wf_nn_uses_of(wf_context *ctx)
{
    static const wf_extension extension = {
        .name = "nn", .bytes = sizeof(wf_nn_uses), .of_call = true};
    static _Thread_local wf_nn_uses none;
    wf_nn_uses *uses = wf_context_extension(ctx, &extension);

    if (!uses) {
        none = (wf_nn_uses){.next = 0};
        uses = &none;
    }
    return uses;
}
