/* parallel/train/dataset.c - a dataset as batches; see the header. */
#include "parallel/train/dataset.h"

static wf_status read_part(const wf_dataset *d, wf_dataset_part part, int64_t step,
                           int64_t first, int64_t count, void *const *field, wf_error *error)
{
    if (wf_dataset_read(d, part, step, first, count, field[0], field[1], error) == WF_OK &&
        wf_dataset_masks_documents(d))
        wf_dataset_documents(d, part, step, first, count, field[2], field[3], error);
    return error->code;
}

static wf_status read_train(void *dataset, int64_t step, int64_t first, int64_t count,
                            void *const *field, wf_error *error)
{
    return read_part(dataset, WF_DATASET_TRAIN, step, first, count, field, error);
}

static wf_status read_validation(void *dataset, int64_t step, int64_t first, int64_t count,
                                 void *const *field, wf_error *error)
{
    return read_part(dataset, WF_DATASET_VALIDATION, step, first, count, field, error);
}

static wf_status count_train(void *dataset, int64_t step, int64_t *count, wf_error *error)
{
    return wf_dataset_counted(dataset, WF_DATASET_TRAIN, step, count, error);
}

static wf_status count_validation(void *dataset, int64_t batch, int64_t *count, wf_error *error)
{
    return wf_dataset_counted(dataset, WF_DATASET_VALIDATION, batch, count, error);
}

wf_par_data wf_par_dataset(const wf_dataset *d, wf_dataset_part part)
{
    bool train = part == WF_DATASET_TRAIN;

    return (wf_par_data){.read = train ? read_train : read_validation,
                         .self = (void *)(uintptr_t)d, /* only read */
                         .counted = !wf_dataset_counts(d, part) ? NULL
                                    : train                     ? count_train
                                                                : count_validation};
}
