/*
 * parallel/simulate/paced.h - throttles a run to the speed of a machine file: ops by their
 * FLOPs and bytes, collectives and messages as the simulator has them. So a run of real ranks,
 * whatever they overlap and wait for, can be compared with its simulation.
 *
 *     static wf_sim_paced paced;                  // as long as the run
 *
 *     wf_sim_pace(&machine, 1, &paced);
 *     options.pace = &paced.pace;                 // wf_par_options
 */
#ifndef WF_PARALLEL_SIMULATE_PACED_H
#define WF_PARALLEL_SIMULATE_PACED_H

#include "core/pace.h"
#include "parallel/simulate/machine.h"

WF_BEGIN_DECLS

/** wf_sim_paced - a machine, and the factor by which it is slowed down. */
typedef struct wf_sim_paced {
    wf_sim_machine machine;
    double scale;
    wf_pace_machine pace;
} wf_sim_paced;

/** wf_sim_work - the work of an op: FLOPs of products or of attention, else bytes through
 * memory. */
typedef struct wf_sim_work {
    double flops, bytes;
    bool attention;
} wf_sim_work;

/** wf_sim_work_of - returns the work of a call. */
WF_API wf_sim_work wf_sim_work_of(const struct wf_call *call);

/**
 * wf_sim_pace - fills in a pace; it points to itself, and must not be moved
 *
 * @param scale  factor on all times: so that they exceed this machine's own noise
 */
WF_API void wf_sim_pace(const wf_sim_machine *machine, double scale, wf_sim_paced *paced);

WF_END_DECLS

#endif
