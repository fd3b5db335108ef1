/* core/beside.c - see the header. */
#include "core/beside.h"
#include "core/context_internal.h"
#include "core/coroutine_internal.h"
#include "core/handles_internal.h"
#include <stdlib.h>
#include <string.h>

/* The state that a context has for as long as a call, of the function that does not run. */
typedef struct call_state {
    const char *phase, *action, *point, *op, *path;
    wf_tensor **owned;
    int64_t n_owned, owned_capacity;
    int64_t *marks;
    int n_marks, marks_capacity, lost_marks;
    struct wf_tape *tape;
    const struct wf_node *gradient_of;
    wf_memory_kind kind;
    wf_dtype storage;
    int64_t step, micro_steps, batch;
    wf_sequences sequences;
    bool recorded_later, rows_unreduced, evaluating;
    double repeated;
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

static void swap_state(wf_context *ctx, call_state *s)
{
    SWAP(ctx->point, s->point);
    SWAP(ctx->op, s->op);
    SWAP(ctx->failure.path, s->path);
    SWAP(ctx->owned, s->owned);
    SWAP(ctx->n_owned, s->n_owned);
    SWAP(ctx->owned_capacity, s->owned_capacity);
    SWAP(ctx->marks, s->marks);
    SWAP(ctx->n_marks, s->n_marks);
    SWAP(ctx->marks_capacity, s->marks_capacity);
    SWAP(ctx->lost_marks, s->lost_marks);
    SWAP(ctx->tape, s->tape);
    SWAP(ctx->gradient_of, s->gradient_of);
    SWAP(ctx->kind, s->kind);
    SWAP(ctx->storage, s->storage);
    SWAP(ctx->step, s->step);
    SWAP(ctx->micro_steps, s->micro_steps);
    SWAP(ctx->batch, s->batch);
    SWAP(ctx->sequences, s->sequences);
    SWAP(ctx->recorded_later, s->recorded_later);
    SWAP(ctx->rows_unreduced, s->rows_unreduced);
    SWAP(ctx->evaluating, s->evaluating);
    SWAP(ctx->repeated, s->repeated);
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
    const char *phase = t->other.phase, *action = t->other.action;

    t->other.phase = wf_context_phase(ctx, phase);
    t->other.action = ctx->action;
    wf_context_action(ctx, action);
    swap_state(ctx, &t->other);
    t->now = !t->now;
    wf_pool_moment(ctx->pool, ctx->phase, ctx->failure.path);
    if (t->both->turn)
        t->both->turn(t->both->self, t->now);
}

/* Makes the state in which the second function begins: the context's, with no scope, and in no
   action. */
static wf_status open_state(wf_context *ctx, call_state *s)
{
    *s = (call_state){.phase = ctx->phase,
                      .point = ctx->point,
                      .op = ctx->op,
                      .path = ctx->failure.path,
                      .tape = ctx->tape,
                      .gradient_of = ctx->gradient_of,
                      .kind = ctx->kind,
                      .storage = ctx->storage,
                      .step = ctx->step,
                      .micro_steps = ctx->micro_steps,
                      .batch = ctx->batch,
                      .sequences = ctx->sequences,
                      .recorded_later = ctx->recorded_later,
                      .rows_unreduced = ctx->rows_unreduced,
                      .evaluating = ctx->evaluating,
                      .repeated = ctx->repeated};
    for (int i = 0; i < WF_EXTENSIONS; i++) {
        const wf_extension *of = ctx->extension[i].of;

        if (!of || !of->of_call)
            continue;
        s->extension[i] = malloc(of->bytes);
        if (!s->extension[i])
            return wf_fail(ctx, WF_ENOMEM, "no memory for two calls beside each other");
        memcpy(s->extension[i], ctx->extension[i].data, of->bytes);
    }
    return WF_OK;
}

static void close_state(call_state *s)
{
    while (s->n_owned > 0)
        wf_tensor_release(s->owned[--s->n_owned]);
    free(s->owned);
    free(s->marks);
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
