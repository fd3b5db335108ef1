/* nn/dataset/file_kind.h - detects the kind of a data file, by its first bytes and its name. */
#ifndef WF_NN_DATASET_FILE_KIND_H
#define WF_NN_DATASET_FILE_KIND_H

#include "core/status.h"

WF_BEGIN_DECLS

typedef enum wf_dataset_file_kind {
    WF_DATASET_FILE_TEXT,
    /* a JSON object a line: by name (.jsonl, .ndjson), or a first line that is one with a
       text */
    WF_DATASET_FILE_ROWS,
    WF_DATASET_FILE_JSON, /* .json that is no such rows */
    WF_DATASET_FILE_OTHER /* compressed, an archive, or in columns */
} wf_dataset_file_kind;

/** wf_dataset_file_look - returns the kind of an open file; *advice: of the last two kinds,
 * what it is and how it becomes text or rows */
WF_API wf_dataset_file_kind wf_dataset_file_look(int fd, const char *name, const char **advice);

WF_END_DECLS

#endif
