/*
 * parallel/formats/safetensors_internal.h - the header of a safetensors file, read from
 * strangers and written. Not installed.
 *
 *     u64 n, little endian | n bytes of JSON | data
 *     JSON: {"__metadata__": {key: text, ..}, name: {"dtype", "shape", "data_offsets"}, ..}
 *
 * (Format: https://github.com/huggingface/safetensors, README, "Format".) Offsets count from
 * the end of the header; the tensors' bytes cover the data without gaps or overlaps.
 */
#ifndef WF_PARALLEL_FORMATS_SAFETENSORS_INTERNAL_H
#define WF_PARALLEL_FORMATS_SAFETENSORS_INTERNAL_H

#include "core/files/files_internal.h"

enum {
    WF_SAFETENSORS_DIMS = 8,
    WF_SAFETENSORS_HEADER = 16 << 20, /* bytes of a header at most: some 100,000 tensors */
    WF_SAFETENSORS_NAME = 512         /* bytes of a name, with its end */
};

typedef enum wf_safetensors_dtype {
    WF_ST_F64,
    WF_ST_F32,
    WF_ST_F16,
    WF_ST_BF16,
    WF_ST_I64,
    WF_ST_I32,
    WF_ST_I16,
    WF_ST_I8,
    WF_ST_U64,
    WF_ST_U32,
    WF_ST_U16,
    WF_ST_U8,
    WF_ST_BOOL,
    WF_ST_DTYPES
} wf_safetensors_dtype;

typedef struct wf_safetensors_entry {
    char *name;
    wf_safetensors_dtype dtype;
    int ndim;
    int64_t shape[WF_SAFETENSORS_DIMS];
    int64_t begin, end; /* bytes of the data */
} wf_safetensors_entry;

typedef struct wf_safetensors {
    int64_t count;
    wf_safetensors_entry *entry; /* sorted by name */
    int64_t data;                /* position of the data in the file */
    int64_t data_bytes;
    int64_t metadata_count;
    char **metadata; /* key, value, key, value, .. */
} wf_safetensors;

/* "F32", "BF16", ..; bytes of an element. */
const char *wf_safetensors_dtype_name(wf_safetensors_dtype dtype);
int64_t wf_safetensors_dtype_size(wf_safetensors_dtype dtype);

/*
 * Parses a header: its JSON, and the bytes of data that follow it in the file. `name` is the
 * file's, for errors. It is not trusted: every number is checked before it is used or allocated
 * for. WF_EDATA names the error. Owner: caller, wf_safetensors_close.
 */
wf_status wf_safetensors_parse(wf_safetensors *header, const char *name, const char *json,
                               size_t json_bytes, int64_t data_bytes, wf_error *error);
/* The same from an open file. */
wf_status wf_safetensors_read(wf_safetensors *header, const wf_file *file, wf_error *error);
void wf_safetensors_close(wf_safetensors *header);

/* The tensor of a name, or NULL. */
const wf_safetensors_entry *wf_safetensors_find(const wf_safetensors *header, const char *name);
/* A text of the metadata, or NULL. */
const char *wf_safetensors_metadata(const wf_safetensors *header, const char *key);

/*
 * Writes the bytes of a header (length, JSON, spaces up to a multiple of 8) for tensors in this
 * order, one after another; fills entry[i].begin and end. Same entries, same bytes. WF_EINVAL
 * where a shape is none. Owner: caller, free.
 */
wf_status wf_safetensors_format(int64_t count, wf_safetensors_entry *entry,
                                int64_t metadata_count, const char *const *metadata,
                                char **bytes, size_t *n_bytes, wf_error *error);

#endif
