/* apps/data/file_kind.h - what a file of data is, by its first bytes and its name. */
#ifndef WF_APPS_DATA_FILE_KIND_H
#define WF_APPS_DATA_FILE_KIND_H

#include "core/status.h"

typedef enum app_file_kind {
    APP_FILE_TEXT,
    APP_FILE_ROWS, /* a JSON object a line: by name (.jsonl, .ndjson), or a first line that is one with a text */
    APP_FILE_JSON, /* .json that is no such rows */
    APP_FILE_OTHER /* compressed, an archive, or in columns */
} app_file_kind;

/* Looks at an open file. *advice: of the last two kinds, what it is and how it becomes text or rows. */
app_file_kind app_file_look(int fd, const char *name, const char **advice);

#endif
