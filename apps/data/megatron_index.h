/*
 * apps/data/megatron_index.h - reads an .idx file (apps/data/megatron_format.h), which may be anybody's: what it
 * says is compared with its own size and with that of the .bin file before it is believed.
 *
 * When it is opened: the header, both counts against the size of the file, the first and the last entry of each
 * array, and up to 64 runs of 1,024 entries each, evenly spread: no length is negative, every sequence begins
 * where the one before it ends, the last one ends where the .bin file does, and bounds of documents never fall.
 * That is every entry of files of up to 65,536 sequences. It takes a fixed amount of memory and of reads.
 */
#ifndef WF_APPS_DATA_MEGATRON_INDEX_H
#define WF_APPS_DATA_MEGATRON_INDEX_H

#include "apps/data/megatron_format.h"
#include "core/status.h"
#include <stdint.h>

typedef struct app_megatron_index {
    app_megatron_type type;
    int64_t sequences, documents;
    int64_t tokens; /* those in the .bin file */
} app_megatron_index;

/** app_megatron_type_size - bytes of a token, 0 where no such type is known. */
int64_t app_megatron_type_size(app_megatron_type type);

/**
 * app_megatron_index_read - checks an .idx file
 *
 * @param descriptor  open for reading; stays open
 * @param name        for errors
 * @param bin_size    bytes of the .bin file beside it
 * Errors:  WF_EDATA (the field, what it is and what it would have to be), WF_EIO
 */
wf_status app_megatron_index_read(int descriptor, const char *name, int64_t bin_size,
                                  app_megatron_index *index, wf_error *error);

#endif
