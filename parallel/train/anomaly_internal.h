/*
 * parallel/train/anomaly_internal.h - where numbers stop being finite: which parameters or gradients are not,
 * and which op has the first such result of a step that runs again with anomaly detection. Not installed.
 */
#ifndef WF_PARALLEL_TRAIN_ANOMALY_INTERNAL_H
#define WF_PARALLEL_TRAIN_ANOMALY_INTERNAL_H

#include "parallel/parallel_internal.h"

/* The first of some tensors (NULL entries are skipped) that is not finite on some rank, or -1.
   Collective: over the world, where the context has no error */
int64_t wf_par_first_not_finite(wf_par *par, int64_t count, wf_tensor *const *tensor);

/* Looks at the results of ops from begin to end. */
typedef struct wf_par_anomaly {
    wf_par *par;
    int64_t micro; /* the caller's: which micro-step runs */
    int64_t calls; /* so far */
    struct wf_par_sight {
        bool seen;
        int64_t call, micro;
        char text[320];
    } first;
} wf_par_anomaly;

void wf_par_anomaly_begin(wf_par_anomaly *anomaly, wf_par *par);

/* Says what op on what rank has the first result that is not finite; false where none has.
   Collective: over the world */
bool wf_par_anomaly_end(wf_par_anomaly *anomaly, char *text, size_t size);

#endif
