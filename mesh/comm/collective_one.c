/* mesh/comm/collective_one.c - the collectives of one buffer, begun and ended in one call. */
#include "mesh/comm/collective.h"

wf_status wf_all_reduce(wf_comm *comm, wf_reduction reduction, const float *in, float *out,
                        int64_t count, wf_error *error)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .count = count};
    wf_collective what = {
        .kind = WF_ALL_REDUCE, .reduction = reduction, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(comm, &what, error);
}

wf_status wf_reduce_scatter(wf_comm *comm, wf_reduction reduction, const float *in, float *out,
                            const int64_t *cuts, wf_error *error)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .cuts = cuts};
    wf_collective what = {
        .kind = WF_REDUCE_SCATTER, .reduction = reduction, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(comm, &what, error);
}

wf_status wf_all_gather(wf_comm *comm, size_t element, const void *in, void *out,
                        const int64_t *cuts, wf_error *error)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .cuts = cuts};
    wf_collective what = {
        .kind = WF_ALL_GATHER, .element = element, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(comm, &what, error);
}

wf_status wf_all_to_all(wf_comm *comm, size_t element, const void *in, const int64_t *in_cuts,
                        void *out, const int64_t *out_cuts, wf_error *error)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .cuts = in_cuts, .out_cuts = out_cuts};
    wf_collective what = {
        .kind = WF_ALL_TO_ALL, .element = element, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(comm, &what, error);
}

static wf_status move(wf_comm *comm, wf_collective_kind kind, size_t element, int peer,
                      const void *in, void *out, int64_t count, wf_error *error)
{
    wf_comm_buffer buffer = {.in = in, .out = out, .count = count};
    wf_collective what = {
        .kind = kind, .element = element, .peer = peer, .n_buffers = 1, .buffers = &buffer};

    return wf_collective_run(comm, &what, error);
}

wf_status wf_broadcast(wf_comm *comm, size_t element, int root, void *buffer, int64_t count,
                       wf_error *error)
{
    return move(comm, WF_BROADCAST, element, root, buffer, buffer, count, error);
}

wf_status wf_send(wf_comm *comm, size_t element, int to, const void *buffer, int64_t count,
                  wf_error *error)
{
    return move(comm, WF_SEND, element, to, buffer, NULL, count, error);
}

wf_status wf_recv(wf_comm *comm, size_t element, int from, void *buffer, int64_t count,
                  wf_error *error)
{
    return move(comm, WF_RECV, element, from, NULL, buffer, count, error);
}

wf_status wf_barrier(wf_comm *comm, wf_error *error)
{
    return wf_collective_run(comm, &(wf_collective){.kind = WF_BARRIER}, error);
}
