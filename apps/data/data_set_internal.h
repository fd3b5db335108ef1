/* apps/data/data_set_internal.h - what a data set is made of, for its own files. */
#ifndef WF_APPS_DATA_DATA_SET_INTERNAL_H
#define WF_APPS_DATA_DATA_SET_INTERNAL_H

#include "apps/data/data_set.h"
#include "apps/data/order.h"
#include "apps/data/source.h"
#include <pthread.h>

/* What was counted last of each part, for all ranks of the process. */
typedef struct data_counts {
    pthread_mutex_t lock;
    int64_t batch[2], count[2]; /* by app_data_part; batch -1: nothing yet */
} data_counts;

/* A run of tokens of a source, in windows. */
typedef struct stretch {
    const app_source *source;
    int64_t first, tokens, windows;
    int64_t before; /* windows of the stretches before it */
} stretch;

struct app_data_set {
    app_data_options options; /* its texts are not looked at after opening */
    app_source *source;       /* first those of --data, then those of --val-data */
    int64_t sources, trained; /* how many there are, and of --data */
    stretch *part[2];         /* by app_data_part: a stretch a source */
    int64_t stretches[2];
    bool mixture;     /* sources have names and weights */
    bool anywhere[2]; /* sequences of plain text begin anywhere */
    app_mixture *order;
    uint64_t order_key, place_key;
    bool masked[2]; /* by app_data_part: some of it has loss masks */
    int32_t ends;   /* the id that ends documents; -1: none was told */
    data_counts *counts;
};

/* What a source has, as a word: "bytes" or "tokens". */
const char *app_data_unit(const app_source *source);

/* WF_EINVAL where no window fits in a part; of training, in any of its sources. */
wf_status app_data_check_part(const app_data_set *data, app_data_part part, wf_error *error);

#endif
