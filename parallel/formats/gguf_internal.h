/*
 * parallel/formats/gguf_internal.h - files of GGUF, version 3, as llama.cpp and ollama read
 * them. Not installed.
 *
 *     "GGUF" | u32 3 | u64 tensors | u64 keys
 *     key: text name, u32 kind, value            array: u32 kind of its values, u64 how many,
 *                                                values
 *     tensor: text name, u32 dims, u64 size of each dim (the fastest first), u32 type, u64
 *     offset zeros up to a multiple of 32 | data of tensors, each from a multiple of 32 on
 *
 * A text is its length as u64 and its bytes; offsets count from the begin of the data.
 * (Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md)
 */
#ifndef WF_PARALLEL_FORMATS_GGUF_INTERNAL_H
#define WF_PARALLEL_FORMATS_GGUF_INTERNAL_H

#include "core/status.h"
#include "core/tensor.h"
#include "core/files/files_internal.h"
#include "parallel/formats/gguf.h"
#include <stddef.h>

enum { WF_GGUF_ALIGNMENT = 32, WF_GGUF_BLOCK = 32, WF_GGUF_NAME = 64 };

/* Types of tensors, by their numbers in a file. Blocks lie along the fastest dim. */
typedef enum wf_gguf_type {
    WF_GGUF_F32 = 0,
    WF_GGUF_F16 = 1,
    WF_GGUF_Q4_0 = 2, /* blocks of 32 numbers with a scale in f16, and in _1 an offset */
    WF_GGUF_Q4_1 = 3,
    WF_GGUF_Q5_0 = 6,
    WF_GGUF_Q5_1 = 7,
    WF_GGUF_Q8_0 = 8,  /* f16 scale, 32 signed bytes */
    WF_GGUF_Q4_K = 12, /* blocks of 256, in 8 or 16 runs with scales of their own */
    WF_GGUF_Q5_K = 13,
    WF_GGUF_Q6_K = 14,
    WF_GGUF_BF16 = 30
} wf_gguf_type;

typedef struct wf_gguf_tensor {
    char name[WF_GGUF_NAME];
    wf_gguf_type type;
    int ndim;
    int64_t shape[WF_MAX_DIMS]; /* the slowest dim first */
    int64_t begin, bytes;       /* filled by wf_gguf_end; counted from the begin of the data */
} wf_gguf_tensor;

/* The header of a file that is read; zero-initialise it, wf_gguf_free. */
struct wf_par_gguf {
    char *name;  /* the file's, for errors */
    char *bytes; /* memory of texts */
    wf_par_gguf_key *key;
    wf_gguf_tensor *tensor; /* by name */
    int64_t keys, tensors;
    int64_t data; /* position of tensors in the file */
};

/*
 * Reads a header out of the first `have` bytes of a file of `size`, which g->bytes has and
 * keeps. *more: the header is longer, and is to be read anew with more bytes. Names are each
 * there once; tensors do not overlap and end with the file or before. WF_EDATA,
 * WF_EUNSUPPORTED, WF_ENOMEM, with the name of the file.
 */
wf_status wf_gguf_parse(wf_par_gguf *g, const char *name, size_t have, int64_t size, bool *more,
                        wf_error *error);
void wf_gguf_free(wf_par_gguf *g);

/* The header of a file that is open. Errors as above, and WF_EIO. */
wf_status wf_gguf_read(wf_par_gguf *g, const wf_file *file, wf_error *error);

/* The order of keys and of tensors, for qsort and bsearch. */
int wf_gguf_by_key(const void *a, const void *b);
int wf_gguf_by_name(const void *a, const void *b);

/* NULL: there is none. */
const wf_gguf_tensor *wf_gguf_tensor_find(const wf_par_gguf *g, const char *name);

/* A header in the making; zero-initialise it, free bytes. */
typedef struct wf_gguf_header {
    char *bytes;
    size_t count, room;
    uint64_t keys;
    bool no_memory; /* later entries are dropped */
} wf_gguf_header;

void wf_gguf_put(wf_gguf_header *h, const wf_par_gguf_key *key);

/* Ends a header to which all keys were added: completes its bytes, and gives the tensors their
   offsets, one after another. data: where these begin in the file. WF_ENOMEM. */
wf_status wf_gguf_end(wf_gguf_header *h, wf_gguf_tensor *tensors, int64_t count, int64_t *data,
                      wf_error *error);

/* Elements that lie together in a type; 0: no type has this number, or none that is read. */
int wf_gguf_block(uint32_t type);

/* Bytes of n elements of a row; n divides by the type's block. */
int64_t wf_gguf_bytes(wf_gguf_type type, int64_t n);

/* Returns the largest magnitude of an element of a type: elements beyond, or not finite, are
   refused. */
float wf_gguf_largest(wf_gguf_type type);

/* Elements as a type has them; n as above. Q8_0 as ggml's reference: the scale is the largest
   size / 127, numbers are rounded to the nearest, away from zero in a tie. */
void wf_gguf_convert(wf_gguf_type type, const float *from, void *to, int64_t n);

/* And back, of all types: what ggml's own programs make of them. n divides by the type's
   block. */
void wf_gguf_numbers(wf_gguf_type type, const void *from, float *to, int64_t n);

#endif
