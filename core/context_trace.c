/* core/context_trace.c - where a context is: op, module, phase and action of a schedule, for
   errors, traces, op logs and what observes ops. */
#include "core/context_internal.h"

static _Thread_local const wf_context *running;

const wf_context *wf_context_running(void)
{
    return running;
}

void wf_context_run(const wf_context *ctx)
{
    running = ctx;
}

const char *wf_context_op_now(const wf_context *ctx)
{
    return ctx->now.op;
}

const char *wf_context_enter(wf_context *ctx, const char *path)
{
    const char *last = ctx->failure.path;

    running = ctx;
    ctx->failure.path = path;
    ctx->now.point = NULL;
    wf_pool_moment(ctx->pool, ctx->now.phase, path);
    return last;
}

void wf_context_point(wf_context *ctx, const char *point)
{
    ctx->now.point = point;
}

const char *wf_context_path(const wf_context *ctx)
{
    return ctx->failure.path;
}

const char *wf_context_phase_now(const wf_context *ctx)
{
    return ctx->now.phase;
}

const char *wf_context_action_now(const wf_context *ctx)
{
    return ctx->now.action;
}

void wf_context_oplog(wf_context *ctx, const wf_oplog *oplog)
{
    ctx->oplog = oplog;
}

void wf_context_pace(wf_context *ctx, wf_pace *pace)
{
    ctx->pace = pace;
}

wf_pace *wf_context_pace_of(const wf_context *ctx)
{
    return ctx->pace;
}

void wf_context_observe(wf_context *ctx, wf_op_observer *observe, void *arg)
{
    ctx->observe = observe;
    ctx->observer_arg = arg;
}

/* Ends the traced interval since *start, and begins the next one. */
static void end_interval(wf_context *ctx, wf_trace_kind kind, const char *name, int64_t *start)
{
    int64_t now;

    if (!ctx->trace)
        return;
    now = wf_trace_now();
    if (name)
        wf_trace_add(ctx->trace, &(wf_trace_event){
                                     .kind = kind, .name = name, .start = *start, .end = now});
    *start = now;
}

const char *wf_context_phase(wf_context *ctx, const char *phase)
{
    const char *last = ctx->now.phase;

    end_interval(ctx, WF_TRACE_PHASE, ctx->now.phase, &ctx->phase_start);
    ctx->now.phase = phase;
    wf_pool_moment(ctx->pool, phase, ctx->failure.path);
    return last;
}

void wf_context_action(wf_context *ctx, const char *name)
{
    end_interval(ctx, WF_TRACE_ACTION, ctx->now.action, &ctx->action_start);
    ctx->now.action = name;
}

wf_trace_mark wf_context_host_begin(const wf_context *ctx)
{
    return wf_trace_begin(ctx->trace);
}

void wf_context_host_end(wf_context *ctx, wf_trace_mark mark, const char *name)
{
    if (mark.at)
        wf_trace_end(ctx->trace, mark,
                     &(wf_trace_event){
                         .kind = WF_TRACE_HOST, .name = name, .location = ctx->failure.path});
}

void wf_context_cut_intervals(wf_context *ctx)
{
    end_interval(ctx, WF_TRACE_PHASE, ctx->now.phase, &ctx->phase_start);
    end_interval(ctx, WF_TRACE_ACTION, ctx->now.action, &ctx->action_start);
}

void wf_context_trace(wf_context *ctx, wf_trace *trace)
{
    wf_context_cut_intervals(ctx);
    if (ctx->device->counts) {
        const wf_device_counts now = ctx->device->counts();

        if (ctx->trace)
            wf_trace_device(ctx->trace, &ctx->traced_from, &now);
        ctx->traced_from = now;
    }
    ctx->trace = trace;
    ctx->phase_start = ctx->action_start = wf_trace_now();
}
