/*
 * apps/gpt_train/row_file.h - a file of rows that grows: JSON lines of a run, each in the file as a whole or not at all.
 *
 * Opening it changes nothing: what it has stays, and rows follow that. Where its last row was cut, by a run that was
 * killed or a disk that was full, the next one begins a line of its own. A file that opening made and nothing was written to
 * is removed again.
 */
#ifndef WF_APPS_ROW_FILE_H
#define WF_APPS_ROW_FILE_H

#include "core/status.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct app_row_file {
    char *path;
    int file; /* -1: none */
    bool made, empty, cut, written;
} app_row_file;

/**
 * app_row_file_open - opens a file to append to, and makes the folders above it
 *
 * @param flag  names it in messages
 * Owner:       the caller, app_row_file_close
 * Errors:      WF_EIO with path and reason, WF_ENOMEM; nothing is open then
 */
wf_status app_row_file_open(app_row_file *file, const char *flag, const char *path,
                            wf_error *error);

/** app_row_file_write - appends rows, which are in the file on return. Errors: WF_EIO: the file is as it was; WF_ENOMEM */
wf_status app_row_file_write(app_row_file *file, const char *rows, size_t bytes,
                             wf_error *error);

/**
 * app_row_after_cut - reads the row behind one that cannot be read, as a run leaves it that was cut short and went on
 *
 * @param start  where that row begins
 * Returns:      the row, NULL where the next line is none either; owner: the caller, json_decref
 */
json_t *app_row_after_cut(FILE *file, long start);

/** app_row_file_close - closes it. Errors: WF_EIO when the last bytes could not be kept */
wf_status app_row_file_close(app_row_file *file, wf_error *error);

#endif
