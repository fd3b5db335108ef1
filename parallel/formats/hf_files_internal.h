/*
 * parallel/formats/hf_files_internal.h - the weights of a folder of Hugging Face:
 * model.safetensors, or the files that model.safetensors.index.json names. Pickles are never
 * opened. Not installed.
 */
#ifndef WF_PARALLEL_FORMATS_HF_FILES_INTERNAL_H
#define WF_PARALLEL_FORMATS_HF_FILES_INTERNAL_H

#include "parallel/formats/safetensors_internal.h"

typedef struct wf_hf_file {
    char *path;
    wf_safetensors header;
    bool *used; /* per entry: it was found */
} wf_hf_file;

typedef struct wf_hf_files {
    const wf_file_calls *calls;
    char *folder;
    int64_t count;
    wf_hf_file *file;
    int64_t open; /* the number of the one that `reader` reads, or -1 */
    wf_file reader;
} wf_hf_files;

/* Read all headers. WF_EIO, WF_EDATA, WF_ENOMEM. Owner: caller, wf_hf_files_close, always. */
wf_status wf_hf_files_open(wf_hf_files *files, const wf_file_calls *calls, const char *folder,
                           wf_error *error);
void wf_hf_files_close(wf_hf_files *files);

/* Returns true where a folder has weights as safetensors. */
bool wf_hf_files_there(const char *folder);

/* The names of files in an index, each once and sorted, free each and the list. Refused: what
   is no plain name in the folder itself, or no .safetensors. */
wf_status wf_hf_index_parse(const char *name, const char *text, size_t bytes, char ***files,
                            int64_t *count, wf_error *error);

/* A tensor of this name and the number of its file, or NULL; marks it as used. */
const wf_safetensors_entry *wf_hf_find(wf_hf_files *files, const char *name, int64_t *file);

/* A file, open for reading until another is asked for. */
wf_status wf_hf_reader(wf_hf_files *files, int64_t file, const wf_file **reader,
                       wf_error *error);

/* Returns the first tensor that was not used and is not idle, by the model family; or NULL. */
const char *wf_hf_unused(const wf_hf_files *files, bool (*idle)(const char *name));

#endif
