/* mesh/transport/mpi/mpi_transfer.c - the messages of one exchange: heads, then data in a
   window. */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The last word on a group: its members disagree. */
static void break_group(transfer *t, wf_status code, const char *text)
{
    if (t->comm->broken)
        return;
    t->comm->broken = true;
    wf_mpi_host.error_set(&t->comm->mismatch, code, "%s", text);
}

static wf_fingerprint print_of(const head *h)
{
    return (wf_fingerprint){.op = h->op,
                            .detail = h->detail,
                            .element = h->element,
                            .buffers = h->buffers,
                            .bytes = h->bytes,
                            .root = h->root,
                            .shape = h->shape};
}

/* Returns true where two heads agree. Of messages the two ends differ by nature; the kind and
   size of the data count. */
static bool agrees(const transfer *t, const head *h)
{
    const wf_fingerprint theirs = print_of(h), *mine = &t->x->print;

    if (t->comm->key != t->key)
        return wf_mpi_host.fingerprint_meets(mine, &theirs);
    return wf_mpi_host.fingerprint_same(mine, &theirs);
}

static void check_head(transfer *t, const lane *l, const head *h)
{
    const wf_comm *c = &t->comm->base;
    char text[WF_ERROR_TEXT];

    if (h->members != t->comm->members) {
        snprintf(
            text, sizeof text,
            "rank %d and rank %d list different members for group %s; all members of a group "
            "list the same",
            h->from, h->to, c->name);
        break_group(t, WF_EMISMATCH, text);
    } else if (!agrees(t, h)) {
        const wf_fingerprint theirs = print_of(h);

        wf_mpi_host.fingerprint_differ(c, t->sequence, &t->x->print, l->member, &theirs, text,
                                       sizeof text);
        break_group(t, WF_EMISMATCH, text);
    } else if (h->block != l->recv_bytes) {
        wf_error error = {WF_OK, ""};

        wf_mpi_host.error_set(
            &error, WF_EMISMATCH,
            "over %s, rank %d sends %zu bytes to rank %d in %s, which expects %zu", c->name,
            h->from, (size_t)h->block, h->to, t->x->print.op, l->recv_bytes);
        break_group(t, WF_EMISMATCH, error.text);
    }
}

bool wf_mpi_deliver(mpi_world *w, const head *h)
{
    transfer *t = w->active;

    while (t && !(t->key == h->key && t->sequence == h->sequence &&
                  t->comm->ranks[t->comm->base.rank] == h->to))
        t = t->next;
    if (!t)
        return false;
    for (int i = 0; i < t->n; i++) {
        lane *l = &t->lane[i];

        if (t->comm->ranks[l->member] != h->from || l->met)
            continue;
        check_head(t, l, h);
        if (t->comm->broken)
            return true;
        l->met = true;
        l->tag = h->tag;
        t->unmet--;
        if (h->block && h->block <= (size_t)INLINE_BYTES) {
            memcpy(l->recv, h->data, h->block);
            l->received = h->block;
            t->left--;
        }
        return true;
    }
    break_group(t, WF_EMISMATCH,
                "a rank lists this one in its group, which does not list it; all members of a "
                "group list the same");
    return true;
}

static int next_part(size_t whole, size_t done)
{
    return whole - done < CHUNK ? (int)(whole - done) : CHUNK;
}

static void send_part(transfer *t, lane *l)
{
    mpi_world *w = t->comm->world;

    wf_mpi_good(w, MPI_Isend(l->send + l->sent, next_part(l->send_bytes, l->sent), MPI_BYTE,
                             l->process, l->head->tag, w->comm,
                             &t->request[REQUESTS * (l - t->lane) + REQUEST_SEND]));
}

static void recv_part(transfer *t, lane *l)
{
    mpi_world *w = t->comm->world;

    wf_mpi_good(w, MPI_Irecv(l->recv + l->received, next_part(l->recv_bytes, l->received),
                             MPI_BYTE, l->process, l->tag, w->comm,
                             &t->request[REQUESTS * (l - t->lane) + REQUEST_RECV]));
}

static int under_way(const transfer *t, int which)
{
    int count = 0;

    for (int i = 0; i < t->n; i++)
        count += t->request[REQUESTS * i + which] != MPI_REQUEST_NULL;
    return count;
}

/* Posts sends: they go to the next member first, as receives come from the one before first. Of
   all pairs that are not through, one of least distance is in the window of both its ends: it
   advances. */
static void fill_sends(transfer *t)
{
    for (int n = under_way(t, REQUEST_SEND); t->send_at < t->n && n < WINDOW; t->send_at++) {
        lane *l = &t->lane[t->send_at];

        if (l->send_bytes > (size_t)INLINE_BYTES) {
            send_part(t, l);
            n++;
        }
    }
}

static void fill_receives(transfer *t)
{
    for (int n = under_way(t, REQUEST_RECV); t->recv_at >= 0 && n < WINDOW; t->recv_at--) {
        lane *l = &t->lane[t->recv_at];

        if (l->recv_bytes > (size_t)INLINE_BYTES) {
            recv_part(t, l);
            n++;
        }
    }
}

static void complete(transfer *t, int request)
{
    lane *l = &t->lane[request / REQUESTS];
    int which = request % REQUESTS;

    if (which == REQUEST_SEND) {
        l->sent += (size_t)next_part(l->send_bytes, l->sent);
        if (l->sent < l->send_bytes) {
            send_part(t, l);
            return;
        }
    } else if (which == REQUEST_RECV) {
        l->received += (size_t)next_part(l->recv_bytes, l->received);
        if (l->received < l->recv_bytes) {
            recv_part(t, l);
            return;
        }
    }
    t->left--;
}

static int test_all(transfer *t)
{
    int n = 0;

    if (t->n && !wf_mpi_good(t->comm->world, MPI_Testsome(REQUESTS * t->n, t->request, &n,
                                                          t->done, MPI_STATUSES_IGNORE)))
        return 0;
    return n == MPI_UNDEFINED ? 0 : n;
}

void wf_mpi_advance(transfer *t)
{
    mpi_world *w = t->comm->world;
    int n;

    if (atomic_load(&t->over) || t->comm->broken || atomic_load(&w->aborted))
        return;
    n = test_all(t);
    for (int i = 0; i < n; i++)
        complete(t, t->done[i]);
    fill_sends(t);
    if (t->unmet == 0)
        fill_receives(t);
    if (t->unmet == 0 && t->left == 0) {
        atomic_store(&t->over, true);
        if (t->counted)
            w->background--;
        t->counted = false;
    }
}

static bool idle(const transfer *t)
{
    for (int i = 0; i < REQUESTS * t->n; i++)
        if (t->request[i] != MPI_REQUEST_NULL)
            return false;
    return true;
}

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Receives that nothing has come for are cancelled. What is under way needs a moment more, from
   when the first exchange of the world is abandoned; a send that the other end never asked for
   is forgotten: MPI reads its memory on demand alone. Where a process is lost nothing is under
   way, for MPI is not called any more. */
void wf_mpi_abandon(transfer *t)
{
    enum { MOMENT_MS = 1000 };
    mpi_world *w = t->comm->world;

    for (int i = 0; i < t->n && !atomic_load(&w->lost); i++)
        if (t->request[REQUESTS * i + REQUEST_RECV] != MPI_REQUEST_NULL)
            MPI_Cancel(&t->request[REQUESTS * i + REQUEST_RECV]);
    w->patient_until = w->patient_until ? w->patient_until : now_ms() + MOMENT_MS;
    while (!idle(t) && !atomic_load(&w->lost) && now_ms() < w->patient_until) {
        int n;

        MPI_Testsome(REQUESTS * t->n, t->request, &n, t->done, MPI_STATUSES_IGNORE);
        if (!idle(t))
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    for (int i = 0; i < REQUESTS * t->n && !atomic_load(&w->lost); i++)
        if (t->request[i] != MPI_REQUEST_NULL)
            MPI_Request_free(&t->request[i]);
    if (t->counted)
        t->comm->world->background--;
    t->counted = false;
}
