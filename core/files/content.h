/* core/files/content.h - a hash of samples of files, by which the processes of a run compare
   their files. */
#ifndef WF_CORE_FILES_CONTENT_H
#define WF_CORE_FILES_CONTENT_H

#include "core/job.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_content - the size of files, and a hash of their content: all of it for a small one, else
 * its beginning, its end and stretches evenly between. */
typedef struct wf_content {
    int64_t files, bytes;
    uint64_t hash;
} wf_content;

/**
 * wf_content_add - adds an open file to a sum
 *
 * @param stretches  of the file that are read at most: wf_content_stretches
 * Errors:  WF_EIO with errno's reason
 */
WF_API wf_status wf_content_add(int descriptor, int stretches, wf_content *sum,
                                wf_error *error);

/** wf_content_stretches - returns how many stretches to read of each of `files` files, so that
 * many take no longer than a few. */
WF_API int wf_content_stretches(int64_t files);

/**
 * wf_job_add_path - adds an entry with the content of a file, or of the files of a folder that
 * make a model: weights, their index, configs, tokenizers
 *
 * @param path  NULL adds nothing; a path that cannot be read neither: who reads it reports that
 */
WF_API void wf_job_add_path(wf_job *job, const char *name, const char *path);

WF_END_DECLS

#endif
