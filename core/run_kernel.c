/*
 * core/run_kernel.c - the kernel of a call: its workspace, and what is stored as bf16 widened
 * before it and rounded after it, unless it takes that as it is stored; what another rank has
 * computed is left alone.
 */
#include "core/run_kernel_internal.h"
#include "core/context_internal.h"
#include "core/dtype.h"
#include "core/together_internal.h"
#include "core/trace_calls_internal.h"

enum { PACED_MOST = 600 }; /* seconds of an op on the machine whose pace a run has */

/* Returns true where the numbers of a tensor are those of bf16: nf4 represents such, or
   floats. */
static bool is_bf16(const wf_tensor *t)
{
    return t->dtype == WF_BF16 || (t->dtype == WF_NF4 && t->rounds_to == WF_BF16);
}

/* Returns true where a mask has tensors and all are stored as bf16. */
static bool all_stored(const wf_call *call, unsigned mask)
{
    bool all = mask != 0;

    for (int i = 0; i < call->n_in && all; i++)
        all = !(mask & WF_IN(i)) || is_bf16(call->in[i]);
    for (int o = 0; o < call->n_out && all; o++)
        all = !(mask & WF_OUT(o)) || call->out[o]->dtype == WF_BF16;
    return all;
}

unsigned wf_taken_as_bf16(const wf_call *call, const wf_kernel *kernel)
{
    bool taken = !call->ctx->options.compute_fp32 && all_stored(call, kernel->all_bf16);

    return taken ? kernel->all_bf16 : 0;
}

/* Spends what an op takes on the machine whose pace this run has, if it has one. */
static wf_status spend(const wf_call *call)
{
    wf_pace *pace = call->ctx->pace;
    double seconds = pace && pace->machine ? pace->machine->op(pace->machine->self, call) : 0;

    if (!(seconds <= PACED_MOST))
        return wf_fail(call->ctx, WF_EINVAL,
                       "%s would take %.3g s on the machine whose pace this run has, and an op "
                       "may take %d s: see to the machine's rates and bandwidth, which are in "
                       "FLOP/s and bytes/s",
                       call->op->name, seconds, PACED_MOST);
    if (seconds > 0)
        wf_pace_spend(pace, seconds);
    return WF_OK;
}

/* The call as its kernel sees it. */
typedef struct seen {
    wf_call call;
    wf_tensor in[WF_MAX_INPUTS], out[WF_MAX_OUTPUTS];
    bool differs; /* from the call as it was made: something is widened, be it nothing here */
    size_t bytes; /* bytes of widened operands */
} seen;

/* Returns the bytes of a tensor that has the values of a stand-in. */
static size_t widened_bytes(const wf_tensor *stand_in)
{
    return (wf_tensor_bytes(stand_in) + 63) / 64 * 64;
}

/* The operands and outputs of a call that its kernel takes as they are stored. */
typedef struct stored {
    unsigned bf16; /* as bf16, and nf4 widened to that */
    unsigned nf4;
} stored;

static stored stored_of(const wf_call *call, const wf_kernel *kernel)
{
    const unsigned all = wf_taken_as_bf16(call, kernel);
    stored s = {.bf16 = kernel->mixed_ok | all};

    for (int i = 0; i < call->n_in && kernel->nf4_ok; i++)
        if (call->in[i]->dtype == WF_NF4) {
            s.nf4 = kernel->nf4_ok(call, all != 0);
            break;
        }
    return s;
}

/* Returns true where the kernel gets another tensor than t, which is in place `bit`. */
static inline bool is_replaced(const wf_tensor *t, stored taken, unsigned bit)
{
    return t->dtype == WF_NF4 ? !(taken.nf4 & bit)
                              : wf_dtype_is_narrow(t->dtype) && !(taken.bf16 & bit);
}

/* Returns the tensor that the kernel gets for t: t, or one of the device's type, over t's data
   until it is widened; of nf4 one of bf16 where it takes that. */
static wf_tensor *stand_in(seen *s, wf_tensor *t, wf_tensor *other, stored taken, unsigned bit)
{
    if (!is_replaced(t, taken, bit))
        return t;
    *other = *t;
    other->dtype = taken.bf16 & bit && is_bf16(t) ? WF_BF16 : t->ctx->device->dtype;
    s->bytes += widened_bytes(other);
    return other;
}

static const wf_call *see(const wf_call *call, const wf_kernel *kernel, seen *s)
{
    const stored taken = stored_of(call, kernel);
    unsigned shapes = call->op->shapes; /* WF_IN(i) is bit i */

    s->differs = false;
    s->bytes = 0;
    for (int i = 0; i < call->n_in; i++)
        s->differs |= !(shapes & WF_IN(i)) && is_replaced(call->in[i], taken, WF_IN(i));
    for (int o = 0; o < call->n_out; o++)
        s->differs |= is_replaced(call->out[o], taken, WF_OUT(o));
    if (!s->differs)
        return call;
    s->call = *call;
    for (int i = 0; i < call->n_in; i++)
        s->call.in[i] = shapes & WF_IN(i)
                            ? call->in[i]
                            : stand_in(s, call->in[i], &s->in[i], taken, WF_IN(i));
    for (int o = 0; o < call->n_out; o++)
        s->call.out[o] = stand_in(s, call->out[o], &s->out[o], taken, WF_OUT(o));
    return &s->call;
}

static void widen_operands(const wf_call *call, seen *s, char *room)
{
    const wf_device *device = call->ctx->device;

    if (!room)
        return; /* all of it is empty, and keeps a pointer that may be added to */
    for (int i = 0; i < call->n_in; i++)
        if (s->call.in[i] != call->in[i]) {
            s->in[i].data = room;
            if (call->in[i]->dtype == WF_NF4)
                device->widen_nf4(device, call->in[i], s->in[i].dtype, room);
            else
                device->widen(device, call->in[i]->data, room,
                              wf_tensor_local_count(call->in[i]));
            room += widened_bytes(&s->in[i]);
        }
    for (int o = 0; o < call->n_out; o++)
        if (s->call.out[o] != call->out[o]) {
            s->out[o].data = room;
            room += widened_bytes(&s->out[o]);
        }
}

static void round_outputs(const wf_call *call, const seen *s)
{
    const wf_device *device = call->ctx->device;

    for (int o = 0; o < call->n_out; o++)
        if (s->call.out[o] != call->out[o])
            device->narrow(device, s->out[o].data, call->out[o]->data,
                           wf_tensor_local_count(call->out[o]));
}

/* Computes a call, unless another rank has computed it; it is counted in both cases. */
static wf_status compute(const wf_call *asked, const wf_call *call, seen *s,
                         const wf_kernel *kernel, char *workspace, wf_share_role role)
{
    wf_context *ctx = asked->ctx;
    const bool may_wait = role == WF_SHARE_NONE && !s->differs && !workspace;
    wf_status status = WF_OK;

    if (role != WF_SHARE_TAKE && wf_together_take(call, kernel, may_wait, &status)) {
        status = spend(asked);
    } else if (role != WF_SHARE_TAKE && status == WF_OK) {
        const wf_trace_mark begun = wf_trace_begin(ctx->trace);

        if (s->differs)
            widen_operands(asked, s, workspace);
        status = kernel->run(call, workspace ? workspace + s->bytes : NULL);
        if (status == WF_OK)
            status = spend(asked);
        if (status == WF_OK && s->differs)
            round_outputs(asked, s);
        if (begun.at && status == WF_OK)
            status = wf_trace_calls(call, 1, begun);
    } else if (status == WF_OK) {
        spend(asked);
    }
    if (status == WF_OK && ctx->observe)
        ctx->observe(ctx->observer_arg, asked);
    return status;
}

/* Counts what the call takes, and what of it is the model's: once where several ranks do the
   same. */
static void count_work(const wf_call *call)
{
    wf_context *ctx = call->ctx;
    double flops = call->op->flops(call);
    double model = call->op->model_flops ? call->op->model_flops(call) : flops;

    ctx->flops += flops;
    if (ctx->distribution)
        model /= ctx->distribution->alike(ctx->mesh, call);
    ctx->model_flops += model * (1 - ctx->now.repeated);
}

wf_status wf_run_kernel(const wf_call *asked, wf_share_role role)
{
    wf_context *ctx = asked->ctx;
    const wf_kernel *kernel = ctx->device->kernel(ctx->device, asked->op);
    char *workspace = NULL;
    const wf_call *call;
    size_t bytes;
    wf_status status;
    seen s;

    if (!kernel)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "%s has no kernel for device %s: write one, and list it in .kernels of "
                       "the op as {\"%s\", &kernel}",
                       asked->op->name, ctx->device->name, ctx->device->name);
    if (!kernel->run)
        return wf_fail(ctx, WF_EUNSUPPORTED,
                       "%s: its kernel for device %s has no function: fill in .run of it",
                       asked->op->name, ctx->device->name);
    call = see(asked, kernel, &s);
    bytes = s.bytes + (kernel->workspace ? kernel->workspace(call) : 0);
    if (bytes) {
        workspace =
            wf_context_take(ctx, ctx->pool, bytes, WF_MEMORY_WORKSPACE, asked->op->name);
        if (!workspace)
            return ctx->failure.error.code;
    }
    status = ctx->failure.error.code; /* a failure in workspace() */
    if (status == WF_OK && !ctx->options.plan)
        status = compute(asked, call, &s, kernel, workspace, role);
    if (status == WF_OK && ctx->oplog)
        ctx->oplog->op(ctx->oplog->self, asked);
    if (asked->op->flops)
        count_work(asked);
    wf_pool_give(ctx->pool, workspace, bytes, WF_MEMORY_WORKSPACE);
    return status;
}
