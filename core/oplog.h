/*
 * core/oplog.h - the op log: callbacks that get what a rank does, in its order: ops, and
 * collectives and messages as they begin and as the rank waits for their end. In a plan, too,
 * where nothing is computed or moved.
 */
#ifndef WF_CORE_OPLOG_H
#define WF_CORE_OPLOG_H

#include "core/export.h"
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

struct wf_call;

/** wf_oplog_move - a collective or a message that begins. Texts and lists are borrowed until
 * the call returns. */
typedef struct wf_oplog_move {
    const char *op;    /* "all_reduce", .., "send", "recv" */
    const char *group; /* the name of the group of ranks */
    int size;          /* ranks of the group */
    int64_t whole;     /* bytes gathered, reduced or sent .. */
    int64_t brings;    /* .. and those of them that this rank contributes */
    size_t element;    /* bytes of an element */
    int64_t receives;  /* bytes that this rank receives from others, as traffic is counted */
    int peer;     /* a message's other end, a broadcast's root: a rank of the world; else -1 */
    uint64_t tag; /* a message's */
} wf_oplog_move;

/** wf_oplog - the callbacks of an op log; called by the rank's own thread. */
typedef struct wf_oplog {
    void (*op)(void *self, const struct wf_call *call);
    uint64_t (*begin)(void *self, const wf_oplog_move *what); /* a number above 0, for .. */
    void (*end)(void *self, uint64_t number);                 /* .. the end of it */
    void *self;
} wf_oplog;

WF_END_DECLS

#endif
