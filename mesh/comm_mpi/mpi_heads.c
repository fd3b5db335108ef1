/* mesh/comm_mpi/mpi_heads.c - heads and notices between processes, in the order they were sent. */
#include "mesh/comm_mpi/mpi_world.h"
#include <stdio.h>
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

static void tell(mpi_world *w, const head *h, const char *text)
{
    size_t length = text ? strlen(text) + 1 : 0;
    notice *n = calloc(1, sizeof *n);

    if (!n || !(n->request = malloc((size_t)w->processes * sizeof *n->request))) {
        free(n); /* others will hear of it from the launcher */
        return;
    }
    n->bytes = sizeof *h + length;
    memcpy(n->head, h, sizeof *h);
    if (length)
        memcpy(n->head + sizeof *h, text, length);
    for (int p = 0; p < w->processes; p++) {
        n->request[p] = MPI_REQUEST_NULL;
        if (p != w->process)
            MPI_Isend(n->head, (int)n->bytes, MPI_BYTE, p, TAG_HEAD, w->comm, &n->request[p]);
    }
    n->next = w->notices;
    w->notices = n;
}

void wf_mpi_tell_finished(mpi_world *w, int rank)
{
    w->finished[rank] = true;
    w->n_finished++;
    tell(w, &(head){.kind = HEAD_FINISHED, .from = rank}, NULL);
}

/* Of several ranks that fail at once, all processes choose the same one: the lowest. */
static void note_cause(mpi_world *w, int culprit, wf_status code, const char *text)
{
    if (atomic_load(&w->aborted) && w->culprit <= culprit)
        return;
    w->culprit = culprit;
    w->cause.code = code;
    snprintf(w->cause.text, sizeof w->cause.text, "%s", text);
}

void wf_mpi_abort(mpi_world *w, int culprit, const wf_error *cause)
{
    if (atomic_load(&w->aborted))
        return;
    note_cause(w, culprit, cause->code, cause->text);
    atomic_store(&w->aborted, true);
    w->heard[w->process] = true;
    wf_mpi_host.threads_abort(w->threads, culprit, cause); /* wakes the ranks here */
    tell(w,
         &(head){.kind = HEAD_ABORTED,
                 .from = culprit,
                 .to = w->process,
                 .code = (int32_t)cause->code},
         cause->text);
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

    switch (h->kind) {
    case HEAD_FINISHED:
        w->finished[h->from] = true;
        w->n_finished++;
        return;
    case HEAD_ABORTED: {
        wf_error cause = {(wf_status)h->code, ""};

        snprintf(cause.text, sizeof cause.text, "%s", h->data);
        note_cause(w, h->from, cause.code, cause.text);
        wf_mpi_abort(w, h->from, &cause); /* which says that this process knows */
        w->heard[h->to] = true;
        return;
    }
    default:
        if (!wf_mpi_deliver(w, h))
            keep(w, h, sizeof *h + data);
    }
}

void wf_mpi_progress(mpi_world *w)
{
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
