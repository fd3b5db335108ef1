/* parallel/checkpoint/stages.c - what a rank does in the stages of a save; see saver.h. */
#include "parallel/checkpoint/commit.h"
#include "parallel/checkpoint/saver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is said of pieces besides writing them: their part of the digest, and checksums; and
   whether they are fit to be saved. */
typedef struct sums {
    wf_par_saver *saver;
    uint64_t digest;
    wf_error error;
} sums;

static void sum_piece(sums *of, int64_t i, const char *data)
{
    wf_par_saver *s = of->saver;
    const wf_piece *piece = &s->pieces.piece[i];
    wf_piece_sums of_piece;

    if (wf_piece_sum(piece, &s->state, data, &of_piece, &of->error) != WF_OK)
        return;
    of->digest += of_piece.digest;
    wf_checksum_print(of_piece.checksum, s->header.checksum[i]);
}

/* Of all pieces that lie somewhere, beside the thread that writes them. */
static void *sum_pieces(void *arg)
{
    sums *of = arg;
    const wf_par_saver *s = of->saver;

    for (int64_t i = 0; i < s->pieces.count; i++) {
        const char *data = wf_saver_place(s, &s->pieces.piece[i]);

        if (data)
            sum_piece(of, i, data);
    }
    return NULL;
}

/* All pieces to their places behind a header of n bytes; what is cut out is summed here too. */
static wf_status write_pieces(wf_par_saver *s, const wf_file *file, int64_t n, sums *cut,
                              wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < s->pieces.count && status == WF_OK; i++) {
        const wf_piece *piece = &s->pieces.piece[i];
        const char *data = wf_saver_data(s, piece);

        if (!wf_saver_place(s, piece))
            sum_piece(cut, i, data);
        status = wf_file_write(file, data, (size_t)piece->bytes, n + s->header.entry[i].begin,
                               error);
    }
    return status;
}

/* The same, with their sums made meanwhile, or afterwards where no thread is to be had. */
static wf_status write_and_sum(wf_par_saver *s, const wf_file *file, int64_t n, wf_error *error)
{
    sums beside = {.saver = s}, here = {.saver = s};
    const wf_error *unfit;
    pthread_t thread;
    bool threaded = pthread_create(&thread, NULL, sum_pieces, &beside) == 0;
    wf_status status = write_pieces(s, file, n, &here, error);

    if (threaded)
        pthread_join(thread, NULL);
    else
        sum_pieces(&beside);
    s->sum[WF_SUM_DIGEST] = beside.digest + here.digest;
    unfit = beside.error.code != WF_OK ? &beside.error : &here.error;
    if (status == WF_OK && unfit->code != WF_OK)
        return wf_error_set(error, unfit->code, "%s", unfit->text);
    return status;
}

/* The data of this rank's file, then the header in front of it, which has their checksums. */
static wf_status write_contents(wf_par_saver *s, wf_file *file, wf_error *error)
{
    char *header;
    size_t n;
    wf_status status = wf_header_format(&s->header, &header, &n, error);

    if (status != WF_OK)
        return status;
    free(header);
    status = wf_file_resize(file, (int64_t)n + s->pieces.bytes, error);
    if (status == WF_OK)
        status = write_and_sum(s, file, (int64_t)n, error);
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
    file.need = s->need;
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
