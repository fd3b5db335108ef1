/* apps/gpt_train/identity.c - see the header. */
#include "apps/gpt_train/identity.h"
#include "apps/options/options_table.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>

/* Returns false for rows that change no number, or are of a mesh that may be another one at
   each start. */
static bool decides(const app_option_row *row)
{
    static const app_option_id of_mesh[] = {
        APP_OPTION_dtype,       APP_OPTION_compute,
        APP_OPTION_param_dtype, APP_OPTION_reduce_dtype,
        APP_OPTION_exact,       APP_OPTION_exact_tp,
        APP_OPTION_tf32,        APP_OPTION_fp32_residual_connection};
    static const app_option_id others[] = {APP_OPTION_micro_batch_size,
                                           APP_OPTION_eval_interval, APP_OPTION_eval_iters,
                                           APP_OPTION_eval_requests};
    int id = (int)(row - app_option_rows);

    for (size_t i = 0; i < sizeof of_mesh / sizeof *of_mesh; i++)
        if (id == (int)of_mesh[i])
            return true;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (id == (int)others[i])
            return false;
    return id < APP_OPTION_GROUP_mesh ||
           (id > APP_OPTION_GROUP_training && id < APP_OPTION_GROUP_checkpoints);
}

char *app_identity(const app_options *options, const wf_dataset *data, wf_error *error)
{
    json_t *all = app_options_json(options), *job = json_object();
    uint64_t fingerprint = 0;
    char text[17], *printed = NULL;

    for (int i = 0; all && i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];

        if (app_option_in_config(row) && decides(row))
            json_object_set(job, row->name, json_object_get(all, row->name));
    }
    if (!data || wf_dataset_fingerprint(data, &fingerprint, error) == WF_OK) {
        snprintf(text, sizeof text, "%016" PRIx64, fingerprint);
        json_object_set_new(job, "content of the data", json_string(text));
        printed = json_dumps(job, JSON_COMPACT | JSON_REAL_PRECISION(17));
        if (!all || !printed)
            wf_error_set(error, WF_ENOMEM, "no memory for the options as JSON");
    }
    json_decref(all);
    json_decref(job);
    return printed;
}
