/* core/trace_calls.c - the event of a launch in a trace. */
#include "core/trace_calls_internal.h"
#include "core/context_internal.h"
#include "core/graph.h"

/* Returns the bytes that a call reads and writes at least, on this rank. */
static int64_t bytes_of_call(const wf_call *call)
{
    size_t bytes = 0;

    for (int i = 0; i < call->n_in; i++)
        bytes += call->in[i] ? wf_tensor_bytes(call->in[i]) : 0;
    for (int o = 0; o < call->n_out; o++)
        bytes += call->out[o] ? wf_tensor_bytes(call->out[o]) : 0;
    return (int64_t)bytes;
}

/* Waits for an op: a wait of the trace's own, which it does not count. */
static wf_status wait_for(wf_device *device, const wf_call *call)
{
    const wf_device_counts one = {.syncs = 1}, none = {.syncs = 0};
    wf_error error = {WF_OK, ""};

    if (device->memory->wait(device, &error) != WF_OK)
        return wf_fail(call->ctx, error.code, "%s: %s", call->op->name, error.text);
    if (device->counts)
        wf_trace_device(call->ctx->trace, &one, &none);
    return WF_OK;
}

wf_status wf_trace_calls(const wf_call *call, int n, wf_trace_mark begun)
{
    wf_device *device = call->ctx->device;
    int64_t bytes = 0;
    double flops = 0;

    for (int i = 0; i < n; i++) {
        bytes += bytes_of_call(&call[i]);
        flops += call[i].op->flops ? call[i].op->flops(&call[i]) : 0;
    }

    if (wf_trace_waits(call->ctx->trace) && device->memory &&
        !wf_graph_is_captured(call->ctx) && wait_for(device, call) != WF_OK)
        return wf_context_status(call->ctx);
    wf_trace_end(call->ctx->trace, begun,
                 &(wf_trace_event){.kind = WF_TRACE_OP,
                                   .name = call->op->name,
                                   .location = call->ctx->failure.path,
                                   .bytes = bytes,
                                   .flops = flops});
    return WF_OK;
}
