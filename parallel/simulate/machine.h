/*
 * parallel/simulate/machine.h - a machine by its figures: rates and memory of a device, speed
 * of links; and the time of a collective on it.
 *
 *     wf_sim_machine machine;
 *
 *     wf_sim_machine_read("docs/machines/h100.json", &machine, &error);
 *     wf_sim_collective(&machine, WF_SIM_ALL_GATHER, bytes, 8, 1);   // 8 ranks of a host
 *
 * docs/planning.md explains each field of a file.
 */
#ifndef WF_PARALLEL_SIMULATE_MACHINE_H
#define WF_PARALLEL_SIMULATE_MACHINE_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_sim_link - the speed of a link between two ranks, one way. */
typedef struct wf_sim_link {
    double bandwidth; /* bytes/s a rank, one way, while its neighbours use theirs */
    double latency;   /* s that a message without bytes takes */
} wf_sim_link;

enum { WF_SIM_NAME = 64, WF_SIM_DTYPES = 16 };

/** wf_sim_machine - the fields of a machine file. */
typedef struct wf_sim_machine {
    char name[WF_SIM_NAME];
    double memory; /* bytes */
    /* FLOP/s in matrix products of a wf_dtype, at their peak; 0: not known; bf16's is */
    double rate[WF_SIM_DTYPES];
    double products, attention; /* the part of the peak that they reach */
    double bandwidth;           /* bytes/s that its memory reaches */
    double launch;              /* s that a kernel takes at least */
    int devices;                /* in a host; each runs a rank */
    int cores;                  /* in a host, where ranks compute on them; 0: devices do */
    /* transfers that were begun progress while the rank computes */
    bool background;
    wf_sim_link inside, network; /* between devices of a host, and of two hosts */
} wf_sim_machine;

/**
 * wf_sim_machine_read - reads a machine file
 *
 * Errors:  WF_EIO; WF_EDATA: no JSON, an unknown field, a missing one, or a value out of its
 *          range; the text names it
 */
WF_API wf_status wf_sim_machine_read(const char *path, wf_sim_machine *machine,
                                     wf_error *error);

/** wf_sim_machine_write - writes a machine file, for a machine that was measured. Errors:
 * WF_EIO, WF_ENOMEM */
WF_API wf_status wf_sim_machine_write(const wf_sim_machine *machine, const char *path,
                                      wf_error *error);

/** wf_sim_link_of - returns the link between neighbours in a group of ranks with a stride in
 * the order of the mesh: the network, where the group does not fit in a host. */
WF_API wf_sim_link wf_sim_link_of(const wf_sim_machine *machine, int64_t ranks, int64_t stride);

typedef enum wf_sim_move {
    WF_SIM_ALL_GATHER,     /* every rank gets the parts of all */
    WF_SIM_REDUCE_SCATTER, /* every rank gets its part of the sum over all */
    WF_SIM_ALL_REDUCE,
    WF_SIM_BROADCAST,
    WF_SIM_MESSAGE /* from one to its neighbour */
} wf_sim_move;

/**
 * wf_sim_collective - returns the time of a collective: its bytes, and log2 ranks times the
 * latency of the slowest link
 *
 * Inside a host every rank receives all but its own part over its own link. Between hosts a
 * host receives all but its own part, over the network links of all members that it has.
 *
 * @param bytes  of all: on a rank after an all-gather, or before a reduce-scatter
 */
WF_API double wf_sim_collective(const wf_sim_machine *machine, wf_sim_move move, double bytes,
                                int64_t ranks, int64_t stride);

WF_END_DECLS

#endif
