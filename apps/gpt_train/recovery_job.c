/* apps/gpt_train/recovery_job.c - see the header. */
#include "apps/gpt_train/recovery_job.h"
#include "apps/options/options_table.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { DIFFERENCES = 900, VALUE = 120 };

void app_recovery_run(char run[APP_RECOVERY_RUN])
{
    const char *given = getenv("WEFT_RUN_ID"), *slurm = getenv("SLURM_JOB_ID");

    if (given && *given)
        snprintf(run, APP_RECOVERY_RUN, "%s", given);
    else
        snprintf(run, APP_RECOVERY_RUN, "%s%s", slurm && *slurm ? "slurm-" : "",
                 slurm ? slurm : "");
}

/* Rows whose values change no number, or are those of a mesh that may be another one at each start. */
static bool decides(const app_option_row *row)
{
    static const app_option_id of_mesh[] = {APP_OPTION_dtype,
                                            APP_OPTION_compute,
                                            APP_OPTION_param_dtype,
                                            APP_OPTION_reduce_dtype,
                                            APP_OPTION_exact,
                                            APP_OPTION_tf32,
                                            APP_OPTION_fp32_residual_connection};
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

char *app_recovery_job(const app_options *options, const wf_dataset *data, wf_error *error)
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

wf_status app_recovery_check_run(const char *path, const char *mine, const char *theirs,
                                 wf_error *error)
{
    if (strcmp(mine, theirs) == 0)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s was left by run %s, and this one is run %s: give each run a "
                        "--recovery-dir of its own, or remove what is there",
                        path, *theirs ? theirs : "without a name",
                        *mine ? mine : "without a name");
}

/* Adds an option and both of its values to a list of differences. */
static void add_difference(char *text, const char *name, const json_t *there,
                           const json_t *here)
{
    const app_option_row *row = app_option_find(name, strlen(name));
    char *a = there ? json_dumps(there, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
    char *b = here ? json_dumps(here, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
    size_t used = strlen(text);

    snprintf(text + used, DIFFERENCES - used, "%s%s %.*s there and %.*s here", used ? ", " : "",
             row ? app_option_flag(row).text : name, VALUE, a ? a : "none", VALUE,
             b ? b : "none");
    free(a);
    free(b);
}

wf_status app_recovery_check_job(const char *path, const char *mine, const char *theirs,
                                 wf_error *error)
{
    json_t *here = json_loads(mine, 0, NULL), *there = json_loads(theirs, 0, NULL), *value;
    char differ[DIFFERENCES] = "";
    const char *name;

    if (!json_is_object(there))
        wf_error_set(error, WF_EDATA, "%s says of no job that it is of: remove it", path);
    json_object_foreach(here, name, value) if (!json_equal(value, json_object_get(there, name)))
        add_difference(differ, name, json_object_get(there, name), value);
    json_object_foreach(there, name, value) if (!json_object_get(here, name))
        add_difference(differ, name, value, NULL);
    if (*differ && error->code == WF_OK)
        wf_error_set(
            error, WF_EINVAL,
            "%s was left by another job (%s), with which this one cannot go on: give each "
            "run a --recovery-dir of its own, or remove what is there",
            path, differ);
    json_decref(here);
    json_decref(there);
    return error->code;
}
