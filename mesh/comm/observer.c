/* mesh/comm/observer.c - reports to the observer of a handle what its rank does. */
#include "mesh/comm/observer_internal.h"
#include "mesh/comm/transport_internal.h"

void wf_comm_coordinates(wf_comm *comm, const char *text)
{
    if (comm->observer)
        comm->observer->coordinates(comm, text);
}

void wf_comm_position(wf_comm *comm, int64_t step, const char *module)
{
    if (comm->observer)
        comm->observer->position(comm, step, module);
}

void wf_comm_action(wf_comm *comm, const char *name, int64_t number, int64_t of)
{
    if (comm->observer)
        comm->observer->action(comm, name, number, of);
}

uint64_t wf_comm_begins(wf_comm *comm, const wf_collective *what, int64_t bytes)
{
    return comm->observer ? comm->observer->begin(comm, what, bytes) : 0;
}

void wf_comm_ends(wf_comm *comm, const wf_collective *what, uint64_t sequence, bool failed)
{
    if (comm->observer)
        comm->observer->end(comm, what, sequence, failed);
}

void wf_comm_waits(wf_comm *comm, const wf_collective *what, uint64_t sequence)
{
    if (comm->observer)
        comm->observer->wait(comm, what, sequence);
}

void wf_comm_waits_no_more(wf_comm *comm)
{
    if (comm->observer)
        comm->observer->wait_over(comm);
}

void wf_comm_at_files(wf_comm *comm, bool at_files)
{
    if (comm->observer)
        comm->observer->at_files(comm, at_files);
}

void wf_comm_locate(wf_comm *comm, wf_error *error)
{
    if (comm->observer)
        comm->observer->locate(comm, error);
}
