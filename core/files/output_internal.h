/*
 * core/files/output_internal.h - outputs in a folder that is open, and partial files that
 * several ranks write to. Not installed.
 */
#ifndef WF_CORE_FILES_OUTPUT_INTERNAL_H
#define WF_CORE_FILES_OUTPUT_INTERNAL_H

#include "core/files/folder_internal.h"
#include "core/files/output.h"

/* An output: what it writes to, and where that is to be. */
struct wf_output {
    wf_folder folder; /* its own descriptor */
    bool direct;      /* a pipe or a device: it is written to as it is */
    char *path;       /* as it was given */
    char name[WF_FILES_NAME], partial[WF_FILES_NAME]; /* partial "": there is none any more */
    wf_file file;
    FILE *stream;
};

/* Returns a random number that is not 0, by which names are made that cannot be guessed. */
uint64_t wf_output_mark(void);

/* Begins a file in a folder; `mark` is part of its partial file's name. */
wf_output *wf_output_begin(const wf_folder *folder, const char *name, uint64_t mark,
                           wf_error *error);

/* Returns its file, to be written by wf_file_write. Owner: output. */
wf_file *wf_output_file(wf_output *output);

/* Sets the name that the partial file of NAME has with this mark: other ranks open it by
   that. */
char *wf_output_partial(const char *name, uint64_t mark, char partial[WF_FILES_NAME]);

/* Writes a whole file of these bytes in a folder. */
wf_status wf_output_put(const wf_folder *folder, const char *name, const void *bytes, size_t n,
                        wf_error *error);

/* Removes partial files of NAME, or of any name where it is NULL, that killed programs of this
   user left. */
void wf_output_clean(const wf_folder *folder, const char *name);

#endif
