/*
 * parallel/checkpoint/full.c - one file of whole tensors: every rank writes its parts at their
 * offsets, then reads back the tensors whose checksums it makes, and rank 0 writes the header.
 * No rank ever holds a whole model, and nothing is gathered.
 */
#include "parallel/checkpoint/commit_internal.h"
#include "parallel/checkpoint/saver_internal.h"
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 20 };

static wf_status close_file(wf_file *file, bool sync, wf_status status, wf_error *error)
{
    if (status == WF_OK && sync)
        status = wf_file_sync(file, error);
    if (status == WF_OK)
        return wf_file_close(file, error);
    wf_file_close(file, NULL);
    return status;
}

static wf_part whole_of(const wf_index_tensor *t)
{
    wf_part part = {.ndim = t->ndim};

    for (int d = 0; d < t->ndim; d++)
        part.local[d] = t->dim[d].size;
    return part;
}

/* Returns the index of a tensor in the list of the header: as many kinds as there are before
   it. */
static int64_t entry_of(const wf_state *s, int64_t i, int bit, int64_t *known, int64_t *count)
{
    int64_t at;

    for (; *known < i; ++*known)
        for (int b = 0; b < WF_INDEX_KINDS; b++)
            *count += s->index.tensor[*known].kinds >> b & 1;
    at = *count;
    for (int b = 0; b < bit; b++)
        at += s->index.tensor[i].kinds >> b & 1;
    return at;
}

wf_status wf_save_full_parts(wf_par_saver *s, wf_error *error)
{
    int64_t known = 0, before = 0;
    wf_file file;
    wf_status status = wf_saver_file(s, -1, WF_FILE_WRITE, &file, error);

    if (status != WF_OK)
        return status;
    for (int64_t i = 0; i < s->pieces.count && status == WF_OK; i++) {
        const wf_piece *piece = &s->pieces.piece[i];
        wf_part whole = whole_of(&s->state.index.tensor[piece->i]);
        int64_t entry = entry_of(&s->state, piece->i, piece->bit, &known, &before);
        wf_piece_sums sums = {.digest = 0};
        const void *values = wf_saver_data(s, piece);

        status = wf_piece_sum(piece, &s->state, values, &sums, error);
        s->sum[WF_SUM_DIGEST] += sums.digest;
        if (status == WF_OK)
            status = wf_part_write(&piece->part, &whole, values, sizeof(float), &file,
                                   s->header_bytes + s->header.entry[entry].begin, error);
    }
    return close_file(&file, true, status, error);
}

static wf_status checksum_of(const wf_file *file, int64_t at, int64_t bytes, char *room,
                             uint64_t *checksum, wf_error *error)
{
    wf_checksum_stream *stream = wf_checksum_begin();
    wf_status status =
        stream ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for a checksum");

    for (int64_t from = 0; from < bytes && status == WF_OK; from += CHUNK) {
        size_t n = (size_t)(bytes - from < CHUNK ? bytes - from : CHUNK);

        status = wf_file_read(file, room, n, at + from, error);
        if (status == WF_OK)
            wf_checksum_add(stream, room, n);
    }
    *checksum = wf_checksum_end(stream);
    return status;
}

wf_status wf_save_full_checksums(wf_par_saver *s, wf_error *error)
{
    char *room = malloc(CHUNK);
    int64_t ranks = wf_mesh_ranks(s->par->mesh);
    wf_file file;
    wf_status status =
        room ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory to read a checkpoint");

    if (status == WF_OK)
        status = wf_saver_file(s, -1, WF_FILE_READ, &file, error);
    if (status == WF_OK) {
        for (int64_t i = wf_context_rank(s->par->ctx); i < s->sums && status == WF_OK;
             i += ranks)
            status = checksum_of(&file, s->header_bytes + s->header.entry[i].begin,
                                 s->header.entry[i].end - s->header.entry[i].begin, room,
                                 &s->sum[i], error);
        status = close_file(&file, false, status, error);
    }
    free(room);
    return status;
}

/* Rank 0 has all checksums. */
wf_status wf_save_full_header(wf_par_saver *s, wf_error *error)
{
    char *header;
    size_t n;
    wf_file file;
    wf_status status;

    for (int64_t i = 0; i < s->header.count; i++)
        wf_checksum_print(s->sum[i], s->header.checksum[i]);
    status = wf_header_format(&s->header, &header, &n, error);
    if (status != WF_OK)
        return status;
    status = wf_saver_file(s, -1, WF_FILE_WRITE, &file, error);
    if (status == WF_OK) {
        status = wf_file_write(&file, header, n, 0, error);
        status = close_file(&file, true, status, error);
    }
    s->total[WF_SUM_FILES] = 1;
    s->total[WF_SUM_BYTES] =
        n + (uint64_t)(s->header.count ? s->header.entry[s->header.count - 1].end : 0);
    s->total[WF_SUM_CHECKSUM] =
        wf_checksum_file(0, (int64_t)s->total[WF_SUM_BYTES], wf_checksum(header, n));
    free(header);
    return status;
}
