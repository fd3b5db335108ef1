/*
 * nn/dataset/token_file.h - reads a file of token ids, whose format is detected by its content:
 *
 *     X.idx, X.bin beside it   Megatron: nn/dataset/megatron_index.h
 *     llm.c's .bin             256 words of header: 20240520, 1, tokens (u16), or
 *                              20240801, 7, tokens (u32)
 *     another X.bin            two bytes a token and nothing else, as nanoGPT writes it
 *     anything else            text: a token is a byte
 *
 * Numbers are little-endian. A file may be read by many threads at once.
 */
#ifndef WF_NN_DATASET_TOKEN_FILE_H
#define WF_NN_DATASET_TOKEN_FILE_H

#include "nn/dataset/megatron_documents.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef enum wf_token_type {
    WF_TOKEN_U8,
    WF_TOKEN_U16,
    WF_TOKEN_U32,
    WF_TOKEN_I32
} wf_token_type;

typedef struct wf_token_file {
    char *name; /* the file with the tokens: a .bin file where an .idx file was named */
    /* the file beside it with the bounds of documents, where there is one */
    char *index_name;
    const char *format;
    int descriptor;
    wf_token_type type;
    bool is_text;
    int64_t begin;  /* the byte at which the tokens begin */
    int64_t tokens; /* at least 1 */
    /* bounds of documents; 0 documents where the format has none */
    wf_megatron_documents documents;
    int64_t vocabulary; /* every id has to be below */
} wf_token_file;

/** wf_token_count - a model's vocabulary, and whether it is known or a default. */
typedef struct wf_token_count {
    int64_t size;
    bool given; /* false: a default, which does not decide the type of a file without header */
} wf_token_count;

/** wf_dataset_file_open - returns a descriptor to read from; -1 with the reason in errno. It
 * does not wait for a writer where the name is a pipe's. */
WF_API int wf_dataset_file_open(const char *name);

/**
 * wf_token_file_open - opens a file, and checks its header and its size
 *
 * @param flag  the flag that named it, for errors
 * Owner:   the caller, wf_token_file_close, also after an error
 * Errors:  WF_EIO (file and reason), WF_EINVAL (an empty file, or one of unknown
 *          format), WF_EDATA (a header that cannot be right: file, field and values), WF_ENOMEM
 */
WF_API wf_status wf_token_file_open(const char *name, const char *flag,
                                    wf_token_count vocabulary, wf_token_file *file,
                                    wf_error *error);

/** wf_token_file_close - closes a file; a zeroed one is allowed. */
WF_API void wf_token_file_close(wf_token_file *file);

/**
 * wf_token_file_read - reads tokens first .. first + count - 1, which the file has
 *
 * Errors: WF_EIO (it became shorter, or cannot be read), WF_EDATA (an id outside of the
 * vocabulary: file, position, id and vocabulary)
 */
WF_API wf_status wf_token_file_read(const wf_token_file *file, int64_t first, int64_t count,
                                    int32_t *ids, wf_error *error);

WF_END_DECLS

#endif
