/* apps/data/partial_file.h - a file that has another name until it is whole. */
#ifndef WF_APPS_DATA_PARTIAL_FILE_H
#define WF_APPS_DATA_PARTIAL_FILE_H

#include "core/status.h"
#include <stdio.h>

typedef struct app_partial_file {
    char *name, *partial; /* the name it gets, and the one it has until then */
    FILE *file;
} app_partial_file;

/* Make PREFIX.ENDING's partial file, to read and write. WF_ENOMEM, WF_EIO; app_partial_file_discard in any case. */
wf_status app_partial_file_open(app_partial_file *o, const char *prefix, const char *ending,
                                wf_error *error);

/* "cannot write NAME: why", by errno. */
wf_status app_partial_file_failed(const app_partial_file *o, wf_error *error);

/* What was written is on disk, and the file is closed. WF_EIO. */
wf_status app_partial_file_close(app_partial_file *o, wf_error *error);

/* Let go of it; the file is removed where it has not got its name. */
void app_partial_file_discard(app_partial_file *o);

/* Names in the folder of `name` are on disk; where folders cannot be synchronised, when the system comes to it. */
void app_sync_folder(const char *name);

#endif
