/* parallel/check/source_internal.h - the model of a check, for the files that compute with it.
   Not installed. */
#ifndef WF_PARALLEL_CHECK_SOURCE_INTERNAL_H
#define WF_PARALLEL_CHECK_SOURCE_INTERNAL_H

#include "parallel/check/check_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"
#include "parallel/run.h"

struct wf_check_source {
    const wf_check_options *options;
    wf_error *error;
    wf_par *par;
    wf_nn_gpt_config config; /* the folder's: tied where it is */
    const wf_hf_family *family;
    wf_nn_gpt *model; /* untied */
    int64_t count;
    wf_nn_parameter **parameter;
    wf_hf_location *location; /* [count], once a reference is open */
    int64_t *tensor; /* [count], the number of the reference's tensor, or first one, of it */
};

/* The roles of a parameter of this path. */
unsigned wf_check_roles(const char *path);

/* Returns how many tensors a parameter is in files: one for each expert, or one. */
int64_t wf_check_pieces(const wf_hf_location *location);

/* Adds `weight` times a parameter's elements to where they lie in one of its tensors. */
void wf_check_scatter(const wf_hf_location *location, int64_t piece, const wf_tensor *t,
                      const float *from, double weight, float *to);

/* Their routers' choices (wf_check_batch.choice) in Weft's forward passes, from open to close;
   `choices` counts. Errors: in the context; NULL, for which the others do nothing. */
typedef struct wf_check_replay wf_check_replay;
wf_check_replay *wf_check_replay_open(const wf_check_source *source,
                                      const wf_check_batch *batch, wf_check_choices *choices);
void wf_check_replay_sequence(wf_check_replay *replay, int64_t sequence);
void wf_check_replay_close(wf_check_replay *replay);

void wf_check_source_close(wf_check_source *source);

#endif
