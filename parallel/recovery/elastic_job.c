/* parallel/recovery/elastic_job.c - see the header. */
#include "parallel/recovery/elastic_job_internal.h"
#include "parallel/recovery/elastic_files.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIFFERENCES = 900, VALUE = 120, NAME = 80 };

void wf_elastic_run_name(wf_elastic *elastic)
{
    const char *given = getenv("WEFT_RUN_ID"), *slurm = getenv("SLURM_JOB_ID");

    if (given && *given)
        snprintf(elastic->run, WF_ELASTIC_RUN, "%s", given);
    else
        snprintf(elastic->run, WF_ELASTIC_RUN, "%s%s", slurm && *slurm ? "slurm-" : "",
                 slurm ? slurm : "");
}

wf_status wf_elastic_check_run(const char *path, const char *mine, const char *theirs,
                               wf_error *error)
{
    if (strcmp(mine, theirs) == 0)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s was left by run %s, and this one is run %s: give each run a "
                        ".recovery_dir of its own, or remove what is there",
                        path, *theirs ? theirs : "without a name",
                        *mine ? mine : "without a name");
}

/* Returns "--global-batch-size" for global_batch_size; a name of several words stays as it
   is. */
static const char *flag_of(const char *name, char text[NAME])
{
    if (strchr(name, ' '))
        return name;
    snprintf(text, NAME, "--%s", name);
    for (char *c = text; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return text;
}

/* Adds a setting and both of its values to a list of differences. */
static void add_difference(char *text, const char *name, const json_t *there,
                           const json_t *here)
{
    char *a = there ? json_dumps(there, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
    char *b = here ? json_dumps(here, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10)) : NULL;
    char flag[NAME];
    size_t used = strlen(text);

    snprintf(text + used, DIFFERENCES - used, "%s%s %.*s there and %.*s here", used ? ", " : "",
             flag_of(name, flag), VALUE, a ? a : "none", VALUE, b ? b : "none");
    free(a);
    free(b);
}

wf_status wf_elastic_check_job(const char *path, const char *mine, const char *theirs,
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
            "%s was left by another job (%s), with which this one cannot continue: give each "
            "run a .recovery_dir of its own, or remove what is there",
            path, differ);
    json_decref(here);
    json_decref(there);
    return error->code;
}
