/* apps/gpt_data/pack.c - gpt_data pack: documents into windows of the length that is trained
   on. */
#include "nn/dataset/megatron_writer.h"
#include "nn/dataset/packing.h"
#include "nn/dataset/source.h"
#include "apps/gpt_data/commands.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PADDING = 0 }; /* an id that no token attends to, and that is not trained on */

typedef struct job {
    const app_gpt_data_request *q;
    wf_dataset_source source;
    int64_t *begin; /* [pieces] */
    int32_t *length;
    int64_t pieces, room;
    int64_t documents, cut;   /* those that are cut are counted once */
    int64_t trained, padding; /* tokens */
    wf_dataset_packing packing;
    wf_megatron_writer *writer, *mask;
    int32_t *ids, *marks; /* [seq_len] */
} job;

static wf_status add_piece(job *j, int64_t begin, int64_t length, wf_error *error)
{
    if (j->pieces == j->room) {
        int64_t room = 2 * j->room + 1024;
        int64_t *begins = realloc(j->begin, (size_t)room * sizeof *begins);
        int32_t *lengths;

        j->begin = begins ? begins : j->begin;
        lengths = begins ? realloc(j->length, (size_t)room * sizeof *lengths) : NULL;
        if (!lengths)
            return wf_error_set(error, WF_ENOMEM, "out of memory: where documents begin");
        j->length = lengths;
        j->room = room;
    }
    j->begin[j->pieces] = begin;
    j->length[j->pieces++] = (int32_t)length;
    return WF_OK;
}

/* A document that is longer than a window is refused, or several pieces. */
static wf_status add_document(job *j, int64_t number, int64_t begin, int64_t end,
                              wf_error *error)
{
    int64_t most = j->q->seq_len;

    if (begin == end)
        return WF_OK;
    if (end - begin > most && !j->q->cuts)
        return wf_error_set(error, WF_EINVAL,
                            "document %" PRId64 " of %s has %" PRId64
                            " tokens, and a window %" PRId64
                            ": give a greater --seq-len, or --long cut",
                            number, j->q->files[0], end - begin, most);
    j->documents++;
    j->cut += end - begin > most;
    for (; begin < end && error->code == WF_OK; begin += most)
        add_piece(j, begin, end - begin < most ? end - begin : most, error);
    return error->code;
}

static wf_status list_documents(job *j, wf_error *error)
{
    const wf_megatron_documents *d = &j->source.part->file.documents;
    int64_t begin = 0, end;

    for (int64_t i = 1; i <= d->index.documents; i++) {
        if (wf_megatron_document_at(d, i, &end, error) != WF_OK)
            return error->code;
        if (end < begin)
            return wf_error_set(error, WF_EDATA,
                                "%s: document %" PRId64 " begins before the one before it",
                                d->name, i);
        if (add_document(j, i - 1, begin, end, error) != WF_OK)
            return error->code;
        begin = end;
    }
    return WF_OK;
}

/* count tokens of ids and marks are a document */
static wf_status write_piece(job *j, int64_t count, wf_error *error)
{
    if (wf_megatron_writer_add(j->writer, j->ids, count, error) == WF_OK &&
        wf_megatron_writer_end_document(j->writer, error) == WF_OK &&
        wf_megatron_writer_add(j->mask, j->marks, count, error) == WF_OK)
        wf_megatron_writer_end_document(j->mask, error);
    return error->code;
}

static wf_status copy_piece(job *j, int64_t piece, wf_error *error)
{
    int64_t count = j->length[piece], begin = j->begin[piece];

    if (wf_dataset_source_read(&j->source, begin, count, j->ids, error) != WF_OK ||
        wf_dataset_source_read_mask(&j->source, begin, count, j->marks, error) != WF_OK)
        return error->code;
    j->marks[0] = 0; /* nothing of its document is before it */
    for (int64_t i = 0; i < count; i++)
        j->trained += j->marks[i];
    return write_piece(j, count, error);
}

static wf_status pad(job *j, int64_t count, wf_error *error)
{
    for (int64_t i = 0; i < count; i++) {
        j->ids[i] = PADDING;
        j->marks[i] = 0;
    }
    j->padding += count;
    return count ? write_piece(j, count, error) : WF_OK;
}

/* One token more than the windows have: the target of the last one, which is none. */
static wf_status write_windows(job *j, wf_error *error)
{
    const wf_dataset_packing *p = &j->packing;

    for (int64_t w = 0; w < p->windows && error->code == WF_OK; w++) {
        int64_t left = j->q->seq_len;

        for (int64_t i = p->first[w]; i < p->first[w + 1] && error->code == WF_OK; i++) {
            copy_piece(j, p->piece[i], error);
            left -= j->length[p->piece[i]];
        }
        if (error->code == WF_OK)
            pad(j, left, error);
    }
    return error->code == WF_OK ? pad(j, 1, error) : error->code;
}

static int64_t vocabulary_of(const wf_token_file *file)
{
    return file->type == WF_TOKEN_U8    ? 1 << 8
           : file->type == WF_TOKEN_U16 ? 1 << 16
                                        : INT32_MAX;
}

static wf_status write_pairs(job *j, const char *mask, wf_error *error)
{
    if (wf_megatron_writer_open(j->q->output, vocabulary_of(&j->source.part->file), &j->writer,
                                error) == WF_OK &&
        wf_megatron_writer_open(mask, 2, &j->mask, error) == WF_OK &&
        write_windows(j, error) == WF_OK) {
        wf_megatron_writer_finish(j->writer, j->mask, error);
        j->writer = j->mask = NULL;
    }
    wf_megatron_writer_discard(j->mask);
    wf_megatron_writer_discard(j->writer);
    return error->code;
}

static wf_status open_source(job *j, wf_error *error)
{
    char name[4096], *file = name;
    const wf_dataset_source_files files = {.name = "documents", .file = &file, .count = 1};

    if (snprintf(name, sizeof name, "%s.idx", j->q->files[0]) >= (int)sizeof name)
        return wf_error_set(error, WF_EINVAL, "pack: the name is too long");
    return wf_dataset_source_open(&files, "pack", (wf_token_count){INT32_MAX, true}, &j->source,
                                  error);
}

static wf_status pack(job *j, wf_error *error)
{
    char mask[4096];

    if (snprintf(mask, sizeof mask, "%s.loss", j->q->output) >= (int)sizeof mask)
        return wf_error_set(error, WF_EINVAL, "--output: the name is too long");
    j->ids = calloc((size_t)j->q->seq_len, sizeof *j->ids);
    j->marks = calloc((size_t)j->q->seq_len, sizeof *j->marks);
    if (!j->ids || !j->marks)
        return wf_error_set(error, WF_ENOMEM, "out of memory: a window");
    if (list_documents(j, error) == WF_OK &&
        wf_dataset_packing_new(j->length, j->pieces, j->q->seq_len, &j->packing, error) ==
            WF_OK)
        write_pairs(j, mask, error);
    return error->code;
}

static void report(const job *j)
{
    int64_t windows = j->packing.windows, tokens = windows * j->q->seq_len + 1;

    printf("%s.bin: %" PRId64 " windows of %" PRId64 " tokens, %" PRId64 " documents",
           j->q->output, windows, j->q->seq_len, j->documents);
    if (j->q->cuts)
        printf(", of which %" PRId64 " are cut", j->cut);
    printf(", %" PRId64 " tokens are trained, %" PRId64 " (%.1f %%) are padding\n", j->trained,
           j->padding, 100 * (double)j->padding / (double)tokens);
}

wf_status app_gpt_data_pack(const app_gpt_data_request *q, wf_error *error)
{
    job j = {.q = q};

    if (open_source(&j, error) == WF_OK && pack(&j, error) == WF_OK)
        report(&j);
    free(j.begin);
    free(j.length);
    free(j.ids);
    free(j.marks);
    wf_dataset_packing_free(&j.packing);
    wf_dataset_source_close(&j.source);
    return error->code;
}
