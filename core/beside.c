/* core/beside.c - see the header. */
#include "core/beside.h"
#include "core/context_internal.h"
#include "core/coroutine_internal.h"
#include "core/handles_internal.h"
#include <stdlib.h>
#include <string.h>

/* The state of the function that does not run. */
typedef struct call_state {
    wf_call_state now;
    const char *path;
    void *extension[WF_EXTENSIONS]; /* NULL: it is not `of_call` */
    wf_scopes_seen scopes;
} call_state;

/* Two functions at work. */
struct wf_turns {
    wf_context *ctx;
    const wf_beside *both;
    int now;    /* the one that runs: the second has a stack of its own */
    bool begun; /* the second has .. */
    bool ended; /* .. and has ended */
    bool alone; /* the first has ended */
    call_state other;
};

#define SWAP(a, b)                                                                             \
    do {                                                                                       \
        __typeof__(a) swapped = a;                                                             \
        (a) = b;                                                                               \
        (b) = swapped;                                                                         \
    } while (0)

static void swap_bytes(char *a, char *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        SWAP(a[i], b[i]);
}

/* Copies an extension that the context has already, for the other function. */
static wf_status open_extension(wf_context *ctx, call_state *s, int i)
{
    const wf_extension *of = ctx->extension[i].of;

    if (!of || !of->of_call)
        return WF_OK;
    s->extension[i] = calloc(1, of->bytes);
    if (!s->extension[i])
        return wf_fail(ctx, WF_ENOMEM, "no memory for two calls beside each other");
    memcpy(s->extension[i], ctx->extension[i].data, of->bytes);
    return WF_OK;
}

bool wf_beside_extend(wf_context *ctx, int i, const wf_extension *of)
{
    struct wf_turns *t = ctx->turns;

    if (!t || !of->of_call)
        return true;
    t->other.extension[i] = calloc(1, of->bytes);
    return t->other.extension[i] != NULL;
}

static void swap_state(wf_context *ctx, call_state *s)
{
    SWAP(ctx->now, s->now);
    SWAP(ctx->failure.path, s->path);
    for (int i = 0; i < WF_EXTENSIONS; i++)
        if (s->extension[i])
            swap_bytes(ctx->extension[i].data, s->extension[i], ctx->extension[i].of->bytes);
    wf_handles_swap(ctx, &s->scopes);
}

/* Switches to the state of the other function. Traces have the part of an action until here
   as one of its own. */
static void switch_state(struct wf_turns *t)
{
    wf_context *ctx = t->ctx;

    wf_context_cut_intervals(ctx);
    swap_state(ctx, &t->other);
    t->now = !t->now;
    wf_pool_moment(ctx->pool, ctx->now.phase, ctx->failure.path);
    if (t->both->turn)
        t->both->turn(t->both->self, t->now);
}

/* Makes the state in which the second function begins: the context's, with no scope, and in no
   action. */
static wf_status open_state(wf_context *ctx, call_state *s)
{
    wf_status status = WF_OK;

    *s = (call_state){.now = ctx->now, .path = ctx->failure.path};
    s->now.scopes = (wf_scopes){.owned = NULL};
    s->now.action = NULL;
    for (int i = 0; i < WF_EXTENSIONS && status == WF_OK; i++)
        status = open_extension(ctx, s, i);
    return status;
}

static void close_state(call_state *s)
{
    wf_scopes_empty(&s->now.scopes);
    wf_scopes_free(&s->now.scopes);
    for (int i = 0; i < WF_EXTENSIONS; i++)
        free(s->extension[i]);
    wf_handles_swapped(&s->scopes);
}

static void run_second(void *arg)
{
    struct wf_turns *t = arg;

    wf_scope_open(t->ctx); /* the outermost: it is released with the state */
    t->both->run[1](t->both->arg[1]);
    t->ended = true;
}

/* Continues the second function, from the first. */
static void continue_second(struct wf_turns *t)
{
    bool begins = !t->begun;

    t->begun = true;
    switch_state(t);
    if (begins)
        wf_coroutine_start(t->ctx->beside, run_second, t);
    else
        wf_coroutine_continue(t->ctx->beside);
    switch_state(t);
}

bool wf_beside_waits(const wf_context *ctx)
{
    const struct wf_turns *t = ctx->turns;

    return t && !(t->now == 0 ? t->ended : t->alone);
}

void wf_beside_turn(wf_context *ctx)
{
    struct wf_turns *t = ctx->turns;

    if (!wf_beside_waits(ctx))
        return;
    if (t->now == 0)
        continue_second(t);
    else
        wf_coroutine_stop(ctx->beside);
}

wf_status wf_beside_run(wf_context *ctx, const wf_beside *both)
{
    struct wf_turns t = {.ctx = ctx, .both = both};

    if (ctx->turns)
        return wf_fail(ctx, WF_EINVAL,
                       "calls run beside each other already: a third one has no turn");
    if (!ctx->beside)
        ctx->beside = wf_coroutine_open();
    if (!ctx->beside)
        return wf_fail(ctx, WF_ENOMEM, "no memory for the stack of a second call");
    if (open_state(ctx, &t.other) == WF_OK) {
        ctx->turns = &t;
        both->run[0](both->arg[0]);
        t.alone = true;
        while (!t.ended)
            continue_second(&t);
        ctx->turns = NULL;
    }
    close_state(&t.other);
    return ctx->failure.error.code;
}
