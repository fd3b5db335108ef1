/*
 * core/beside.h - two functions that run alternately on one thread: where one
 * waits for a transfer, the other one continues, so that what it computes hides the transfer.
 *
 *     wf_beside_run(ctx, &(wf_beside){.run = {forward, backward}, .arg = {&f, &b}});
 *
 * They take turns at transfers that wf_beside_turn stands in front of, and nowhere else, so
 * ranks that run the same functions begin their collectives in the same order. What a context
 * has for as long as a call (its scopes, tape, path, phase, position, ..) each has of its own.
 */
#ifndef WF_CORE_BESIDE_H
#define WF_CORE_BESIDE_H

#include "core/context.h"

WF_BEGIN_DECLS

/** wf_beside - two functions that run alternately. */
typedef struct wf_beside {
    void (*run[2])(void *arg);
    void *arg[2];
    /* NULL, or called before one continues after the other, and once for the first when both
       have ended, to bring what callers keep of it outside of the context */
    void (*turn)(void *self, int which);
    void *self;
} wf_beside;

/**
 * wf_beside_run - runs two functions alternately, from the begin of the first to the end of
 * both
 *
 * Each leaves scopes, tape and settings of the context as it has found them. Extensions that
 * are `of_call` are each function's own; those of the first one stay. Not nested.
 *
 * Errors:  WF_ENOMEM; those of the functions, which end after one as any call does. In the
 *          context; returned
 */
WF_API wf_status wf_beside_run(wf_context *ctx, const wf_beside *both);

/** wf_beside_waits - returns whether another function would continue at wf_beside_turn: what a
 * transfer that begins now is hidden by. */
WF_API bool wf_beside_waits(const wf_context *ctx);

/** wf_beside_turn - lets the other function continue, until it comes here or ends, before a
 * transfer is waited for. Returns at once where there is none. */
WF_API void wf_beside_turn(wf_context *ctx);

WF_END_DECLS

#endif
