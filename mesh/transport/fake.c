/*
 * mesh/transport/fake.c - the transport that moves nothing: one rank of a world of any size
 * runs alone, and its collectives are counted. It is what plans are made on.
 */
#include "mesh/transport/registry_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct fake_comm {
    wf_comm base;
    int members[];
} fake_comm;

static wf_status open_world(const wf_world_options *options, void **world, wf_error *error)
{
    int *size = malloc(sizeof *size);

    if (!size)
        return wf_error_set(error, WF_ENOMEM, "no memory for a world of %d ranks",
                            options->ranks);
    *size = options->ranks;
    *world = size;
    return WF_OK;
}

static wf_status no_cause(void *world, int *failed_rank, wf_error *error)
{
    (void)world, (void)failed_rank;
    (void)error;
    return WF_OK;
}

static wf_status attach(void *world, int rank, wf_comm **out, wf_error *error)
{
    fake_comm *c = calloc(1, sizeof *c);

    if (!c)
        return wf_error_set(error, WF_ENOMEM, "no memory for the world's handle");
    wf_comm_init(&c->base, &wf_transport_fake, "world", rank, *(int *)world, NULL);
    *out = &c->base;
    return WF_OK;
}

static wf_status split(wf_comm *parent, const char *name, const int *members, int n,
                       wf_comm **out, wf_error *error)
{
    fake_comm *c = calloc(1, sizeof *c + (size_t)n * sizeof(int));
    int rank = 0;

    if (!c)
        return wf_error_set(error, WF_ENOMEM, "no memory for group %s", name);
    for (int i = 0; i < n; i++) {
        c->members[i] = wf_comm_world_rank(parent, members[i]);
        if (members[i] == parent->rank)
            rank = i;
    }
    wf_comm_init(&c->base, parent->transport, name, rank, n, c->members);
    *out = &c->base;
    return WF_OK;
}

static void detach(wf_comm *comm)
{
    free(comm);
}

static void finish(wf_comm *comm)
{
    (void)comm;
}

static void abort_world(wf_comm *comm, const wf_error *cause)
{
    (void)comm;
    (void)cause;
}

static wf_status nothing(wf_comm *comm, wf_exchange *x, wf_error *error)
{
    (void)comm;
    (void)x;
    (void)error;
    return WF_OK;
}

const wf_transport wf_transport_fake = {
    .name = "fake",
    .moves = false,
    .open = open_world,
    .close = free,
    .cause = no_cause,
    .attach = attach,
    .split = split,
    .detach = detach,
    .finish = finish,
    .abort = abort_world,
    .begin = nothing,
    .wait = nothing,
};
