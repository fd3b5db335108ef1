/*
 * nn/dataset/megatron_index.h - reads an .idx file (nn/dataset/megatron_format.h), which is not
 * trusted: its fields are checked against its own size and that of the .bin file.
 *
 * Checked when it is opened: the header, both counts against the size of the file, the first
 * and the last entry of each array, and up to 64 runs of 1,024 entries each, evenly spread: no
 * length is negative, every sequence begins where the one before it ends, the last one ends
 * where the .bin file does, and bounds of documents never fall. That is every entry of files of
 * up to 65,536 sequences. It takes a fixed amount of memory and of reads.
 */
#ifndef WF_NN_DATASET_MEGATRON_INDEX_H
#define WF_NN_DATASET_MEGATRON_INDEX_H

#include "nn/dataset/megatron_format.h"
#include "core/status.h"
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_megatron_index {
    wf_megatron_type type;
    int64_t sequences, documents;
    int64_t tokens; /* those in the .bin file */
} wf_megatron_index;

/** wf_megatron_type_size - returns the bytes of a token, 0 for an unknown type. */
WF_API int64_t wf_megatron_type_size(wf_megatron_type type);

/**
 * wf_megatron_index_read - checks an .idx file
 *
 * @param descriptor  open for reading; stays open
 * @param name        for errors
 * @param bin_size    bytes of the .bin file beside it
 * Errors:  WF_EDATA (the field, what it is and what it would have to be), WF_EIO
 */
WF_API wf_status wf_megatron_index_read(int descriptor, const char *name, int64_t bin_size,
                                        wf_megatron_index *index, wf_error *error);

WF_END_DECLS

#endif
