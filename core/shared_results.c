/*
 * core/shared_results.c - calls whose results one of several ranks computes for all: they wait
 * at the largest shared operand, for every member once, and go with it.
 */
#include "core/context_internal.h"
#include "core/sharing_internal.h"
#include <string.h>

/* An operand that the members do not share is compared by its elements, where it has so few of
   them. */
enum { COMPARED = 64 << 10 };

typedef struct wf_result result;

/* The properties of an operand that decide about results. */
typedef struct operand {
    const wf_shared *shared; /* or NULL: its elements are in `copies` */
    uint64_t serial;         /* no other memory has it */
    size_t offset, bytes;
    wf_dtype dtype, rounds_to;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];
    int64_t start[WF_MAX_DIMS], local[WF_MAX_DIMS];
} operand;

struct wf_result {
    result *next;
    const wf_op *op;
    const wf_kernel *(*kernel)(const struct wf_device *device, const wf_op *op);
    bool exact, compute_fp32, fp32_residual;
    int chunks;       /* wf_context_chunks */
    wf_dtype storage; /* storage type of results */
    int n_in, n_out;
    size_t attr_size;
    char attr[WF_MAX_ATTRIBUTES];
    operand in[WF_MAX_INPUTS];
    size_t copied;    /* bytes of `copies` */
    wf_shared *owner; /* the one in whose list it is */
    wf_shared *out[WF_MAX_OUTPUTS];
    bool done, failed;
    int to_come;   /* members that have not taken it */
    bool *took;    /* [members] */
    char copies[]; /* elements of operands, and after them what `took` points to */
};

static size_t result_bytes(const wf_sharing *s, size_t copied)
{
    return sizeof(result) + copied + (size_t)s->members * sizeof(bool);
}

/* Forgets a result that every member has taken, or never will. */
static void forget(result *r)
{
    wf_sharing *s = r->owner->in;
    result **link = &r->owner->results;

    while (*link != r)
        link = &(*link)->next;
    *link = r->next;
    wf_pool_give(s->pool, r, result_bytes(s, r->copied), WF_MEMORY_WORKSPACE);
}

/* Drops a result that no rank takes any more. */
void wf_result_drop(result *r)
{
    for (int o = 0; o < r->n_out; o++)
        if (r->out[o])
            wf_shared_drop(r->out[o], r->to_come);
    forget(r);
}

/* Returns the largest operand that is shared, where the call's results follow from what can be
   compared. */
static const wf_tensor *largest_shared(const wf_call *call)
{
    const wf_tensor *largest = NULL;

    for (int i = 0; i < call->n_in; i++) {
        const wf_storage *s = call->in[i]->storage;

        if (s && s->shared &&
            (!largest || wf_tensor_bytes(call->in[i]) > wf_tensor_bytes(largest)))
            largest = call->in[i];
    }
    if (!largest || !largest->storage->shared->in->compute_once || call->op->id == 0 ||
        (call->op->flags & (WF_OP_IN_PLACE | WF_OP_VIEW)))
        return NULL;
    for (int o = 0; o < call->n_out; o++)
        if (call->into[o])
            return NULL;
    return largest;
}

/* Returns whether a tensor is whole: a part of one differs between ranks. */
static bool is_whole(const wf_tensor *t)
{
    for (int d = 0; d < t->ndim; d++)
        if (t->local[d] != t->dim[d].size)
            return false;
    return true;
}

/* Describes a call by its operands, in r; false where they cannot identify it. */
static bool describe(const wf_call *call, const wf_sharing *s, result *r)
{
    size_t copied = 0;

    memset(r->out, 0, sizeof r->out);
    r->done = r->failed = false;
    r->op = call->op;
    r->kernel = call->ctx->device->kernel;
    r->exact = wf_context_exact(call->ctx);
    r->chunks = wf_context_chunks(call->ctx);
    r->compute_fp32 = call->ctx->options.compute_fp32;
    r->fp32_residual = call->ctx->options.fp32_residual;
    r->storage = call->ctx->now.storage;
    r->n_in = call->n_in;
    r->n_out = call->n_out;
    r->attr_size = call->attr_size;
    for (int i = 0; i < call->n_in; i++) {
        const wf_tensor *t = call->in[i];
        operand *x = &r->in[i];

        if (!t->storage || !t->data)
            return false;
        *x = (operand){.offset = t->offset,
                       .bytes = wf_tensor_bytes(t),
                       .dtype = t->dtype,
                       .rounds_to = t->rounds_to,
                       .ndim = t->ndim};
        if (t->storage->shared && t->storage->shared->in == s)
            x->shared = t->storage->shared; /* shared by other groups counts as their own */
        memcpy(x->dim, t->dim, sizeof x->dim);
        memcpy(x->start, t->start, sizeof x->start);
        memcpy(x->local, t->local, sizeof x->local);
        if (!x->shared && (x->bytes > COMPARED || !is_whole(t) || t->scales))
            return false;
        if (x->shared) {
            x->serial = x->shared->serial;
        } else {
            x->offset = copied;
            copied += x->bytes;
        }
    }
    r->copied = copied;
    return true;
}

static bool same_operand(const operand *a, const operand *b)
{
    if (a->shared != b->shared || a->serial != b->serial || a->offset != b->offset ||
        a->bytes != b->bytes || a->dtype != b->dtype || a->rounds_to != b->rounds_to ||
        a->ndim != b->ndim)
        return false;
    for (int d = 0; d < a->ndim; d++)
        if (!wf_dim_equal(a->dim[d], b->dim[d]) || a->start[d] != b->start[d] ||
            a->local[d] != b->local[d])
            return false;
    return true;
}

static bool same_call(const result *r, const result *asked, const wf_call *call)
{
    if (r->op != asked->op || r->kernel != asked->kernel || r->exact != asked->exact ||
        r->chunks != asked->chunks || r->compute_fp32 != asked->compute_fp32 ||
        r->fp32_residual != asked->fp32_residual || r->storage != asked->storage ||
        r->n_in != asked->n_in || r->n_out != asked->n_out ||
        r->attr_size != asked->attr_size ||
        (call->attr_size && memcmp(r->attr, call->attr, call->attr_size) != 0))
        return false;
    for (int i = 0; i < r->n_in; i++)
        if (!same_operand(&r->in[i], &asked->in[i]))
            return false;
    for (int i = 0; i < r->n_in; i++)
        if (!r->in[i].shared && r->in[i].bytes &&
            memcmp(r->copies + r->in[i].offset, call->in[i]->data, r->in[i].bytes) != 0)
            return false;
    return true;
}

/* Makes a result that this member computes, described as `asked`; under the lock. NULL: no
   memory. */
static result *result_new(wf_sharing *s, wf_shared *owner, const result *asked,
                          const wf_call *call)
{
    wf_error error = {WF_OK, ""};
    result *r =
        wf_pool_take(s->pool, result_bytes(s, asked->copied), WF_MEMORY_WORKSPACE, &error);

    if (!r)
        return NULL;
    *r = *asked;
    if (call->attr_size)
        memcpy(r->attr, call->attr, call->attr_size);
    for (int i = 0; i < r->n_in; i++)
        if (!r->in[i].shared && r->in[i].bytes)
            memcpy(r->copies + r->in[i].offset, call->in[i]->data, r->in[i].bytes);
    r->took = (bool *)(r->copies + r->copied);
    memset(r->took, 0, (size_t)s->members * sizeof(bool));
    r->to_come = s->members;
    r->owner = owner;
    r->next = owner->results;
    owner->results = r;
    return r;
}

/* Makes this member take part in r, once. */
static void come(wf_share *share, result *r)
{
    r->took[share->member] = true;
    r->to_come--;
}

/* Takes r, which another member computes, or has computed. */
static void take(wf_share *share, result *r, wf_trace *trace)
{
    wf_sharing *s = share->sharing;
    const wf_trace_mark begun = wf_trace_begin(r->done ? NULL : trace);

    s->waiting++;
    while (!r->done)
        pthread_cond_wait(&s->computed, &s->lock);
    s->waiting--;
    wf_trace_end(
        trace, begun,
        &(wf_trace_event){.kind = WF_TRACE_WAIT, .name = "shared result", .location = "ranks"});
    come(share, r);
    if (!r->failed) {
        share->role = WF_SHARE_TAKE;
        memcpy(share->out, r->out, sizeof share->out);
    }
    if (r->to_come == 0)
        forget(r);
}

wf_share wf_share_begin(const wf_call *call)
{
    const wf_tensor *first = largest_shared(call);
    wf_share share = {.role = WF_SHARE_NONE};
    wf_shared *owner;
    result asked, *r;

    if (!first)
        return share;
    owner = first->storage->shared;
    share.sharing = owner->in;
    share.member = first->storage->member;
    if (!describe(call, owner->in, &asked))
        return share;
    pthread_mutex_lock(&owner->in->lock);
    for (r = owner->results; r; r = r->next)
        if (!r->took[share.member] && same_call(r, &asked, call))
            break;
    if (r) {
        take(&share, r, call->ctx->trace);
    } else if ((r = result_new(owner->in, owner, &asked, call))) {
        come(&share, r);
        share.role = WF_SHARE_COMPUTE;
        share.result = r;
    }
    pthread_mutex_unlock(&owner->in->lock);
    if (!r)
        wf_fail(call->ctx, WF_ENOMEM, "%s: no memory to share its results", call->op->name);
    return share;
}

wf_shared *wf_share_output(wf_context *ctx, wf_share *share, int o, size_t bytes)
{
    wf_sharing *s = share->sharing;
    wf_shared *out = share->out[o];
    wf_error error = {WF_OK, ""};

    if (share->role == WF_SHARE_TAKE) {
        share->out[o] = NULL;
        return out;
    }
    pthread_mutex_lock(&s->lock);
    out = wf_shared_new(s, bytes, s->members, &error);
    share->result->out[o] = out;
    pthread_mutex_unlock(&s->lock);
    if (!out)
        wf_fail(ctx, error.code, "%s", error.text);
    return out;
}

void wf_share_end(wf_share *share, bool good)
{
    wf_sharing *s = share->sharing;
    result *r = share->result;

    for (int o = 0; o < WF_MAX_OUTPUTS && share->role == WF_SHARE_TAKE; o++)
        wf_shared_release(share->out[o]); /* a tensor of it could not be made */
    if (share->role != WF_SHARE_COMPUTE)
        return;
    pthread_mutex_lock(&s->lock);
    r->done = true;
    r->failed = !good;
    if (!good)
        for (int o = 0; o < r->n_out; o++) {
            if (r->out[o])
                wf_shared_drop(r->out[o], r->to_come);
            r->out[o] = NULL;
        }
    if (r->to_come == 0)
        forget(r);
    if (s->waiting)
        pthread_cond_broadcast(&s->computed);
    pthread_mutex_unlock(&s->lock);
}
