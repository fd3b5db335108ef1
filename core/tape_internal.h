/* core/tape_internal.h - the inside of a tape, for tape.c and backward.c. Not installed. */
#ifndef WF_CORE_TAPE_INTERNAL_H
#define WF_CORE_TAPE_INTERNAL_H

#include "core/context_internal.h"
#include "core/signature.h"
#include "core/tape.h"

typedef struct wf_node node;

typedef struct edge {
    node *made_by; /* the producing node */
    int output;
    wf_tensor *leaf; /* or the leaf; both absent where no gradient is wanted */
    bool given;      /* the leaf has it */
} edge;

struct wf_node {
    node *before; /* recorded before this one */
    node *given;  /* the next one in the tape's list */
    const wf_op *op;
    const char *path; /* the module that recorded it */
    int n_in, n_out;
    bool walked;   /* gradients went through it: once only */
    bool deferred; /* its leaves are still owed their gradients */
    edge from[WF_MAX_INPUTS];
    wf_tensor *in[WF_MAX_INPUTS], *out[WF_MAX_OUTPUTS], *dout[WF_MAX_OUTPUTS];
    /* how often they had been changed in place when they were saved, or last used */
    uint32_t in_version[WF_MAX_INPUTS], out_version[WF_MAX_OUTPUTS],
        dout_version[WF_MAX_OUTPUTS];
    const wf_layout *regather[WF_MAX_INPUTS]; /* in[i] is an origin: redistribute it to this */
    bool is_origin[WF_MAX_INPUTS];
    _Alignas(8) unsigned char attr[WF_MAX_ATTRIBUTES];
    wf_status (*hook)(void *arg); /* set by wf_tape_hook; such a node has no op */
    void *arg;
};

struct wf_tape {
    wf_context *ctx;
    uint64_t serial;
    node *newest;
    node *given; /* those with leaves that have their gradients */
    int64_t n_hooks;
};

/* Let go of what a node holds, once nobody needs it any more. */
void wf_node_forget(node *n);

/* Whoever looks at leaves now finds in each a gradient of its own. */
wf_status wf_tape_settle(wf_tape *tape);

#endif
