/*
 * nn/dataset/megatron_documents.h - the bounds of documents of an .idx file
 * (nn/dataset/megatron_format.h), looked up as needed: an open file costs no memory, whatever
 * its size. The file is not trusted, and only parts of it were checked when it was opened.
 */
#ifndef WF_NN_DATASET_MEGATRON_DOCUMENTS_H
#define WF_NN_DATASET_MEGATRON_DOCUMENTS_H

#include "nn/dataset/megatron_index.h"

WF_BEGIN_DECLS

typedef struct wf_megatron_documents {
    int descriptor; /* the .idx file's */
    const char *name;
    wf_megatron_index index;
} wf_megatron_documents;

/**
 * wf_megatron_document_at - reads the first token of a document
 *
 * @param document  in [0, documents]; that of the last is the number of tokens
 * Errors:          WF_EDATA (file, entry and value), WF_EIO
 */
WF_API wf_status wf_megatron_document_at(const wf_megatron_documents *documents,
                                         int64_t document, int64_t *token, wf_error *error);

/**
 * wf_megatron_documents_begin - marks those of the tokens first .. first + count - 1 that begin
 * a document
 *
 * @param begins  [count], 1 or 0
 * Errors:        WF_EDATA (documents that begin before the one before them), WF_EIO
 */
WF_API wf_status wf_megatron_documents_begin(const wf_megatron_documents *documents,
                                             int64_t first, int64_t count, int32_t *begins,
                                             wf_error *error);

WF_END_DECLS

#endif
