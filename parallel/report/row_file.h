/*
 * parallel/report/row_file.h - a file of rows that grows: JSON lines of a run, each in the file
 * as a whole or not at all.
 *
 * Opening it changes nothing: its content stays, and rows are appended. Where its last row was
 * cut, by a run that was killed or a disk that was full, the next one begins a line of its own.
 * A file that opening made and that got no row is removed.
 */
#ifndef WF_PARALLEL_REPORT_ROW_FILE_H
#define WF_PARALLEL_REPORT_ROW_FILE_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

WF_BEGIN_DECLS

struct json_t; /* jansson's */

typedef struct wf_row_file {
    char *path;
    int file; /* -1: none */
    bool made, empty, cut, written;
} wf_row_file;

/**
 * wf_row_file_open - opens a file to append to, and makes the folders above it
 *
 * @param flag  names it in messages
 * Owner:       the caller, wf_row_file_close
 * Errors:      WF_EIO with path and reason, WF_ENOMEM; nothing is open then
 */
WF_API wf_status wf_row_file_open(wf_row_file *file, const char *flag, const char *path,
                                  wf_error *error);

/**
 * wf_row_file_open_own - opens a file whose name the program has made, in a folder that a flag
 * names
 *
 * A link is not followed, and a file with other names, a special file or another user's is
 * refused: others may have put them where the name could be guessed.
 *
 * @param flag  names it in messages
 * Owner:       the caller, wf_row_file_close
 * Errors:      WF_EINVAL, WF_EIO with path and reason, WF_ENOMEM; nothing is open then
 */
WF_API wf_status wf_row_file_open_own(wf_row_file *file, const char *flag, const char *folder,
                                      const char *name, wf_error *error);

/** wf_row_file_write - appends rows, which are in the file on return. Errors: WF_EIO: the file
 * is as it was; WF_ENOMEM */
WF_API wf_status wf_row_file_write(wf_row_file *file, const char *rows, size_t bytes,
                                   wf_error *error);

/**
 * wf_row_after_cut - reads the row after one that cannot be read, as a run leaves it that was
 * killed and resumed
 *
 * @param start  position of that row
 * Returns:      the row, NULL where the next line is none either; owner: the caller,
 *               json_decref
 */
WF_API struct json_t *wf_row_after_cut(FILE *file, long start);

/** wf_row_file_close - closes it. Errors: WF_EIO when the last bytes could not be kept */
WF_API wf_status wf_row_file_close(wf_row_file *file, wf_error *error);

WF_END_DECLS

#endif
