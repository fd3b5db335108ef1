/* parallel/strategy.h - what a data-parallel strategy decides. Not installed. */
#ifndef WF_PARALLEL_STRATEGY_H
#define WF_PARALLEL_STRATEGY_H

#include "parallel/run.h"

/* Copy parallel/no_shard.c to add one. */
typedef struct wf_par_strategy {
    const char *name;
    /* How dp ranks are laid out over the axes replicate and shard. */
    void (*axes)(int dp, int *replicate, int *shard);
    /* Layout at rest of a parameter that tensor parallelism lays out as `layout`. */
    const wf_layout *(*parameter)(wf_mesh *mesh, const wf_layout *layout);
    /* Layout that its gradient is brought to, once per step. */
    const wf_layout *(*gradient)(wf_mesh *mesh, const wf_layout *layout);
} wf_par_strategy;

extern const wf_par_strategy wf_par_no_shard;

/* The strategy of a name; WF_EINVAL or WF_EUNSUPPORTED with the names that work. */
const wf_par_strategy *wf_par_strategy_find(const char *name, wf_error *error);

struct wf_par {
    wf_context *ctx;
    wf_mesh *mesh;
    const wf_par_strategy *strategy;
    wf_par_options options;
    char inexact[160];
    struct place *places; /* what plans have put into models */
};

/* Free what wf_par_plan made. */
void wf_par_drop_places(wf_par *par);

#endif
