/*
 * mesh/transport/nccl/nccl_window.c - symmetric windows: memory that all members of a group
 * have registered together, at the same offsets, through which NCCL moves by copy engines and
 * without multiprocessors, where it can (NCCL_CTA_POLICY_ZERO).
 *
 * A group has one, of WEFT_NCCL_WINDOW bytes, made for the first exchange that goes through it:
 * an all-gather of even parts, or the all-to-all of a sum that has such, that fits. What is
 * sent is copied into it and what has come out of it on the rank's stream, so that the next
 * exchange finds it free. Without the variable all moves are what they were.
 */
#include "mesh/transport/nccl/nccl_world_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)

enum { ALIGNMENT = NCCL_WIN_REQUIRED_ALIGNMENT, MOST_NAPS = 4000 };

/* An older library at run time lacks them. */
ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *block, size_t bytes,
                                    ncclWindow_t *window, int flags) __attribute__((weak));
ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
    __attribute__((weak));
ncclResult_t ncclAlltoAll(const void *from, void *to, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) __attribute__((weak));

static bool has_windows(void)
{
    int version = 0;

    return ncclCommWindowRegister && ncclCommWindowDeregister && ncclAlltoAll &&
           ncclGetVersion(&version) == ncclSuccess && version >= NCCL_VERSION(2, 28, 0);
}

void wf_nccl_window_config(const nccl_world *w, ncclConfig_t *config)
{
    if (w->window)
        config->CTAPolicy = NCCL_CTA_POLICY_ZERO;
}

/* Registers memory as the group's window, which all members do here. NCCL has none where
   devices cannot see each other's memory. */
static wf_status make(nccl_comm *c, wf_error *error)
{
    const size_t bytes = c->rank->world->window;
    ncclWindow_t window = NULL;
    ncclResult_t code = ncclSuccess;
    wf_status status;

    c->window_asked = true;
    if (ncclMemAlloc(&c->window_memory, bytes) != ncclSuccess)
        return wf_nccl_host.error_set(error, WF_ENOMEM,
                                      "rank %d has no memory for a window of %zu bytes over "
                                      "%s: lower WEFT_NCCL_WINDOW, or leave it out",
                                      c->rank->index, bytes, c->base.name);
    pthread_mutex_lock(&c->rank->lock);
    if (c->nccl)
        code = ncclCommWindowRegister(c->nccl, c->window_memory, bytes, &window,
                                      NCCL_WIN_COLL_SYMMETRIC);
    pthread_mutex_unlock(&c->rank->lock);
    status = wf_nccl_good(c, code, "ncclCommWindowRegister", error);
    if (status == WF_OK)
        status = wf_nccl_settle(c, "joining windows", c->calls, error);
    c->window = window;
    if (status == WF_OK && !window && c->nccl)
        status = wf_nccl_host.error_set(
            error, WF_EUNSUPPORTED,
            "NCCL has no window over %s, whose GPUs do not see each other's memory: leave "
            "WEFT_NCCL_WINDOW out",
            c->base.name);
    return status;
}

void wf_nccl_window_close(nccl_comm *c)
{
    ncclResult_t state =
        c->window && c->nccl ? ncclCommWindowDeregister(c->nccl, c->window) : ncclSuccess;

    for (int naps = 0; state == ncclInProgress && naps < MOST_NAPS; wf_nccl_nap(&naps))
        ncclCommGetAsyncError(c->nccl, &state);
    c->window = NULL;
}

void wf_nccl_window_free(nccl_comm *c)
{
    if (c->window_memory)
        ncclMemFree(c->window_memory);
    c->window_memory = NULL;
}

ncclResult_t wf_nccl_window_all_to_all(const transfer *t, cudaStream_t stream)
{
    return ncclAlltoAll(t->moves.send, t->moves.recv, t->part, ncclInt8, t->comm->nccl, stream);
}

#else

static bool has_windows(void)
{
    return false;
}

void wf_nccl_window_config(const nccl_world *w, ncclConfig_t *config)
{
    (void)w;
    (void)config;
}

static wf_status make(nccl_comm *c, wf_error *error)
{
    (void)c;
    (void)error;
    return WF_OK;
}

void wf_nccl_window_close(nccl_comm *c)
{
    (void)c;
}

void wf_nccl_window_free(nccl_comm *c)
{
    (void)c;
}

ncclResult_t wf_nccl_window_all_to_all(const transfer *t, cudaStream_t stream)
{
    (void)t;
    (void)stream;
    return ncclInvalidUsage;
}

enum { ALIGNMENT = 4096 };

#endif

/* Reads a size in bytes, with K, M or G after it, and an iB or B after that; 0: it is none. */
static size_t read_size(const char *text)
{
    char *end = NULL;
    double n = strtod(text, &end);
    const char *units = "KMG", *unit = end && *end ? strchr(units, *end) : NULL;

    if (unit) {
        n *= (double)((size_t)1 << (10 * (unit - units + 1)));
        end++;
        end += *end == 'i';
        end += *end == 'B';
    }
    return end && end != text && !*end && n >= 1 && n < 1e15 ? (size_t)n : 0;
}

wf_status wf_nccl_window_open(nccl_world *w, wf_error *error)
{
    const char *text = getenv("WEFT_NCCL_WINDOW");
    size_t bytes = text ? read_size(text) : 0;
    int version = 0;

    if (!text || strcmp(text, "0") == 0)
        return WF_OK;
    if (!bytes)
        return wf_nccl_host.error_set(error, WF_EINVAL,
                                      "WEFT_NCCL_WINDOW=%s is no size of a window: give bytes, "
                                      "or 64MiB, or 0 for none",
                                      text);
    if (has_windows()) {
        w->window = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
        return WF_OK;
    }
    ncclGetVersion(&version);
    return wf_nccl_host.error_set(
        error, WF_EUNSUPPORTED,
        "WEFT_NCCL_WINDOW=%s asks for windows, which NCCL has from 2.28 on: this one is "
        "%d.%d.%d, and the transport was built with %d.%d; leave the variable out",
        text, version / 10000, version / 100 % 100, version % 100, NCCL_VERSION_CODE / 10000,
        NCCL_VERSION_CODE / 100 % 100);
}

/* Returns the bytes of every part of an exchange, which all are alike, or 0. */
static size_t even_part(const transfer *t)
{
    const size_t part = wf_nccl_recv_bytes(t, 0);

    for (int i = 0; i < t->comm->base.size; i++)
        if (wf_nccl_recv_bytes(t, i) != part || wf_nccl_send_bytes(t, i) != part)
            return 0;
    return part;
}

/* Returns where the second half of a window begins, in which the parts of a sum arrive. */
static size_t half_of(const nccl_comm *c)
{
    return c->rank->world->window / 2 / ALIGNMENT * ALIGNMENT;
}

/* Returns the bytes of a part where an exchange goes through the group's window, else 0. All
   members find the same: of a sum, too, a part has the same bytes from all of them, but not of
   any other all-to-all. */
static size_t part_of(const transfer *t)
{
    const nccl_comm *c = t->comm;
    const bool gathers = t->x->kind == WF_EXCHANGE_ALL_GATHER,
               sums = t->x->kind == WF_EXCHANGE_ALL_TO_ALL && *t->x->print.detail;
    size_t part, room = c->rank->world->window;

    if (!room || c->base.size < 2 || !t->x->device || t->next || !(gathers || sums))
        return 0;
    part = even_part(t);
    return part * (size_t)c->base.size <= (gathers ? room : half_of(c)) ? part : 0;
}

/* Copies parts [first, end) of all members, one after the other. */
static cudaError_t copy_parts(const transfer *t, int first, int end, void *to, const void *from)
{
    const size_t at = (size_t)first * t->part, bytes = (size_t)(end - first) * t->part;

    if (end <= first)
        return cudaSuccess;
    return cudaMemcpyAsync((char *)to + at, (const char *)from + at, bytes,
                           cudaMemcpyDeviceToDevice, t->comm->rank->stream);
}

/* Copies the parts of all members but this one. */
static cudaError_t copy_others(const transfer *t, void *to, const void *from)
{
    const nccl_comm *c = t->comm;
    cudaError_t code = copy_parts(t, 0, c->base.rank, to, from);

    return code == cudaSuccess ? copy_parts(t, c->base.rank + 1, c->base.size, to, from) : code;
}

wf_status wf_nccl_window_enter(transfer *t, wf_error *error)
{
    nccl_comm *c = t->comm;
    const int me = c->base.rank;
    wf_status status = WF_OK;
    cudaError_t code;
    char *memory;

    t->part = part_of(t);
    if (t->part && !c->window_asked)
        status = make(c, error);
    if (status != WF_OK || !t->part || !c->window) {
        t->part = 0;
        return status;
    }
    memory = c->window_memory;
    if (t->x->kind == WF_EXCHANGE_ALL_GATHER) {
        t->moves.recv = memory;
        t->moves.send = memory + (size_t)me * t->part;
        code = cudaMemcpyAsync(memory + (size_t)me * t->part, t->x->send, t->part,
                               cudaMemcpyDeviceToDevice, c->rank->stream);
    } else {
        t->moves.send = memory;
        t->moves.recv = memory + half_of(c);
        code = copy_others(t, memory, t->x->send);
    }
    return wf_nccl_cuda(code, "cudaMemcpyAsync", error);
}

wf_status wf_nccl_window_leave(const transfer *t, wf_error *error)
{
    if (!t->part)
        return WF_OK;
    return wf_nccl_cuda(t->x->kind == WF_EXCHANGE_ALL_GATHER
                            ? copy_parts(t, 0, t->comm->base.size, t->x->recv, t->moves.recv)
                            : copy_others(t, t->x->recv, t->moves.recv),
                        "cudaMemcpyAsync", error);
}
