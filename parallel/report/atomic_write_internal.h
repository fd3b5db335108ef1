/* parallel/report/atomic_write_internal.h - rows and records of logs, which are in a file whole
   or not at all. */
#ifndef WF_PARALLEL_REPORT_ATOMIC_WRITE_INTERNAL_H
#define WF_PARALLEL_REPORT_ATOMIC_WRITE_INTERNAL_H

#include "core/status.h"
#include <stddef.h>

/**
 * wf_write_whole - appends bytes to the open file; where they do not fit, none of them stays
 *
 * @param path  for the message
 * Errors:      WF_EIO with path and reason
 */
wf_status wf_write_whole(int file, const char *path, const void *bytes, size_t size,
                         wf_error *error);

#endif
