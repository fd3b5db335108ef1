/*
 * mesh/transport/nccl/nccl_alone.c - where nothing is below: members say to each other over
 * NCCL what they are about to do, in heads of 96 bytes that go before the data, and memory of
 * the host travels by way of the device. Costs a launch more for every exchange, of some ten
 * microseconds on the communication stream, and the host waits for the heads of the others
 * where it ends an exchange.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool meets(const transfer *t, int member)
{
    bool message = wf_exchange_is_message(t->x->kind);

    return member != t->comm->base.rank && (!message || member == t->x->peer);
}

static head *heads_of(const transfer *t, head *all, bool heard)
{
    size_t size = (size_t)t->comm->base.size;

    return all + (2 * (size_t)t->slot + heard) * size;
}

static void free_heads(heads *h)
{
    cudaFreeHost(h->near);
    cudaFree(h->far);
    free(h);
}

/* Adds a block of heads. */
static wf_status add_heads(nccl_comm *c, wf_error *error)
{
    size_t bytes = BLOCK_SLOTS * 2 * (size_t)c->base.size * sizeof(head);
    heads *h = calloc(1, sizeof *h);
    void *near = NULL, *far = NULL;
    wf_status status;

    if (!h)
        return wf_nccl_host.error_set(error, WF_ENOMEM,
                                      "no memory for one more exchange in flight over %s",
                                      c->base.name);
    status = wf_nccl_cuda(cudaMallocHost(&near, bytes), "cudaMallocHost", error);
    if (status == WF_OK)
        status = wf_nccl_cuda(cudaMalloc(&far, bytes), "cudaMalloc", error);
    h->near = near;
    h->far = far;
    if (status != WF_OK) {
        free_heads(h);
        return status;
    }
    memset(near, 0, bytes);
    h->next = c->heads;
    c->heads = h;
    return WF_OK;
}

wf_status wf_nccl_alone_open(nccl_comm *c, wf_error *error)
{
    return c->inner || c->heads ? WF_OK : add_heads(c, error);
}

void wf_nccl_alone_close(nccl_comm *c)
{
    while (c->heads) {
        heads *next = c->heads->next;

        free_heads(c->heads);
        c->heads = next;
    }
}

static wf_status take_slot(transfer *t, wf_error *error)
{
    nccl_comm *c = t->comm;
    heads *h = c->heads;
    int slot = 0;

    while (h && h->taken == UINT32_MAX)
        h = h->next;
    if (!h) {
        wf_status status = add_heads(c, error);

        if (status != WF_OK)
            return status;
        h = c->heads;
    }
    while (h->taken >> slot & 1)
        slot++;
    h->taken |= (uint32_t)1 << slot;
    t->heads = h;
    t->slot = slot;
    return WF_OK;
}

static void write_heads(transfer *t)
{
    const wf_fingerprint *p = &t->x->print;
    head *mine = heads_of(t, t->heads->near, false);

    for (int i = 0; i < t->comm->base.size; i++) {
        mine[i] = (head){.element = p->element,
                         .shape = p->shape,
                         .block = wf_nccl_send_bytes(t, i),
                         .buffers = p->buffers,
                         .bytes = p->bytes,
                         .root = p->root};
        snprintf(mine[i].op, sizeof mine[i].op, "%s", p->op);
        snprintf(mine[i].detail, sizeof mine[i].detail, "%s", p->detail);
    }
}

/* Counts the bytes that go out of this rank's memory, and that come in. */
static void extents(const transfer *t, size_t *out, size_t *in)
{
    const wf_exchange *x = t->x;

    *in =
        t->x->kind == WF_EXCHANGE_REDUCE ? x->bytes : wf_nccl_all_bytes(t, wf_nccl_recv_bytes);
    switch (t->x->kind) {
    case WF_EXCHANGE_ALL_TO_ALL:
        *out = wf_nccl_all_bytes(t, wf_nccl_send_bytes);
        break;
    case WF_EXCHANGE_ALL_GATHER:
        *out = wf_nccl_send_bytes(t, 0);
        break;
    case WF_EXCHANGE_BROADCAST:
        *out = t->comm->base.rank == x->peer ? x->bytes : 0;
        break;
    default:
        *out =
            t->x->kind == WF_EXCHANGE_SEND || t->x->kind == WF_EXCHANGE_REDUCE ? x->bytes : 0;
    }
}

/* Copies of the host's memory on the device: what goes out, then what comes in. */
static wf_status stage(transfer *t, wf_error *error)
{
    size_t out, in;
    void *copies = NULL;
    wf_status status;

    extents(t, &out, &in);
    if (t->x->device || out + in == 0)
        return WF_OK;
    status = wf_nccl_cuda(cudaMalloc(&copies, out + in), "cudaMalloc", error);
    if (status != WF_OK)
        return status;
    t->staged = copies;
    t->moves.send = t->staged;
    t->moves.recv = t->staged + out;
    return out ? wf_nccl_cuda(cudaMemcpyAsync(t->staged, t->x->send, out,
                                              cudaMemcpyHostToDevice, t->comm->rank->stream),
                              "cudaMemcpyAsync", error)
               : WF_OK;
}

wf_status wf_nccl_alone_begin(transfer *t, wf_error *error)
{
    wf_status status = WF_OK;

    if (t->comm->base.size > 1) {
        status = take_slot(t, error);
        if (status == WF_OK)
            write_heads(t);
    }
    return status == WF_OK ? stage(t, error) : status;
}

static ncclResult_t copy_heads(const transfer *t, cudaStream_t stream, bool heard)
{
    head *near = heads_of(t, t->heads->near, heard);
    head *far = heads_of(t, t->heads->far, heard);
    size_t bytes = (size_t)t->comm->base.size * sizeof(head);
    cudaError_t code = heard
                           ? cudaMemcpyAsync(near, far, bytes, cudaMemcpyDeviceToHost, stream)
                           : cudaMemcpyAsync(far, near, bytes, cudaMemcpyHostToDevice, stream);

    return code == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t wf_nccl_alone_bring(const transfer *t, cudaStream_t stream)
{
    return copy_heads(t, stream, false);
}

ncclResult_t wf_nccl_alone_fetch(const transfer *t, cudaStream_t stream)
{
    return copy_heads(t, stream, true);
}

ncclResult_t wf_nccl_alone_heads(const transfer *t, cudaStream_t stream)
{
    const nccl_comm *c = t->comm;
    head *mine = heads_of(t, t->heads->far, false), *theirs = heads_of(t, t->heads->far, true);
    ncclResult_t code = ncclSuccess;

    for (int i = 0; i < c->base.size && code == ncclSuccess; i++) {
        if (!meets(t, i))
            continue;
        if (t->x->kind != WF_EXCHANGE_RECV)
            code = ncclSend(&mine[i], sizeof(head), ncclInt8, i, c->nccl, stream);
        if (t->x->kind != WF_EXCHANGE_SEND && code == ncclSuccess)
            code = ncclRecv(&theirs[i], sizeof(head), ncclInt8, i, c->nccl, stream);
    }
    return code;
}

static wf_fingerprint print_of(const head *h)
{
    return (wf_fingerprint){.op = h->op,
                            .detail = h->detail,
                            .element = h->element,
                            .buffers = h->buffers,
                            .bytes = h->bytes,
                            .root = (int)h->root,
                            .shape = h->shape};
}

static wf_status compare(const transfer *t, int member, const head *h, wf_error *error)
{
    const nccl_comm *c = t->comm;
    wf_fingerprint theirs = print_of(h);
    bool same = t->x->kind == WF_EXCHANGE_RECV
                    ? wf_nccl_host.fingerprint_meets(&t->x->print, &theirs)
                    : wf_nccl_host.fingerprint_same(&t->x->print, &theirs);
    char text[900];

    if (!same) {
        wf_nccl_host.fingerprint_differ(&c->base, t->call, &t->x->print, member, &theirs, text,
                                        sizeof text);
        return wf_nccl_host.error_set(error, WF_EMISMATCH, "%s", text);
    }
    if (h->block != wf_nccl_recv_bytes(t, member))
        return wf_nccl_host.error_set(
            error, WF_EMISMATCH,
            "over %s, rank %d sends %zu bytes to rank %d in %s, which expects %zu",
            c->base.name, c->members[member], (size_t)h->block, c->rank->index, t->x->print.op,
            wf_nccl_recv_bytes(t, member));
    return WF_OK;
}

wf_status wf_nccl_alone_compare(transfer *t, wf_error *error)
{
    const head *theirs = heads_of(t, t->heads->near, true);
    wf_status status = WF_OK;

    for (int i = 0; i < t->comm->base.size && status == WF_OK; i++)
        if (t->x->kind != WF_EXCHANGE_SEND && meets(t, i))
            status = compare(t, i, &theirs[i], error);
    return status;
}

wf_status wf_nccl_alone_end(transfer *t, wf_error *error)
{
    cudaStream_t stream = t->comm->rank->stream;
    size_t out, in;
    wf_status status;

    extents(t, &out, &in);
    if (!t->staged || in == 0)
        return WF_OK;
    status = wf_nccl_cuda(
        cudaMemcpyAsync(t->x->recv, t->moves.recv, in, cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync", error);
    return status == WF_OK
               ? wf_nccl_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize", error)
               : status;
}

void wf_nccl_alone_drop(transfer *t)
{
    if (t->comm->inner)
        return;
    if (t->heads)
        t->heads->taken &= ~((uint32_t)1 << t->slot);
    t->heads = NULL;
    if (t->staged)
        cudaFree(t->staged);
    t->staged = NULL;
}
