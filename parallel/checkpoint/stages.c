/* parallel/checkpoint/stages.c - what a rank does in the stages of a save; see saver.h. */
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/saver_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The sums of pieces beside writing them: their term of the digest, and checksums; and the
   check that they are finite. */
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

/* Sums all contiguous pieces, beside the thread that writes them. */
static void *sum_pieces(void *arg)
{
    sums *of = arg;
    const wf_par_saver *s = of->saver;

    for (int64_t i = 0; i < s->pieces.count; i++) {
        const char *data = wf_saver_view(s, &s->pieces.piece[i]);

        if (data)
            sum_piece(of, i, data);
    }
    return NULL;
}

/* Writes all pieces after a header of n bytes; pieces that are cut out are summed here too. */
static wf_status write_pieces(wf_par_saver *s, const wf_file *file, int64_t n, sums *cut,
                              wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < s->pieces.count && status == WF_OK; i++) {
        const wf_piece *piece = &s->pieces.piece[i];
        const char *data = wf_saver_data(s, piece);

        if (!wf_saver_view(s, piece))
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
    int64_t bytes = s->header_bytes + s->pieces.bytes;
    char *header;
    size_t n;
    wf_status status = wf_file_resize(file, bytes, error);

    if (status == WF_OK)
        status = write_and_sum(s, file, s->header_bytes, error);
    if (status == WF_OK)
        status = wf_header_format(&s->header, &header, &n, error);
    if (status != WF_OK)
        return status;
    status = wf_file_write(file, header, n, 0, error);
    s->sum[WF_SUM_FILES] = 1;
    s->sum[WF_SUM_BYTES] = (uint64_t)bytes;
    s->sum[WF_SUM_CHECKSUM] =
        wf_checksum_file(wf_context_rank(s->par->ctx), bytes, wf_checksum(header, n));
    free(header);
    return status;
}

static wf_status write_rank_file(wf_par_saver *s, wf_error *error)
{
    wf_file file;
    wf_status status =
        wf_saver_file(s, wf_context_rank(s->par->ctx), WF_FILE_CREATE, &file, error);

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

/* A disk gives whole blocks. */
static uint64_t on_disk(int64_t bytes)
{
    enum { BLOCK = 4096 };

    return (uint64_t)(bytes + BLOCK - 1) / BLOCK * BLOCK;
}

/* Computes the size of a save's files on a disk: this rank's, and with rank 0 the files that
   exist once. */
static wf_status measure(wf_par_saver *s, wf_error *error)
{
    enum { OTHERS = 4 * 4096 }; /* directory, `latest`, and numbers that are longer then */
    const wf_header *h = &s->header;
    int64_t whole = h->count ? h->entry[h->count - 1].end : 0;
    bool first = wf_context_rank(s->par->ctx) == 0, full = s->options.kind == WF_PAR_SAVE_FULL;
    char *text = NULL;
    size_t n = 0;
    wf_status status = WF_OK;

    if (first)
        status = wf_index_format(&s->state.index, &text, &n, error);
    free(text);
    s->sum[WF_BEGUN_NEED] = first ? on_disk((int64_t)n + OTHERS) : 0;
    if (!full || first)
        s->sum[WF_BEGUN_NEED] += on_disk(s->header_bytes + (full ? whole : s->pieces.bytes));
    return status;
}

wf_status wf_save_begin(wf_par_saver *s, wf_error *error)
{
    wf_status status = measure(s, error);

    s->mark = 0;
    if (status != WF_OK || wf_context_rank(s->par->ctx) != 0)
        return status;
    status = wf_saver_folder(s, true, error);
    if (status == WF_OK)
        status = wf_ckpt_tidy(&s->folder, error);
    if (status == WF_OK)
        status = wf_ckpt_begin(&s->folder, s->step, &s->mark, error);
    s->sum[WF_BEGUN_MARK] = s->mark;
    return status;
}

/* The step that is being saved is one of this run's. */
static wf_status remember(wf_par_saver *s, wf_error *error)
{
    size_t room = (size_t)s->published_count + 1;
    int64_t *longer = realloc(s->published, room * sizeof *longer);

    if (!longer)
        return wf_error_set(error, WF_ENOMEM, "no memory for the list of steps");
    s->published = longer;
    s->published[s->published_count] = s->step;
    return WF_OK;
}

/* The index of what was written. */
static wf_index index_of(const wf_par_saver *s)
{
    wf_index index = s->state.index;

    index.step = s->step;
    index.sequences = wf_par_trainer_sequences(s->trainer, s->step);
    index.digest = s->total[WF_SUM_DIGEST];
    index.files = (int64_t)s->total[WF_SUM_FILES];
    index.bytes = (int64_t)s->total[WF_SUM_BYTES];
    index.files_checksum = s->total[WF_SUM_CHECKSUM];
    return index;
}

wf_status wf_save_publish(wf_par_saver *s, wf_error *error)
{
    wf_ckpt_target target;
    wf_ckpt_keep keep = {.keep = s->options.keep};
    wf_index index;
    wf_status status;

    if (wf_context_rank(s->par->ctx) != 0)
        return WF_OK;
    status = remember(s, error);
    if (status == WF_OK && s->options.kind == WF_PAR_SAVE_FULL)
        status = wf_save_full_header(s, error);
    if (status != WF_OK)
        return status;
    index = index_of(s);
    keep.began = wf_nn_optimizer_began(s->state.trained.optimizer) + s->state.index.fresh;
    keep.saved = s->published;
    keep.count = s->published_count + 1;
    status = wf_ckpt_enter(&target, &s->folder, s->step, s->mark, error);
    s->folder.need = target.partial.need = s->need;
    if (status == WF_OK)
        status = wf_ckpt_publish(&target, s->mark, &index, &keep, error);
    wf_ckpt_leave(&target);
    s->published_count += status == WF_OK;
    return status;
}

const wf_save_stage *wf_save_stages(wf_index_kind kind)
{
    static const wf_save_stage parts[] = {{wf_save_begin, WF_NUMBERS_BEGUN},
                                          {write_rank_file, WF_NUMBERS_FILES},
                                          {wf_save_publish, WF_NUMBERS_NONE},
                                          {NULL, WF_NUMBERS_NONE}};
    static const wf_save_stage full[] = {{wf_save_begin, WF_NUMBERS_BEGUN},
                                         {wf_save_full_parts, WF_NUMBERS_FILES},
                                         {wf_save_full_checksums, WF_NUMBERS_TENSORS},
                                         {wf_save_publish, WF_NUMBERS_NONE},
                                         {NULL, WF_NUMBERS_NONE}};

    return kind == WF_INDEX_FULL ? full : parts;
}
