/* parallel/checkpoint/stages.c - what a rank does in the stages of a save; see saver.h. */
#include "parallel/checkpoint/commit.h"
#include "parallel/checkpoint/saver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 }; /* is read for its checksum, and written while it is in the caches */

/* Write a piece at a place of the file; its checksum, as text. */
static wf_status write_piece(const wf_file *file, const char *data, int64_t bytes, int64_t at,
                             char text[WF_CHECKSUM_TEXT], wf_error *error)
{
    wf_checksum_stream *stream = wf_checksum_begin();
    wf_status status =
        stream ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for a checksum");

    for (int64_t from = 0; from < bytes && status == WF_OK; from += CHUNK) {
        size_t n = (size_t)(bytes - from < CHUNK ? bytes - from : CHUNK);

        wf_checksum_add(stream, data + from, n);
        status = wf_file_write(file, data + from, n, at + from, error);
    }
    wf_checksum_print(wf_checksum_end(stream), text);
    return status;
}

/* The data of this rank's file, then the header in front of it, which has their checksums. */
static wf_status write_contents(wf_par_saver *s, const wf_file *file, wf_error *error)
{
    char *header;
    size_t n;
    wf_status status = wf_header_format(&s->header, &header, &n, error);

    if (status != WF_OK)
        return status;
    free(header);
    status = wf_file_resize(file, (int64_t)n + s->pieces.bytes, error);
    for (int64_t i = 0; i < s->pieces.count && status == WF_OK; i++) {
        const wf_piece *piece = &s->pieces.piece[i];
        const char *data = wf_saver_data(s, piece);

        s->sum[WF_SUM_DIGEST] += wf_piece_digest(piece, &s->state, data);
        status = write_piece(file, data, piece->bytes, (int64_t)n + s->header.entry[i].begin,
                             s->header.checksum[i], error);
    }
    if (status == WF_OK)
        status = wf_header_format(&s->header, &header, &n, error);
    if (status != WF_OK)
        return status;
    status = wf_file_write(file, header, n, 0, error);
    s->sum[WF_SUM_FILES] = 1;
    s->sum[WF_SUM_BYTES] = n + (uint64_t)s->pieces.bytes;
    s->sum[WF_SUM_CHECKSUM] = wf_checksum_file(
        wf_context_rank(s->par->ctx), (int64_t)n + s->pieces.bytes, wf_checksum(header, n));
    free(header);
    return status;
}

static wf_status write_rank_file(wf_par_saver *s, wf_error *error)
{
    char partial[WF_CKPT_PATH], path[WF_CKPT_PATH];
    wf_file file;
    wf_status status = wf_ckpt_begin(s->calls, s->dir, s->step, error);

    if (status == WF_OK)
        status = wf_file_open(
            &file, s->calls,
            wf_ckpt_file(path, wf_saver_partial(s, partial), wf_context_rank(s->par->ctx)),
            WF_FILE_WRITE, error);
    if (status != WF_OK)
        return status;
    status = write_contents(s, &file, error);
    if (status == WF_OK)
        status = wf_file_sync(&file, error);
    if (status == WF_OK)
        return wf_file_close(&file, error);
    wf_file_close(&file, NULL);
    return status;
}

wf_status wf_save_publish(wf_par_saver *s, wf_error *error)
{
    wf_index index = s->state.index;

    if (wf_context_rank(s->par->ctx) != 0)
        return WF_OK;
    if (s->options.kind == WF_PAR_SAVE_FULL && wf_save_full_header(s, error) != WF_OK)
        return error->code;
    index.kind = (wf_index_kind)s->options.kind;
    index.step = s->step;
    index.sequences = s->step * s->state.trained.global_batch;
    index.digest = s->total[WF_SUM_DIGEST];
    index.files = (int64_t)s->total[WF_SUM_FILES];
    index.bytes = (int64_t)s->total[WF_SUM_BYTES];
    index.files_checksum = s->total[WF_SUM_CHECKSUM];
    return wf_ckpt_publish(s->calls, s->dir, &index, s->options.keep, error);
}

wf_save_stage *const *wf_save_stages(wf_index_kind kind)
{
    static wf_save_stage *const parts[] = {write_rank_file, wf_save_publish, NULL};
    static wf_save_stage *const full[] = {wf_save_full_parts, wf_save_full_checksums,
                                          wf_save_publish, NULL};

    return kind == WF_INDEX_FULL ? full : parts;
}
