/* apps/data/data_set_job.c - a data set as entries of a job, which processes compare. */
#include "apps/data/data_set_internal.h"
#include "apps/job.h"
#include <inttypes.h>

static void sample(const app_token_file *file, int stretches, app_sample_sum *sum)
{
    wf_error ignored = {WF_OK, ""}; /* what cannot be read stops the first step that reads it */

    app_sample_file(file->descriptor, stretches, sum, &ignored);
    if (file->documents.descriptor >= 0) /* where documents begin */
        app_sample_file(file->documents.descriptor, stretches, sum, &ignored);
}

static void add_source(const app_source *s, int64_t files, const char *flag, wf_job *job)
{
    int stretches = app_sample_stretches(files);
    app_sample_sum sum = {.files = 0};
    char name[160];

    for (int64_t i = 0; i < s->parts; i++) {
        sample(&s->part[i].file, stretches, &sum);
        if (s->part[i].masked)
            sample(&s->part[i].mask, stretches, &sum);
    }
    snprintf(name, sizeof name, "%s%s%.100s", flag, s->name ? ", source " : "",
             s->name ? s->name : "");
    wf_job_add(job, name,
               "weight %.17g, %" PRId64 " %s in %" PRId64 " file%s of %" PRId64
               " bytes, hash of samples %016" PRIx64,
               s->weight, s->tokens, app_data_unit(s), sum.files, sum.files == 1 ? "" : "s",
               sum.bytes, sum.hash);
}

void app_data_set_job(const app_data_set *d, wf_job *job)
{
    int64_t files = 0;

    if (!d)
        return;
    for (int64_t i = 0; i < d->sources; i++)
        files += d->source[i].parts;
    wf_job_add(job, "sources of --data", "%" PRId64, d->trained);
    wf_job_add(job, "sources of --val-data", "%" PRId64, d->sources - d->trained);
    for (int64_t i = 0; i < d->sources; i++)
        add_source(&d->source[i], files, i < d->trained ? "--data" : "--val-data", job);
}
