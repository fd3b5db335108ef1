/* nn/dataset/dataset_job.c - a dataset as entries of a job, which processes compare. */
#include "nn/dataset/dataset_internal.h"
#include "core/files/content.h"
#include <inttypes.h>

static void sample(const wf_token_file *file, int stretches, wf_content *sum)
{
    wf_error ignored = {WF_OK, ""}; /* an unreadable file stops the first step that reads it */

    wf_content_add(file->descriptor, stretches, sum, &ignored);
    if (file->documents.descriptor >= 0) /* bounds of documents */
        wf_content_add(file->documents.descriptor, stretches, sum, &ignored);
}

static void add_source(const wf_dataset_source *s, int64_t files, const char *field,
                       wf_job *job)
{
    int stretches = wf_content_stretches(files);
    wf_content sum = {.files = 0};
    char name[160];

    for (int64_t i = 0; i < s->parts; i++) {
        sample(&s->part[i].file, stretches, &sum);
        if (s->part[i].masked)
            sample(&s->part[i].mask, stretches, &sum);
    }
    snprintf(name, sizeof name, "%s%s%.100s", field, s->name ? ", source " : "",
             s->name ? s->name : "");
    wf_job_add(job, name,
               "weight %.17g, %" PRId64 " %s in %" PRId64 " file%s of %" PRId64
               " bytes, hash of samples %016" PRIx64,
               s->weight, s->tokens, wf_dataset_unit(s), sum.files, sum.files == 1 ? "" : "s",
               sum.bytes, sum.hash);
}

void wf_dataset_job(const wf_dataset *d, wf_job *job)
{
    int64_t files = 0;

    if (!d)
        return;
    for (int64_t i = 0; i < d->sources; i++)
        files += d->source[i].parts;
    wf_job_add(job, "sources of .data", "%" PRId64, d->trained);
    wf_job_add(job, "sources of .val_data", "%" PRId64, d->sources - d->trained);
    for (int64_t i = 0; i < d->sources; i++)
        add_source(&d->source[i], files, i < d->trained ? ".data" : ".val_data", job);
}
