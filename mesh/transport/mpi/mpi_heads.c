/* mesh/transport/mpi/mpi_heads.c - heads and notices between processes, in the order they were
   sent. */
#include "mesh/transport/mpi/mpi_world_internal.h"
#include <stdlib.h>
#include <string.h>

static wf_status post_slot(mpi_world *w, int i)
{
    return MPI_Irecv(w->slot_head[i], HEAD_BYTES, MPI_BYTE, MPI_ANY_SOURCE, TAG_HEAD, w->comm,
                     &w->slot[i]) == MPI_SUCCESS
               ? WF_OK
               : WF_ELOST;
}

wf_status wf_mpi_open_slots(mpi_world *w, wf_error *error)
{
    for (int i = 0; i < HEAD_SLOTS; i++) {
        w->slot[i] = MPI_REQUEST_NULL;
        w->slot_head[i] = malloc(HEAD_BYTES);
        if (!w->slot_head[i])
            return wf_mpi_host.error_set(error, WF_ENOMEM, "no memory for heads of MPI");
    }
    for (int i = 0; i < HEAD_SLOTS; i++)
        if (post_slot(w, i) != WF_OK)
            return wf_mpi_host.error_set(error, WF_ELOST, "MPI cannot receive");
    return WF_OK;
}

void wf_mpi_close_slots(mpi_world *w)
{
    if (atomic_load(&w->lost)) /* they stay MPI's */
        return;
    for (int i = 0; i < HEAD_SLOTS; i++) {
        if (w->slot[i] != MPI_REQUEST_NULL) {
            MPI_Cancel(&w->slot[i]);
            MPI_Wait(&w->slot[i], MPI_STATUS_IGNORE);
        }
        free(w->slot_head[i]);
    }
}

bool wf_mpi_good(mpi_world *w, int code)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    wf_error cause = {WF_OK, ""};
    int length;

    if (code == MPI_SUCCESS)
        return true;
    MPI_Error_string(code, text, &length);
    wf_mpi_host.error_set(&cause, WF_ELOST, "MPI: %s", text);
    wf_mpi_abort(w, w->first, &cause);
    return false;
}

void wf_mpi_send_finished(mpi_world *w, int rank)
{
    notice *n = calloc(1, sizeof *n);

    w->finished[rank] = true;
    w->n_finished++;
    if (!n || !(n->request = malloc((size_t)w->processes * sizeof *n->request))) {
        wf_error cause = {WF_OK, ""};

        free(n);
        wf_mpi_host.error_set(&cause, WF_ENOMEM,
                              "no memory to report that rank %d has finished", rank);
        wf_mpi_abort(w, rank, &cause);
        return;
    }
    memcpy(n->head, &(head){.kind = HEAD_FINISHED, .from = rank}, sizeof n->head);
    for (int p = 0; p < w->processes; p++) {
        n->request[p] = MPI_REQUEST_NULL;
        if (p != w->process && !atomic_load(&w->lost))
            MPI_Isend(n->head, (int)sizeof n->head, MPI_BYTE, p, TAG_HEAD, w->comm,
                      &n->request[p]);
    }
    n->next = w->notices;
    w->notices = n;
}

void wf_mpi_abort(mpi_world *w, int failed_rank, const wf_error *cause)
{
    if (atomic_load(&w->aborted))
        return;
    w->failed_rank = failed_rank;
    w->cause = *cause;
    atomic_store(&w->aborted, true);
    wf_mpi_host.threads_abort(w->threads, failed_rank, cause); /* wakes the ranks here */
}

static void keep(mpi_world *w, const head *h, size_t bytes)
{
    early *e = w->unused_early, **link = &w->early;

    if (e)
        w->unused_early = e->next;
    else if (!(e = malloc(sizeof *e))) {
        wf_error cause = {WF_OK, ""};

        wf_mpi_host.error_set(&cause, WF_ENOMEM, "no memory for what other processes sent");
        wf_mpi_abort(w, w->first, &cause);
        return;
    }
    memcpy(e->head, h, bytes);
    e->next = NULL;
    while (*link)
        link = &(*link)->next;
    *link = e;
}

static void receive(mpi_world *w, const head *h)
{
    size_t data = h->block <= (size_t)INLINE_BYTES ? h->block : 0;

    if (h->kind == HEAD_FINISHED) {
        w->finished[h->from] = true;
        w->n_finished++;
    } else if (!wf_mpi_deliver(w, h)) {
        keep(w, h, sizeof *h + data);
    }
}

void wf_mpi_progress(mpi_world *w)
{
    if (atomic_load(&w->lost))
        return;
    for (;;) {
        int came = 0, i = w->next_slot;

        if (!wf_mpi_good(w, MPI_Test(&w->slot[i], &came, MPI_STATUS_IGNORE)) || !came)
            break;
        receive(w, (const head *)(const void *)w->slot_head[i]);
        if (post_slot(w, i) != WF_OK)
            break;
        w->next_slot = (i + 1) % HEAD_SLOTS;
    }
    for (transfer *t = w->active; t; t = t->next)
        wf_mpi_advance(t);
}
