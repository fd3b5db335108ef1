/*
 * nn/dataset/source.h - a source of data: files of tokens, or of text, as one row of tokens.
 *
 * A window is seq_len + 1 tokens; window w begins at token w x seq_len, so that each token but
 * the first is a target once, and what is left at the end is shorter than a window. A window
 * may lie over several files.
 *
 * Beside a pair X.bin and X.idx of Megatron may be a loss mask, X.loss.bin and X.loss.idx: a
 * number for each token, 1 where it is trained on as a target and 0 where it is not.
 */
#ifndef WF_NN_DATASET_SOURCE_H
#define WF_NN_DATASET_SOURCE_H

#include "nn/dataset/source_list.h"
#include "nn/dataset/token_file.h"

WF_BEGIN_DECLS

typedef struct wf_dataset_source_part {
    wf_token_file file;
    wf_token_file mask; /* valid if masked */
    bool masked;
    int64_t first; /* index of its first token in the whole source */
} wf_dataset_source_part;

typedef struct wf_dataset_source {
    char *name;
    double weight;
    wf_dataset_source_part *part;
    int64_t parts;
    int64_t tokens;
    bool is_text; /* all of it, or nothing */
    bool masked;  /* some of it has loss masks */
} wf_dataset_source;

/**
 * wf_dataset_source_open - opens all files of a source
 *
 * Owner:   the caller, wf_dataset_source_close, also after an error
 * Errors:  as of wf_token_file_open; WF_EINVAL (text beside token ids, a file twice), WF_EDATA
 *          (a mask of another size), WF_ENOMEM
 */
WF_API wf_status wf_dataset_source_open(const wf_dataset_source_files *files, const char *flag,
                                        wf_token_count vocabulary, wf_dataset_source *source,
                                        wf_error *error);

/** wf_dataset_source_fingerprint - adds the size and samples of the content of a source's files
 * to a fingerprint. Errors: WF_EIO, WF_ENOMEM. */
WF_API wf_status wf_dataset_source_fingerprint(const wf_dataset_source *source,
                                               uint64_t *fingerprint, wf_error *error);

/** wf_dataset_source_close - closes the files; a zeroed source is allowed. */
WF_API void wf_dataset_source_close(wf_dataset_source *source);

/** wf_dataset_source_read - reads tokens first .. first + count - 1 of the source. Errors as of
 * wf_token_file_read. */
WF_API wf_status wf_dataset_source_read(const wf_dataset_source *source, int64_t first,
                                        int64_t count, int32_t *ids, wf_error *error);

/** wf_dataset_source_read_mask - reads the loss mask of these tokens: 1 or 0. Errors also
 * WF_EDATA: another number. */
WF_API wf_status wf_dataset_source_read_mask(const wf_dataset_source *source, int64_t first,
                                             int64_t count, int32_t *trained, wf_error *error);

/** wf_dataset_source_has_documents - returns true where all files of the source have the bounds
 * of documents. */
WF_API bool wf_dataset_source_has_documents(const wf_dataset_source *source);

/**
 * wf_dataset_source_documents - marks those of these tokens that begin a document: 1 or 0
 *
 * Each file begins one. In files without bounds of documents, one begins after each end of
 * text.
 *
 * @param ids   the tokens
 * @param ends  the id that ends a document; -1: none does
 * Errors:      as of wf_megatron_documents_begin
 */
WF_API wf_status wf_dataset_source_documents(const wf_dataset_source *source, int64_t first,
                                             int64_t count, const int32_t *ids, int32_t ends,
                                             int32_t *begins, wf_error *error);

WF_END_DECLS

#endif
