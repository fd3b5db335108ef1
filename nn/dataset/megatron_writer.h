/*
 * nn/dataset/megatron_writer.h - writes token data as a pair of Megatron files: PREFIX.bin
 * holds the tokens one after the other, PREFIX.idx (nn/dataset/megatron_format.h) where each
 * document begins and ends.
 *
 *     wf_megatron_writer_open("web", 49152, &writer, &error);
 *     for each document:
 *         wf_megatron_writer_add(writer, ids, count, &error);    as often as it takes
 *         wf_megatron_writer_end_document(writer, &error);
 *     wf_megatron_writer_finish(writer, NULL, &error);           or wf_megatron_writer_discard
 *
 * Files are written as core/files/output.h says, and get their names together with those of a
 * loss mask and a manifest (nn/dataset/manifest.h): what has the final names is whole, whenever
 * the program or the machine ends, and of one writing. Memory does not grow with the data. A
 * writer serves one thread at a time, but for wf_megatron_writer_put.
 */
#ifndef WF_NN_DATASET_MEGATRON_WRITER_H
#define WF_NN_DATASET_MEGATRON_WRITER_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_megatron_writer wf_megatron_writer;

/**
 * wf_megatron_writer_open - begins a pair of files
 *
 * @param prefix      the files' names without .bin and .idx; a pair that has them is replaced
 *                    at the end
 * @param vocabulary  how many token ids there are, in [1, 2^31); decides what a token is stored
 *                    as: u8 up to 256, u16 up to 65536, else i32
 * Owner:   the caller, wf_megatron_writer_finish or wf_megatron_writer_discard
 * Errors:  WF_EINVAL, WF_EIO (file and reason), WF_ENOMEM; *writer is then NULL
 */
WF_API wf_status wf_megatron_writer_open(const char *prefix, int64_t vocabulary,
                                         wf_megatron_writer **writer, wf_error *error);

/**
 * wf_megatron_writer_add - appends tokens to the document that is open
 *
 * A document of more than 2^31 - 1 tokens, which an .idx cannot hold as one, is stored as
 * several.
 *
 * Errors: WF_EINVAL (an id outside of the vocabulary: which one, and its position in the file),
 *         WF_EIO (a full disk for instance). The files are not finished after that.
 */
WF_API wf_status wf_megatron_writer_add(wf_megatron_writer *writer, const int32_t *ids,
                                        int64_t count, wf_error *error);

/** wf_megatron_writer_end_document - ends the current document. A document without tokens is
 * left out. Errors as of wf_megatron_writer_add. */
WF_API wf_status wf_megatron_writer_end_document(wf_megatron_writer *writer, wf_error *error);

/**
 * wf_megatron_writer_reserve - reserves room for a number of tokens, which
 * wf_megatron_writer_put writes
 *
 * As wf_megatron_writer_add and wf_megatron_writer_end_document, but for the tokens themselves.
 *
 * @param end  [ends], ascending: numbers of these tokens after which a document ends; tokens
 *             after the last one go to a document that stays open
 * @param at   filled: the position of the tokens
 * Errors:  WF_EIO
 */
WF_API wf_status wf_megatron_writer_reserve(wf_megatron_writer *writer, int64_t count,
                                            const size_t *end, size_t ends, int64_t *at,
                                            wf_error *error);

/**
 * wf_megatron_writer_put - writes tokens to reserved room, by any thread and in any order
 *
 * All room has to be filled before wf_megatron_writer_finish. After an error the writer can
 * only be discarded.
 *
 * Errors:  those of wf_megatron_writer_add
 */
WF_API wf_status wf_megatron_writer_put(const wf_megatron_writer *writer, int64_t at,
                                        const int32_t *ids, int64_t count, wf_error *error);

/** wf_megatron_writer_tokens, wf_megatron_writer_documents - return the numbers written so far;
 * a document counts when it has ended. */
WF_API int64_t wf_megatron_writer_tokens(const wf_megatron_writer *writer);
WF_API int64_t wf_megatron_writer_documents(const wf_megatron_writer *writer);

/**
 * wf_megatron_writer_finish - ends the open document, completes the files and gives them their
 * names
 *
 * The writers are freed whatever comes of it; after an error no file has its name. A dataset
 * that was there before stays as it was, unless the renaming itself fails: then it may be gone.
 * An older loss mask goes where there is no new one.
 *
 * @param mask  the writer of PREFIX.loss, or NULL
 * Errors: WF_EINVAL (no token was added), WF_EIO; the first error of a writer, where it had one
 */
WF_API wf_status wf_megatron_writer_finish(wf_megatron_writer *writer, wf_megatron_writer *mask,
                                           wf_error *error);

/** wf_megatron_write - writes a pair of files with one document. Errors: those of opening,
 * adding and finishing */
WF_API wf_status wf_megatron_write(const char *prefix, int64_t vocabulary, const int32_t *ids,
                                   int64_t count, wf_error *error);

/** wf_megatron_writer_discard - removes what was written, and frees the writer; NULL is
 * allowed. */
WF_API void wf_megatron_writer_discard(wf_megatron_writer *writer);

WF_END_DECLS

#endif
