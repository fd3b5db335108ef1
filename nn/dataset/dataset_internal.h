/* nn/dataset/dataset_internal.h - what a dataset is made of, for its own files. */
#ifndef WF_NN_DATASET_DATASET_INTERNAL_H
#define WF_NN_DATASET_DATASET_INTERNAL_H

#include "nn/dataset/dataset.h"
#include "nn/dataset/order_internal.h"
#include "nn/dataset/source.h"
#include <pthread.h>

/* The last counts of each part, for all ranks of the process. */
typedef struct data_counts {
    pthread_mutex_t lock;
    int64_t batch[2], count[2]; /* by wf_dataset_part; batch -1: nothing yet */
} data_counts;

/* A run of tokens of a source, in windows. */
typedef struct stretch {
    const wf_dataset_source *source;
    int64_t first, tokens, windows;
    int64_t before; /* windows of the stretches before it */
} stretch;

struct wf_dataset {
    wf_dataset_options options; /* its texts are not looked at after opening */
    wf_dataset_source *source;  /* first those of --data, then those of --val-data */
    int64_t sources, trained;   /* their number, and that of --data */
    stretch *part[2];           /* by wf_dataset_part: a stretch a source */
    int64_t stretches[2];
    bool mixture;     /* sources have names and weights */
    bool anywhere[2]; /* sequences of plain text begin anywhere */
    wf_dataset_mixture *order;
    uint64_t order_key, start_key;
    bool masked[2]; /* by wf_dataset_part: some of it has loss masks */
    int32_t ends;   /* the id that ends documents; -1: none was given */
    data_counts *counts;
};

/* Returns the unit of a source, as a word: "bytes" or "tokens". */
const char *wf_dataset_unit(const wf_dataset_source *source);

/* Checks that a window fits in a part; of training, in each of its sources. WF_EINVAL: none
   does. */
wf_status wf_dataset_check_part(const wf_dataset *data, wf_dataset_part part, wf_error *error);

#endif
