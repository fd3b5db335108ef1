/*
 * apps/gpt_train/recordings.h - where a run's flight recorders go, and how long they stay.
 * Without --recorder-dir that is a folder of the temporary directory,
 * weft-recorder-<user>-<job>: the newest few are kept.
 */
#ifndef WF_APPS_RECORDINGS_H
#define WF_APPS_RECORDINGS_H

#include "apps/options/options.h"
#include <stddef.h>

enum { APP_RECORDINGS_KEPT = 8 };

/* The folder of this run, the same for all of its processes on a host. */
void app_recordings_directory(const app_options *o, char *text, size_t size);

/* Whether a failure could be told there. Errors: WF_EIO, with what to change */
wf_status app_recordings_check(const app_options *o, wf_error *error);

/* Runs that failed before: all but the newest are forgotten. Another user's are left alone, and
   what is no recording. */
void app_recordings_forget(const app_options *o);

#endif
