/*
 * parallel/train/report.h - memory and traffic of a step on one rank: the same function reports
 * a run and a plan, and both agree to the byte.
 *
 *     wf_par_report_begin(par, &report);
 *     wf_par_train_step(trainer, 2, &data, &result);
 *     wf_par_report_end(par, model, &report);
 *
 * The first step may make objects that later ones reuse; steps from the second on are alike.
 */
#ifndef WF_PARALLEL_TRAIN_REPORT_H
#define WF_PARALLEL_TRAIN_REPORT_H

#include "nn/module.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

/* Traffic over an axis of the mesh; over the world, which comes last, with the name "world". */
typedef struct wf_par_traffic {
    char axis[WF_AXIS_NAME];
    int ranks;
    wf_comm_counters counters;
    /* the moves among them of parameters, gradients and states; others move tokens, and sums
       over these. Zeros of the world, where all are counted together */
    wf_comm_counters parameters;
} wf_par_traffic;

/* Units that are alike, as the blocks of a transformer are. */
typedef struct wf_par_unit_group {
    char type[32];         /* the type of their modules; "root" for a model's root */
    int64_t count;         /* number of such units */
    int64_t parameters;    /* elements of one, before it is split in any way */
    size_t stored, at_use; /* bytes of one on this rank: stored, and while it computes */
    bool gathered;         /* at_use is memory of its own beside the stored shards */
} wf_par_unit_group;

enum { WF_PAR_UNIT_GROUPS = 16 };

/* Parameters of one kind. */
typedef struct wf_par_part {
    int64_t parameters; /* elements of the model, ties once */
    int64_t share;      /* those that this rank would hold if data parallelism split none */
    size_t stored;      /* bytes stored on this rank */
} wf_par_part;

typedef struct wf_par_report {
    int rank;
    int64_t parameters; /* elements of the model, ties once */
    int64_t share;      /* those that this rank would hold if data parallelism split none */
    wf_par_part trained, frozen, adapters; /* adapters are among the trained */
    wf_memory_report memory;               /* since the context was opened */
    /* host memory of what is offloaded from a device (core/offload.h); zeros: nothing is */
    wf_memory_report host_memory;
    double flops;       /* the work of this rank (wf_context_flops) */
    double model_flops; /* the model's part of it (wf_context_model_flops) */
    int64_t units;
    /* groups of units, in the order of the first of each; beyond the last, left out */
    int n_groups;
    wf_par_unit_group group[WF_PAR_UNIT_GROUPS];
    int n_traffic; /* the axes, outermost first, and the world */
    wf_par_traffic traffic[WF_MAX_AXES + 1];
} wf_par_report;

/** wf_par_report_begin - sets the counters of collectives and work to zero. */
WF_API void wf_par_report_begin(wf_par *par, wf_par_report *report);

/**
 * wf_par_report_end - fills in the memory and traffic since wf_par_report_begin
 *
 * @param model  planned
 * Collective:  no
 */
WF_API void wf_par_report_end(wf_par *par, wf_nn_module *model, wf_par_report *report);

WF_END_DECLS

#endif
