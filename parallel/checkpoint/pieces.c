/* parallel/checkpoint/pieces.c - what a rank writes; see the header. */
#include "parallel/checkpoint/pieces_internal.h"
#include "core/numerics/digest.h"
#include "core/host_data.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The position of a part in a held tensor, where it is contiguous there. */
typedef struct position {
    int64_t at;
    int runs;
} position;

static wf_status note_run(void *arg, int64_t at_held, int64_t at_piece, int64_t n)
{
    position *p = arg;

    (void)at_piece, (void)n;
    if (p->runs++)
        return WF_EINVAL; /* two are enough to know */
    p->at = at_held;
    return WF_OK;
}

static bool is_one_run(const wf_piece *piece, int64_t *at)
{
    wf_part held = wf_part_of_tensor(piece->tensor);
    position p = {.runs = 0};

    wf_part_runs(&held, &piece->part, note_run, &p);
    *at = p.at;
    return p.runs == 1;
}

const char *wf_piece_data(const wf_piece *piece)
{
    const float *data = piece->tensor->data;
    bool far =
        wf_context_device(piece->tensor->ctx)->memory != NULL || piece->tensor->dtype != WF_F32;
    int64_t at;

    return !far && is_one_run(piece, &at) ? (const char *)(data + at) : NULL;
}

static void add(wf_pieces *p, const wf_state *s, wf_index_kind kind, int64_t i, int bit)
{
    const wf_tensor *t = s->tensor[i][bit];
    wf_piece *piece = &p->piece[p->count];
    bool local = kind == WF_INDEX_LOCAL;
    wf_part held = t ? wf_part_of_tensor(t) : (wf_part){.ndim = 0};

    if (!t || wf_tensor_is_fake(t) || (!local && !wf_state_writes(s, i)))
        return;
    *piece = (wf_piece){.tensor = t,
                        .part = local ? held : wf_state_part(s, i),
                        .i = i,
                        .bit = bit,
                        .counts = !local || wf_state_counts_here(s, i, bit),
                        .at = p->bytes};
    piece->bytes = wf_part_count(&piece->part) * (int64_t)sizeof(float);
    if (!piece->bytes)
        return;
    p->bytes += piece->bytes;
    if (!wf_piece_data(piece) && piece->bytes > p->largest)
        p->largest = piece->bytes;
    p->count++;
}

wf_status wf_pieces_open(wf_pieces *p, const wf_state *s, wf_index_kind kind, wf_error *error)
{
    *p = (wf_pieces){.count = 0};
    p->piece = calloc((size_t)s->index.count * WF_INDEX_KINDS + 1, sizeof *p->piece);
    if (!p->piece)
        return wf_error_set(error, WF_ENOMEM, "no memory for the pieces of a checkpoint");
    for (int64_t i = 0; i < s->index.count; i++)
        for (int bit = 0; bit < WF_INDEX_KINDS; bit++)
            add(p, s, kind, i, bit);
    return WF_OK;
}

void wf_pieces_close(wf_pieces *p)
{
    free(p->piece);
    *p = (wf_pieces){.count = 0};
}

typedef struct cut {
    const float *from;
    float *to;
    void (*non_temporal)(const void *from, void *to,
                         size_t bytes); /* NULL: through the caches */
} cut;

static wf_status copy_run(void *arg, int64_t at_held, int64_t at_piece, int64_t n)
{
    const cut *c = arg;

    size_t bytes = (size_t)n * sizeof(float);

    if (c->non_temporal)
        c->non_temporal(c->from + at_held, c->to + at_piece, bytes);
    else
        memcpy(c->to + at_piece, c->from + at_held, bytes);
    return WF_OK;
}

void wf_piece_copy(const wf_piece *piece, char *to, bool soon)
{
    wf_part held = wf_part_of_tensor(piece->tensor);
    wf_host_data view;
    cut c = {wf_data_read_f32(piece->tensor, &view), (float *)(void *)to,
             soon ? NULL : wf_context_device(piece->tensor->ctx)->copy_non_temporal};

    if (c.from)
        wf_part_runs(&held, &piece->part, copy_run, &c);
    wf_data_close(&view);
}

static bool is_finite(const float *x, int64_t n)
{
    uint32_t bad = 0;

    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;

        memcpy(&bits, x + i, sizeof bits);
        bad |= (bits & 0x7FFFFFFFu) >= 0x7F800000u;
    }
    return !bad;
}

/* Slab by slab, so that each is read from memory once. */
wf_status wf_piece_sum(const wf_piece *piece, const wf_state *s, const char *data,
                       wf_piece_sums *sums, wf_error *error)
{
    const wf_index_tensor *t = &s->index.tensor[piece->i];
    const float *x = (const float *)(const void *)data;
    int64_t size[WF_MAX_DIMS], rows = wf_part_slab_rows(&piece->part);
    uint64_t path = wf_digest_path(t->path);
    wf_checksum_stream *stream = wf_checksum_begin();
    bool finite = true;

    if (!stream)
        return wf_error_set(error, WF_ENOMEM, "no memory for a checksum");
    for (int d = 0; d < t->ndim; d++)
        size[d] = t->dim[d].size;
    sums->digest = 0;
    for (int64_t row = 0; row < (t->ndim ? piece->part.local[0] : 1); row += rows) {
        wf_part slab = wf_part_slab(&piece->part, row, rows);
        int64_t n = wf_part_count(&slab);

        if (piece->counts)
            sums->digest += wf_digest_part(path, (uint32_t)piece->bit, t->ndim, size,
                                           slab.start, slab.local, x);
        finite = finite && (piece->bit != 0 || is_finite(x, n));
        wf_checksum_add(stream, x, (size_t)n * sizeof *x);
        x += n;
    }
    sums->checksum = wf_checksum_end(stream);
    return finite ? WF_OK
                  : wf_error_set(error, WF_ENONFINITE,
                                 "parameter %s has values that are not finite", t->path);
}

static bool add_entry(wf_header *h, const char *path, int bit, int ndim)
{
    wf_safetensors_entry *e = &h->entry[h->count];
    char name[WF_INDEX_FULL_NAME];
    char **pair = h->metadata + 2 * h->count;

    wf_index_name(path, bit, name);
    wf_checksum_print(0, h->checksum[h->count]);
    *e = (wf_safetensors_entry){.name = strdup(name), .dtype = WF_ST_F32, .ndim = ndim};
    pair[0] = strdup(name);
    pair[1] = h->checksum[h->count];
    h->count++;
    return e->name && pair[0];
}

static bool add_whole(wf_header *h, const wf_index_tensor *t)
{
    for (int bit = 0; bit < WF_INDEX_KINDS; bit++) {
        if (!(t->kinds >> bit & 1))
            continue;
        if (!add_entry(h, t->path, bit, t->ndim))
            return false;
        for (int d = 0; d < t->ndim; d++)
            h->entry[h->count - 1].shape[d] = t->dim[d].size;
    }
    return true;
}

static bool add_piece(wf_header *h, const wf_state *s, const wf_piece *piece)
{
    if (!add_entry(h, s->index.tensor[piece->i].path, piece->bit, piece->part.ndim))
        return false;
    memcpy(h->entry[h->count - 1].shape, piece->part.local,
           (size_t)piece->part.ndim * sizeof *piece->part.local);
    return true;
}

wf_status wf_header_open(wf_header *h, const wf_state *s, const wf_pieces *pieces,
                         wf_error *error)
{
    int64_t most = pieces ? pieces->count : s->index.count * WF_INDEX_KINDS;
    bool good;

    *h = (wf_header){.count = 0};
    h->entry = calloc((size_t)most + 1, sizeof *h->entry);
    h->checksum = calloc((size_t)most + 1, sizeof *h->checksum);
    h->metadata = calloc(2 * (size_t)most + 1, sizeof *h->metadata);
    good = h->entry && h->checksum && h->metadata;
    for (int64_t i = 0; good && i < (pieces ? pieces->count : s->index.count); i++)
        good = pieces ? add_piece(h, s, &pieces->piece[i]) : add_whole(h, &s->index.tensor[i]);
    return good ? WF_OK
                : wf_error_set(error, WF_ENOMEM, "no memory for the header of a checkpoint");
}

void wf_header_close(wf_header *h)
{
    for (int64_t i = 0; i < h->count; i++) {
        free(h->entry[i].name);
        free(h->metadata[2 * i]);
    }
    free(h->entry);
    free(h->checksum);
    free(h->metadata);
    *h = (wf_header){.count = 0};
}

wf_status wf_header_format(wf_header *h, char **bytes, size_t *n, wf_error *error)
{
    return wf_safetensors_format(h->count, h->entry, h->count, (const char *const *)h->metadata,
                                 bytes, n, error);
}

wf_status wf_header_checksum(const wf_safetensors *header, const char *file, const char *name,
                             uint64_t *checksum, wf_error *error)
{
    const char *text = wf_safetensors_metadata(header, name);

    if (text && wf_checksum_parse(text, checksum))
        return WF_OK;
    return wf_error_set(error, WF_EDATA, "%s: tensor \"%.80s\" has no checksum", file, name);
}
