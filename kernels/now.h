/*
 * kernels/now.h - the numbers of a training step that kernels of a captured graph find in
 * memory of their device (core/graph.h), since the attributes of a call stay those of the step
 * that was captured. An application's kernel that depends on the step reads them there too.
 */
#ifndef WF_KERNELS_NOW_H
#define WF_KERNELS_NOW_H

#include "core/export.h"
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_now - the argument of wf_graph_run. */
typedef struct wf_now {
    int64_t step;                       /* dropout's, as in wf_context_position */
    float lr, bias1, bias2, grad_scale; /* for updates with step_lr or step_scale (wf_update) */
    int64_t held; /* 1: no captured update changes anything (core/judgment.h) */

    /* a rank's part of the judgment of its step (wf_judged_part) */
    uint64_t alike;
    int64_t inexact;
} wf_now;

WF_END_DECLS

#endif
