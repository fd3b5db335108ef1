/*
 * core/job.h - a job's fingerprint: the settings that all processes or ranks of a run must have
 * alike, as named entries.
 *
 *     wf_job *job = wf_job_new();
 *     wf_job_add(job, "lr", "%g", lr);
 *     wf_job_add(job, "data", "%lld tokens, digest %016llx", tokens, digest);
 *
 * Hashes of whole jobs are compared first; only where they differ are names and values sent,
 * and an error names each entry that differs, with both values. Processes compare theirs when a
 * world opens (wf_launch_options.job), ranks by wf_par_compare_job.
 */
#ifndef WF_CORE_JOB_H
#define WF_CORE_JOB_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_job wf_job;

/** wf_job_new - makes a job without entries; NULL where memory ran out. Owner: caller,
 * wf_job_free (NULL is allowed). */
WF_API wf_job *wf_job_new(void);
WF_API void wf_job_free(wf_job *job);

/**
 * wf_job_add - adds an entry
 *
 * Entries are compared in the order in which they were added. A job to which an entry could not
 * be added fails the comparison.
 *
 * @param job   NULL: nothing is added
 * @param name  as an error shows it, "lr" or ".data"; each once
 * Errors:      WF_ENOMEM
 */
WF_API wf_status wf_job_add(wf_job *job, const char *name, const char *format, ...)
    WF_PRINTF(3, 4);

/** wf_job_append - adds all entries of another job, and its error; NULL adds nothing. Errors:
 * WF_ENOMEM */
WF_API wf_status wf_job_append(wf_job *job, const wf_job *from);

/** wf_job_fail - marks the job as failed: when jobs are compared, all processes end with this
 * error, which names this process. The first error stays. */
WF_API void wf_job_fail(wf_job *job, const wf_error *error);

/** wf_job_digest - returns a hash of all names and values; 0 for NULL. */
WF_API uint64_t wf_job_digest(const wf_job *job);

/* ---- for the comparison ---- */

/** wf_job_error - returns the error of wf_job_fail, or WF_ENOMEM where an entry was lost; else
 * WF_OK. */
WF_API const wf_error *wf_job_error(const wf_job *job);

/** wf_job_text - returns names and values one after the other, each ended by 0. Owner: the
 * job. */
WF_API const char *wf_job_text(const wf_job *job, size_t *bytes);

/** wf_job_differences - counts the entries that differ between two such texts, of parties a and
 * b ("process 0 (node0)"), or, where none does, those that only one has: the text begins with
 * the first of them, "lr is 0.1 in .. and 0.2 in ..". */
WF_API int wf_job_differences(const char *a, size_t a_bytes, const char *a_name, const char *b,
                              size_t b_bytes, const char *b_name, char *text, size_t room);

WF_END_DECLS

#endif
