/*
 * parallel/checkpoint/verify_internal.h - a checkpoint that was opened, and its files against
 * their checksums. Not installed.
 */
#ifndef WF_PARALLEL_CHECKPOINT_VERIFY_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_VERIFY_INTERNAL_H

#include "parallel/checkpoint/checkpoint.h"
#include "parallel/checkpoint/index_internal.h"
#include "parallel/formats/safetensors_internal.h"

struct wf_par_checkpoint {
    char *path;
    wf_index index;
    const wf_file_calls *calls;
};

/* The same as wf_par_checkpoint_open, with file calls of one's own. */
wf_par_checkpoint *wf_checkpoint_open(const char *path, const wf_file_calls *calls,
                                      wf_error *error);

/* Open data file number `rank` (the only one: any number) with its header. Owner: caller, both
   are closed. */
wf_status wf_checkpoint_file(const wf_par_checkpoint *c, int64_t rank, wf_file *file,
                             wf_safetensors *header, wf_error *error);

/* Returns the term of data file number `rank` in wf_index.files_checksum. */
wf_status wf_checkpoint_header(const wf_par_checkpoint *c, int64_t rank, uint64_t *sum,
                               wf_error *error);

/* WF_EDATA: the sum of the files is not the one in the index. */
wf_status wf_checkpoint_mixed(const wf_par_checkpoint *c, wf_error *error);

/* Every tensor of it against its checksum. */
wf_status wf_checkpoint_contents(const wf_par_checkpoint *c, int64_t rank, wf_error *error);

#endif
