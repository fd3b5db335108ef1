/*
 * parallel/report/event_file.h - scalars of a run for TensorBoard: one file of events per run.
 *
 * A file is a sequence of records: length (8 bytes), masked CRC32C of the length, an Event of
 * protobuf, masked CRC32C of the Event; all numbers little-endian. The first Event is
 * "brain.Event:2"; the second, before the first scalars, is SessionLog START of their step, at
 * which TensorBoard drops scalars of that step and later ones in earlier files: a run that is
 * resumed from a checkpoint rewrites those steps.
 */
#ifndef WF_PARALLEL_REPORT_EVENT_FILE_H
#define WF_PARALLEL_REPORT_EVENT_FILE_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_event_scalar {
    const char *tag;
    float value;
} wf_event_scalar;

typedef struct wf_event_file wf_event_file;

/**
 * wf_event_file_open - makes the directory, where it is missing, and a new file in it.
 *
 * TensorBoard reads the files of a directory in the order of their names, which begin with a
 * time in seconds: the name's time is later than that of each file in it, whatever the clock
 * says.
 *
 * Owner:   the caller, wf_event_file_close
 * Errors:  WF_EIO with path and reason, WF_ENOMEM; *file is then NULL
 */
WF_API wf_status wf_event_file_open(const char *directory, wf_event_file **file,
                                    wf_error *error);

/**
 * wf_event_file_scalars - writes one Event with all of a step's scalars, in the file on return.
 *
 * Errors:  WF_EIO with path and reason: the file is as it was; WF_ENOMEM
 */
WF_API wf_status wf_event_file_scalars(wf_event_file *file, int64_t step,
                                       const wf_event_scalar *scalars, int count,
                                       wf_error *error);

/**
 * wf_event_file_close - closes the file; NULL is allowed.
 *
 * Errors:  WF_EIO when the file's last bytes could not be kept
 */
WF_API wf_status wf_event_file_close(wf_event_file *file, wf_error *error);

/** wf_crc32c - returns CRC-32C (Castagnoli) of bytes: RFC 3720, section 12.1 and appendix
 * B.4. */
WF_API uint32_t wf_crc32c(const void *bytes, size_t size);

WF_END_DECLS

#endif
