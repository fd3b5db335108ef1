/* mesh/comm/comm.c - the handle of a group. */
#include "core/failed_rank.h"
#include "core/sharing.h"
#include "mesh/comm/transport_internal.h"
#include "mesh/comm/observer_internal.h"
#include <stdio.h>
#include <string.h>

void wf_comm_init(wf_comm *comm, const wf_transport *transport, const char *name, int rank,
                  int size, const int *members)
{
    comm->transport = transport;
    comm->rank = rank;
    comm->size = size;
    comm->members = members;
    snprintf(comm->name, sizeof comm->name, "%s", name);
}

int wf_comm_rank(const wf_comm *comm)
{
    return comm->rank;
}

int wf_comm_size(const wf_comm *comm)
{
    return comm->size;
}

const char *wf_comm_name(const wf_comm *comm)
{
    return comm->name;
}

int wf_comm_world_rank(const wf_comm *comm, int member)
{
    return comm->members ? comm->members[member] : member;
}

const char *wf_comm_transport(const wf_comm *comm)
{
    return comm->transport->name;
}

bool wf_comm_groups_messages(const wf_comm *comm)
{
    return comm->transport->groups_messages;
}

void wf_comm_set_reduce(wf_comm *comm, const wf_reduce_ops *ops)
{
    comm->reduce = *ops;
}

void wf_comm_trace(wf_comm *comm, wf_trace *trace)
{
    comm->trace = trace;
}

void wf_comm_oplog(wf_comm *comm, const wf_oplog *oplog)
{
    comm->oplog = oplog;
}

wf_status wf_comm_pace(wf_comm *comm, wf_pace *pace, wf_error *error)
{
    if (pace && strcmp(comm->transport->name, "threads") != 0)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "collectives are paced over transport threads alone, not over %s",
                            comm->transport->name);
    comm->pace = pace;
    return WF_OK;
}

const wf_comm_counters *wf_comm_counters_of(const wf_comm *comm)
{
    return &comm->counters;
}

void wf_comm_counters_reset(wf_comm *comm)
{
    comm->counters = (wf_comm_counters){0};
}

void wf_comm_count(wf_comm *comm, wf_collective_kind kind, int64_t bytes, bool exposed)
{
    wf_comm_counters *to[] = {&comm->counters, comm->counts_too};

    for (int i = 0; i < 2 && to[i]; i++) {
        to[i]->of[kind].calls++;
        to[i]->of[kind].bytes += bytes;
        to[i]->of[kind].exposed += exposed ? bytes : 0;
    }
}

void wf_comm_count_too(wf_comm *comm, wf_comm_counters *counters)
{
    comm->counts_too = counters;
}

static wf_status check_members(const wf_comm *parent, const char *name, const int *members,
                               int n, wf_error *error)
{
    bool here = false;

    if (n < 1 || n > parent->size)
        return wf_error_set(error, WF_EINVAL,
                            "group %s of %d members cannot be split from %s, which has %d",
                            name, n, parent->name, parent->size);
    for (int i = 0; i < n; i++) {
        if (members[i] <= (i ? members[i - 1] : -1) || members[i] >= parent->size)
            return wf_error_set(
                error, WF_EINVAL,
                "group %s lists rank %d at index %d; members ascend, from 0 to %d "
                "in %s",
                name, members[i], i, parent->size - 1, parent->name);
        here = here || members[i] == parent->rank;
    }
    if (!here)
        return wf_error_set(error, WF_EINVAL,
                            "rank %d of %s splits group %s without being a member; each rank "
                            "lists the group that it is in",
                            parent->rank, parent->name, name);
    return WF_OK;
}

wf_status wf_comm_split(wf_comm *parent, const char *name, const int *members, int n,
                        wf_comm **out, wf_error *error)
{
    wf_status status = check_members(parent, name, members, n, error);

    *out = NULL;
    if (status == WF_OK)
        status = parent->transport->split(parent, name, members, n, out, error);
    if (status != WF_OK)
        return status;
    (*out)->reduce = parent->reduce;
    (*out)->pace = parent->pace;
    if (parent->observer)
        status = parent->observer->split(parent, *out, error);
    if (status != WF_OK) {
        wf_comm_close(*out);
        *out = NULL;
    }
    return status;
}

wf_status wf_comm_share(wf_comm *comm, size_t bytes, wf_shared **shared, wf_error *error)
{
    *shared = NULL;
    return comm->sharing ? wf_sharing_take(comm->sharing, comm->shared++, bytes, shared, error)
                         : WF_OK;
}

void wf_comm_close(wf_comm *comm)
{
    if (!comm)
        return;
    if (comm->in_flight) {
        wf_error cause = {WF_OK, ""};

        wf_error_set(&cause, WF_EINVAL, "rank %d closed group %s over a collective in flight",
                     wf_comm_world_rank(comm, comm->rank), comm->name);
        wf_comm_abort(comm, &cause);
        wf_pending_drop(comm);
    }
    if (comm->observer)
        comm->observer->closes(comm);
    wf_blocks_close(&comm->blocks);
    comm->transport->detach(comm);
}

const char *wf_error_after_rank(const wf_error *error, int rank, const char **colon)
{
    char name[32];
    size_t length = (size_t)snprintf(name, sizeof name, "rank %d", rank);
    bool named = strncmp(error->text, name, length) == 0 &&
                 (error->text[length] == ',' || error->text[length] == ':');

    *colon = named ? "" : wf_names_rank(error->text) ? ", after " : ": ";
    return named ? error->text + length : error->text;
}

void wf_comm_abort(wf_comm *comm, const wf_error *cause)
{
    comm->transport->abort(comm, cause);
    if (comm->observer)
        comm->observer->failed(comm, cause);
}
