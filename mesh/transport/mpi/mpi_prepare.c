/*
 * mesh/transport/mpi/mpi_prepare.c - what an exchange is made of: which block is for whom,
 * within this process and beyond it.
 */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <stdio.h>
#include <string.h>

static size_t before(const size_t *bytes, int member)
{
    size_t sum = 0;

    for (int i = 0; i < member; i++)
        sum += bytes[i];
    return sum;
}

/* Returns the bytes that this rank has for a member, and the bytes it expects. */
static const char *outgoing(const wf_exchange *x, int me, int member, size_t *bytes)
{
    switch (x->kind) {
    case WF_EXCHANGE_ALL_TO_ALL:
        *bytes = x->send_bytes[member];
        return (const char *)x->send + before(x->send_bytes, member);
    case WF_EXCHANGE_ALL_GATHER:
        *bytes = x->recv_bytes[me];
        return x->send;
    case WF_EXCHANGE_BROADCAST:
    case WF_EXCHANGE_SEND:
        *bytes = x->kind == WF_EXCHANGE_SEND || me == x->peer ? x->bytes : 0;
        return x->send;
    default:
        *bytes = 0;
        return NULL;
    }
}

static char *incoming(const wf_exchange *x, int member, size_t *bytes)
{
    switch (x->kind) {
    case WF_EXCHANGE_ALL_TO_ALL:
    case WF_EXCHANGE_ALL_GATHER:
        *bytes = x->recv_bytes[member];
        return (char *)x->recv + before(x->recv_bytes, member);
    case WF_EXCHANGE_BROADCAST:
    case WF_EXCHANGE_RECV:
        *bytes = x->kind == WF_EXCHANGE_RECV || member == x->peer ? x->bytes : 0;
        return x->recv;
    default:
        *bytes = 0;
        return NULL;
    }
}

wf_status wf_mpi_copy_inside(const wf_exchange *inner, int share, int64_t piece,
                             wf_error *error)
{
    const wf_direct_access *memory = wf_mpi_host.threads->direct;
    const transfer *to = memory->owner(inner, share);
    int receiver = to->comm->base.rank;

    (void)piece;
    for (int i = 0; i < inner->comm->size; i++) {
        const transfer *from = memory->owner(inner, i);
        int sender = from->comm->base.rank;
        size_t bytes, room;
        const char *source = outgoing(from->x, sender, receiver, &bytes);
        char *target = incoming(to->x, sender, &room);

        if (bytes != room)
            return wf_mpi_host.error_set(
                error, WF_EMISMATCH,
                "over %s, rank %d sends %zu bytes to rank %d in %s, which expects %zu",
                to->comm->base.name, to->comm->ranks[sender], bytes, to->comm->ranks[receiver],
                to->x->print.op, room);
        if (bytes && source != target && !(from == to && to->x->mine_stays))
            memmove(target, source, bytes);
    }
    return WF_OK;
}

static int lanes_of(const mpi_comm *c, const wf_exchange *x)
{
    int n = 0;

    if (wf_exchange_is_message(x->kind))
        return c->local[x->peer] < 0;
    for (int i = 0; i < c->base.size; i++)
        n += c->local[i] < 0;
    return n;
}

static void *carve(char **at, size_t bytes)
{
    void *piece = *at;

    *at += (bytes + 15) / 16 * 16;
    return piece;
}

void wf_mpi_write_head(const transfer *t, lane *l)
{
    mpi_comm *c = t->comm;
    const wf_fingerprint *p = &t->x->print;
    head *h = l->head;

    *h = (head){.kind = HEAD_EXCHANGE,
                .from = c->ranks[c->base.rank],
                .to = c->ranks[l->member],
                .tag = TAG_DATA + c->world->next_tag,
                .root = p->root,
                .key = t->key,
                .sequence = t->sequence,
                .members = c->members,
                .block = l->send_bytes,
                .element = p->element,
                .shape = p->shape,
                .buffers = p->buffers,
                .bytes = p->bytes};
    c->world->next_tag = (c->world->next_tag + 1) % c->world->tags;
    snprintf(h->op, sizeof h->op, "%s", p->op);
    snprintf(h->detail, sizeof h->detail, "%s", p->detail);
}

/* Lays out the lanes, the next member's first, and the work on each. */
static void lay_lanes(transfer *t, char *at)
{
    const mpi_comm *c = t->comm;
    int i = 0, me = c->base.rank, size = c->base.size;

    for (int k = 1; k < size; k++) {
        int member = wf_exchange_is_message(t->x->kind) ? t->x->peer : (me + k) % size;
        lane *l = &t->lane[i];

        if (i == t->n || c->local[member] >= 0)
            continue;
        *l = (lane){
            .member = member, .process = c->world->process_of[c->ranks[member]], .send = NULL};
        l->send = outgoing(t->x, me, member, &l->send_bytes);
        l->recv = incoming(t->x, member, &l->recv_bytes);
        l->head = carve(&at, sizeof(head) + wf_mpi_inline_bytes(l->send_bytes));
        t->left += 1 + (l->send_bytes > (size_t)INLINE_BYTES) + (l->recv_bytes > 0);
        i++;
    }
    for (int r = 0; r < REQUESTS * t->n; r++)
        t->request[r] = MPI_REQUEST_NULL;
    t->unmet = t->n;
    t->recv_at = t->n - 1;
}

transfer *wf_mpi_transfer_new(mpi_comm *c, wf_exchange *x, wf_error *error)
{
    int n = lanes_of(c, x), me = c->base.rank;
    size_t count = (size_t)n, bytes = sizeof(transfer) + 64;
    transfer *t;
    char *at;

    bytes += count * (sizeof(lane) + REQUESTS * (sizeof(MPI_Request) + sizeof(int)));
    for (int i = 0; i < c->base.size; i++) {
        size_t block;

        outgoing(x, me, i, &block);
        if (c->local[i] < 0)
            bytes += sizeof(head) + wf_mpi_inline_bytes(block) + 16;
    }
    t = wf_mpi_host.blocks_take(&c->base.blocks, bytes);
    if (!t) {
        wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for %s over %s", x->print.op,
                              c->base.name);
        return NULL;
    }
    memset(t, 0, sizeof *t);
    at = (char *)t;
    carve(&at, sizeof *t);
    t->comm = c;
    t->x = x;
    t->bytes = bytes;
    t->n = n;
    t->lane = carve(&at, count * sizeof(lane));
    t->request = carve(&at, REQUESTS * count * sizeof(MPI_Request));
    t->done = carve(&at, REQUESTS * count * sizeof(int));
    lay_lanes(t, at);
    return t;
}
