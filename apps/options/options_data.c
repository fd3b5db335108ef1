/* apps/options/options_data.c - the data that the flags ask for, and the steps that --epochs
   makes of it. */
#include "apps/options/options_table.h"
#include <math.h>
#include <string.h>

bool app_options_masks_documents(const app_options *o)
{
    return strcmp(o->documents, "mask") == 0;
}

wf_dataset_options app_options_data(const app_options *o)
{
    return (wf_dataset_options){.data = o->data.item,
                                .data_count = o->data.count,
                                .val_data = o->val_data.item,
                                .val_data_count = o->val_data.count,
                                .val_fraction = o->val_fraction,
                                .validates = o->eval_interval > 0,
                                .every_window = o->eval_iters == 0,
                                .seq_len = o->seq_len,
                                .global_batch = o->global_batch_size,
                                .vocabulary = {.size = o->vocab_size,
                                               /* 256 is no flag's value */
                                               .given = o->given[APP_OPTION_vocab_size] ||
                                                        o->init_from || o->vocab_size != 256},
                                .seed = (uint64_t)o->seed,
                                .documents = app_options_masks_documents(o)};
}

static wf_status derive_validation(app_options *o, wf_error *error)
{
    if (!o->val_data.count) {
        if (!o->given[APP_OPTION_val_fraction])
            o->val_fraction = 0.1;
        return WF_OK;
    }
    if (o->given[APP_OPTION_val_fraction] && o->val_fraction > 0)
        return wf_error_set(
            error, WF_EINVAL,
            "--val-data and --val-fraction %g both give validation data; use one of them",
            o->val_fraction);
    if (!o->eval_interval)
        return wf_error_set(error, WF_EINVAL,
                            "--val-data is for evaluations, and --eval-interval is 0; drop one "
                            "of the two");
    o->val_fraction = 0;
    return WF_OK;
}

/* A plan goes without data. */
static wf_status derive_steps(app_options *o, wf_error *error)
{
    wf_dataset_options options = app_options_data(o);
    wf_dataset *data;
    double steps;

    if (o->epochs == 0 || o->plan || !o->data.count)
        return WF_OK;
    options.validates = false; /* the run checks it when it opens them */
    if (wf_dataset_open(&options, &data, error) != WF_OK)
        return error->code;
    steps = ceil(o->epochs * (double)wf_dataset_windows(data, WF_DATASET_TRAIN) /
                 (double)o->global_batch_size);
    wf_dataset_close(data);
    if (steps > 1e9)
        return wf_error_set(error, WF_EINVAL,
                            "--epochs %g of this data are %.0f steps, and a run has at most "
                            "1000000000",
                            o->epochs, steps);
    if (o->given[APP_OPTION_steps] && (double)o->steps != steps)
        return wf_error_set(error, WF_EINVAL,
                            "--steps %lld contradicts --epochs %g, which are %.0f steps of "
                            "this data; use one of them",
                            (long long)o->steps, o->epochs, steps);
    o->steps = (int64_t)steps;
    return WF_OK;
}

wf_status app_options_derive_from_data(app_options *o, wf_error *error)
{
    if (derive_validation(o, error) != WF_OK)
        return error->code;
    return derive_steps(o, error);
}

wf_status app_options_check_data(app_options *o, wf_error *error)
{
    if (o->is_fed && o->data.count)
        return wf_error_set(
            error, WF_EINVAL,
            "--data names files, and this run gets its batches from its caller");
    if (o->steps && !o->plan && !o->calibrate && !o->is_fed && !o->data.count)
        return wf_error_set(
            error, WF_EINVAL,
            "--data is missing: training needs at least one file; use --data FILE...");
    return WF_OK;
}
