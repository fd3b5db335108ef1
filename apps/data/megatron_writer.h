/*
 * apps/data/megatron_writer.h - writes token data as a pair of Megatron files: PREFIX.bin holds the tokens
 * one after the other, PREFIX.idx (apps/data/megatron_format.h) where each document begins and ends.
 *
 *     app_megatron_writer_open("web", 49152, &writer, &error);
 *     for each document:
 *         app_megatron_writer_add(writer, ids, count, &error);    as often as it takes
 *         app_megatron_writer_end_document(writer, &error);
 *     app_megatron_writer_finish(writer, NULL, &error);           or app_megatron_writer_discard
 *
 * Files are written as core/files/output.h says, and get their names together with those of a loss mask and a
 * manifest (apps/data/manifest.h): what has the final names is whole, whenever the program or the machine ends, and of
 * one writing. Memory does not grow with the data. A writer serves one thread at a time, but for app_megatron_writer_put.
 */
#ifndef WF_APPS_DATA_MEGATRON_WRITER_H
#define WF_APPS_DATA_MEGATRON_WRITER_H

#include "core/status.h"
#include <stddef.h>
#include <stdint.h>

typedef struct app_megatron_writer app_megatron_writer;

/**
 * app_megatron_writer_open - begins a pair of files
 *
 * @param prefix      the files' names without .bin and .idx; a pair that has them is replaced at the end
 * @param vocabulary  how many token ids there are, in [1, 2^31); decides what a token is stored as: u8 up
 *                    to 256, u16 up to 65536, else i32
 * Owner:   the caller, app_megatron_writer_finish or app_megatron_writer_discard
 * Errors:  WF_EINVAL, WF_EIO (file and reason), WF_ENOMEM; *writer is then NULL
 */
wf_status app_megatron_writer_open(const char *prefix, int64_t vocabulary,
                                   app_megatron_writer **writer, wf_error *error);

/**
 * app_megatron_writer_add - appends tokens to the document that is open
 *
 * A document of more than 2^31 - 1 tokens, which an .idx cannot hold as one, is stored as several.
 *
 * Errors: WF_EINVAL (an id outside of the vocabulary: which one, and its place in the file), WF_EIO (a
 *         full disk for instance). The files are not finished after that.
 */
wf_status app_megatron_writer_add(app_megatron_writer *writer, const int32_t *ids,
                                  int64_t count, wf_error *error);

/** app_megatron_writer_end_document - the next token begins another document. A document without tokens
 * is left out. Errors as of app_megatron_writer_add. */
wf_status app_megatron_writer_end_document(app_megatron_writer *writer, wf_error *error);

/**
 * app_megatron_writer_reserve - room for tokens whose number is known, and that app_megatron_writer_put writes
 *
 * As app_megatron_writer_add and app_megatron_writer_end_document, but for the tokens themselves.
 *
 * @param end  [ends], ascending: so many of these tokens come before the end of a document; what is behind the last one
 *             goes to a document that stays open
 * @param at   where the tokens go
 * Errors:  WF_EIO
 */
wf_status app_megatron_writer_reserve(app_megatron_writer *writer, int64_t count,
                                      const size_t *end, size_t ends, int64_t *at,
                                      wf_error *error);

/**
 * app_megatron_writer_put - writes tokens to where there is room for them, by any thread and in any order
 *
 * All room has to be filled before app_megatron_writer_finish. After an error the writer can only be discarded.
 *
 * Errors:  those of app_megatron_writer_add
 */
wf_status app_megatron_writer_put(const app_megatron_writer *writer, int64_t at,
                                  const int32_t *ids, int64_t count, wf_error *error);

/** app_megatron_writer_tokens, app_megatron_writer_documents - what was written so far; a document counts
 * when it has ended. */
int64_t app_megatron_writer_tokens(const app_megatron_writer *writer);
int64_t app_megatron_writer_documents(const app_megatron_writer *writer);

/**
 * app_megatron_writer_finish - ends the open document, completes the files and gives them their names
 *
 * The writers are freed whatever comes of it; after an error no file has its name. A data set that was there before
 * stays as it was, unless the renaming itself fails: then it may be gone. An older loss mask goes where there is
 * no new one.
 *
 * @param mask  the writer of PREFIX.loss, or NULL
 * Errors: WF_EINVAL (no token was added), WF_EIO; the first error of a writer, where it had one
 */
wf_status app_megatron_writer_finish(app_megatron_writer *writer, app_megatron_writer *mask,
                                     wf_error *error);

/** app_megatron_writer_discard - removes what was written, and frees the writer; NULL is allowed. */
void app_megatron_writer_discard(app_megatron_writer *writer);

#endif
