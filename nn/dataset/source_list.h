/*
 * nn/dataset/source_list.h - parses the arguments of --data and --val-data. Every argument is
 * either
 *
 *     FILE                 plain: all files are one source, in the order given
 *     NAME=WEIGHT:FILES    a source of a mixture; FILES are names with commas between, each of
 *                          which may be a pattern (*, ?, [..]) of files, which are sorted by
 *                          name
 *
 * NAME is of letters, digits, '_' and '-', WEIGHT a positive number, of which the ratio counts.
 * A file whose own name looks like a source is given with its folder (./a=1:b).
 */
#ifndef WF_NN_DATASET_SOURCE_LIST_H
#define WF_NN_DATASET_SOURCE_LIST_H

#include "core/status.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_dataset_source_files {
    char *name;
    double weight;
    char **file;
    int64_t count;
} wf_dataset_source_files;

typedef struct wf_dataset_source_list {
    wf_dataset_source_files *source;
    int64_t count;
    bool mixture; /* else one source of plain files */
} wf_dataset_source_list;

/**
 * wf_dataset_source_list_parse - parses the sources of a flag's arguments, with all their files
 *
 * @param flag  for errors
 * Owner:   the caller, wf_dataset_source_list_free; after an error it is empty
 * Errors:  WF_EINVAL (grammar; a pattern without files; plain files beside sources), WF_ENOMEM
 */
WF_API wf_status wf_dataset_source_list_parse(char *const *arguments, int64_t count,
                                              const char *flag, wf_dataset_source_list *list,
                                              wf_error *error);

/** wf_dataset_source_list_free - frees a list; a zeroed one is allowed. */
WF_API void wf_dataset_source_list_free(wf_dataset_source_list *list);

WF_END_DECLS

#endif
