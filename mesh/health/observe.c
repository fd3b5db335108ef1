/* mesh/health/observe.c - what mesh/health wants to see of the collectives of a rank. */
#include "mesh/health/observe_internal.h"
#include "mesh/comm/observer_internal.h"
#include "mesh/health/recorder_internal.h"

static void failed(wf_comm *comm, const wf_error *cause)
{
    const wf_recorded *notes = comm->observed;

    wf_detector_wake(notes->detector);
    wf_recorder_fail(comm, cause);
}

static wf_status split(const wf_comm *parent, wf_comm *comm, wf_error *error)
{
    wf_status status = wf_recorder_join(parent, comm, error);

    if (status == WF_OK)
        comm->observer = parent->observer;
    return status;
}

static const wf_comm_observer observer = {.split = split,
                                          .closes = wf_recorder_leave,
                                          .coordinates = wf_recorder_coordinates,
                                          .position = wf_recorder_position,
                                          .action = wf_recorder_action,
                                          .begin = wf_recorder_begin,
                                          .end = wf_recorder_end,
                                          .wait = wf_recorder_wait,
                                          .wait_over = wf_recorder_wait_over,
                                          .at_files = wf_recorder_at_files,
                                          .locate = wf_recorder_locate,
                                          .failed = failed};

wf_status wf_health_observe(wf_comm *world, wf_error *error)
{
    wf_status status = world->transport->moves ? wf_recorder_open(world, error) : WF_OK;

    if (wf_recorder_of(world))
        world->observer = &observer;
    return status;
}

void wf_health_wake(wf_comm *world, wf_detector *detector)
{
    wf_recorded *notes = world->observed;

    if (notes)
        notes->detector = detector;
}
