/*
 * parallel/train/batch.h - the input of a training step: named tensors of any type and shape, a
 * row per sequence. (A sequence is one item of the batch: of tokens, an image, a row of a
 * table.)
 */
#ifndef WF_PARALLEL_TRAIN_BATCH_H
#define WF_PARALLEL_TRAIN_BATCH_H

#include "core/context.h"

WF_BEGIN_DECLS

enum { WF_PAR_FIELDS = 8 };

/**
 * wf_par_field - a tensor that every batch has: [batch, dim...]
 *
 *     {"tokens", WF_I32, {wf_dim_chunked(1024)}}, {"image", WF_F32, {wf_dim_width(784)}},
 *     {"label", WF_I32}
 */
typedef struct wf_par_field {
    const char *name; /* kept, not copied; NULL ends a list of less than WF_PAR_FIELDS */
    wf_dtype dtype;
    /* those after the batch, up to the first of size 0; none: one number per sequence */
    wf_dim dim[WF_MAX_DIMS - 1];
} wf_par_field;

/** wf_par_batch - the sequences of one micro-step. */
typedef struct wf_par_batch {
    wf_context *ctx;
    int64_t global_batch; /* sequences of the whole step: of all its micro-steps and ranks */
    int64_t counted;      /* result of wf_par_data.counted; less than 0: all elements count */
    int fields;
    const wf_par_field *field; /* [fields] */
    /* [micro-batch x dp, dim...], split over the data-parallel ranks, and over those of cp
       where a field is cut by tokens (wf_par_train_options.cut); NULL where the caller makes
       its own */
    wf_tensor *tensor[WF_PAR_FIELDS];
} wf_par_batch;

/** wf_par_data - the source of the sequences of a batch: a dataset, with its sampler and
 * dataloader, is a function of (step, sequence). */
typedef struct wf_par_data {
    /*
     * Fills field[i], which has room for `count` rows of field i one after the other, with the
     * sequences first, first + 1, .. of a step: a function of (step, sequence) alone, called
     * with each rank's own sequences only.
     */
    wf_status (*read)(void *self, int64_t step, int64_t first, int64_t count,
                      void *const *field, wf_error *error);
    void *self;
    /*
     * Counts the elements of the losses of a whole global batch that count in its mean: all but
     * those with target -1, on all ranks and in all micro-steps. A function of the step alone,
     * so that every rank finds the same number without communication. NULL: all of them.
     */
    wf_status (*counted)(void *self, int64_t step, int64_t *count, wf_error *error);
} wf_par_data;

/**
 * wf_par_batch_tensor - returns the tensor of a name
 *
 * Owner:   the micro-step; gone with it
 * Errors:  WF_EINVAL in the context, with the names that there are; NULL then, and for a batch
 *          that is NULL
 */
WF_API wf_tensor *wf_par_batch_tensor(const wf_par_batch *batch, const char *name);

/**
 * wf_par_batch_weight - returns the weight of one element of a loss in the mean over the global
 * batch: 1 / (sequences of the global batch x elements that a sequence has), or 1 / (number of
 * those that count) where the data have a count; 0 where none does
 *
 * @param like  a tensor with the dims of the loss: [batch, ..]. A loss that makes its gradients
 *              ahead of time (wf_nn_linear_cross_entropy) needs the weight before there is a
 *              loss
 * Returns:     0 for a batch or a tensor that is NULL
 */
WF_API float wf_par_batch_weight(const wf_par_batch *batch, const wf_tensor *like);

WF_END_DECLS

#endif
