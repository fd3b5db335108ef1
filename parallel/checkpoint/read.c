/* parallel/checkpoint/read.c - parts of tensors from the files of a checkpoint; see the
   header. */
#include "parallel/checkpoint/read_internal.h"
#include "parallel/checkpoint/pieces_internal.h"
#include <stdlib.h>
#include <string.h>

enum { SHORT_RUN = 4096 }; /* bytes below which runs are read together with what lies between */

/* A data file that is open, with its header. */
typedef struct wf_reader_source {
    int64_t rank; /* -1: none */
    wf_file file;
    wf_safetensors header;
} source;

wf_status wf_reader_open(wf_reader *r, const wf_par_checkpoint *from, wf_error *error)
{
    int64_t files = from->index.files;

    *r = (wf_reader){.from = from, .rank = -1, .sources = files < 64 ? files : 64};
    r->source = calloc((size_t)r->sources + 1, sizeof *r->source);
    if (!r->source)
        return wf_error_set(error, WF_ENOMEM, "no memory to read a checkpoint");
    for (int64_t i = 0; i < r->sources; i++)
        r->source[i].rank = -1;
    return WF_OK;
}

static void close_source(source *s)
{
    if (s->rank < 0)
        return;
    wf_safetensors_close(&s->header);
    wf_file_close(&s->file, NULL);
    s->rank = -1;
}

void wf_reader_close(wf_reader *r)
{
    for (int64_t i = 0; r->source && i < r->sources; i++)
        close_source(&r->source[i]);
    free(r->source);
    r->source = NULL;
}

/* A tensor that is being read. */
typedef struct reading {
    wf_reader *reader;
    int64_t number; /* its number in the index */
    const wf_index_tensor *saved;
    int bit;
    const wf_part *mine;
    float *to;
    wf_error *error;
    uint64_t *stated; /* NULL, or where its checksum goes; and its file */
    int64_t *file;
} reading;

static source *source_of(reading *l, int64_t rank)
{
    wf_reader *r = l->reader;
    source *s = &r->source[rank % r->sources];

    if (s->rank == rank)
        return s;
    close_source(s);
    if (wf_checkpoint_file(r->from, rank, &s->file, &s->header, l->error) != WF_OK)
        return NULL;
    s->rank = rank;
    return s;
}

/* Runs of a saved part that this rank holds. */
typedef struct transfer {
    const reading *l;
    const source *from;
    int64_t at;          /* position of the tensor's bytes in the file */
    int64_t runs, first; /* their number; the first byte, and the one after the last */
    int64_t end, elements;
    char *span; /* [first, end) where it was read at once */
} transfer;

static wf_status count_run(void *arg, int64_t at_saved, int64_t at_mine, int64_t n)
{
    transfer *t = arg;

    (void)at_mine;
    if (!t->runs++)
        t->first = at_saved * (int64_t)sizeof(float);
    t->end = (at_saved + n) * (int64_t)sizeof(float);
    t->elements += n;
    return WF_OK;
}

static wf_status read_run(void *arg, int64_t at_saved, int64_t at_mine, int64_t n)
{
    const transfer *t = arg;
    size_t bytes = (size_t)n * sizeof(float);
    float *to = t->l->to + at_mine;
    int64_t from = at_saved * (int64_t)sizeof(float);

    if (!t->span)
        return wf_file_read(&t->from->file, to, bytes, t->at + from, t->l->error);
    memcpy(to, t->span + (from - t->first), bytes);
    return WF_OK;
}

/* Many short runs cost more than what lies between them. */
static wf_status read_runs(transfer *t, const wf_part *part)
{
    const reading *l = t->l;
    wf_status status;

    wf_part_runs(part, l->mine, count_run, t);
    if (t->runs > 1 && t->elements / t->runs < SHORT_RUN / (int64_t)sizeof(float)) {
        t->span = malloc((size_t)(t->end - t->first));
        if (!t->span)
            return wf_error_set(l->error, WF_ENOMEM, "no memory to read %s",
                                t->from->file.path);
        status = wf_file_read(&t->from->file, t->span, (size_t)(t->end - t->first),
                              t->at + t->first, l->error);
        if (status != WF_OK) {
            free(t->span);
            return status;
        }
    }
    status = wf_part_runs(part, l->mine, read_run, t);
    free(t->span);
    return status;
}

static wf_status check_entry(const reading *l, const source *s, const wf_safetensors_entry *e,
                             const char *name, const wf_part *part)
{
    const char *path = s->file.path;
    bool good = e && e->dtype == WF_ST_F32 && e->ndim == part->ndim;

    for (int d = 0; good && d < part->ndim; d++)
        good = e->shape[d] == part->local[d];
    if (good)
        return WF_OK;
    /* the headers are those that were saved, so it is this run that is another one */
    if (l->reader->from->index.kind == WF_INDEX_LOCAL)
        return wf_error_set(
            l->error, WF_EINVAL,
            "%s was saved as local, and rank %lld holds another part of %.200s "
            "now: a local checkpoint fits the mesh, the strategy and the dtype "
            "of parameters that it was saved with alone; load it there and save "
            "it as sharded, which fits any",
            l->reader->from->path, (long long)l->reader->rank, name);
    return wf_error_set(l->error, WF_EDATA,
                        "%s: tensor \"%.200s\" is missing, or has not the shape that its index "
                        "says",
                        path, name);
}

/* The number of the file that has the part of these coordinates. */
static int64_t file_of(const reading *l, const int *coordinate)
{
    const wf_index *index = &l->reader->from->index;
    int writer[WF_MAX_AXES];

    if (index->kind != WF_INDEX_SHARDED)
        return index->kind == WF_INDEX_FULL ? 0 : l->reader->rank;
    memcpy(writer, coordinate, sizeof writer);
    return wf_saved_writer(&index->mesh, &l->saved->layout, l->saved->ndim, l->number, writer);
}

static wf_status read_part(void *arg, const int *coordinate, const wf_part *part)
{
    reading *l = arg;
    char name[WF_INDEX_FULL_NAME];
    const wf_safetensors_entry *e;
    int64_t file = file_of(l, coordinate);
    transfer t = {.l = l, .from = source_of(l, file)};
    wf_status status;

    if (!t.from)
        return l->error->code;
    e = wf_safetensors_find(&t.from->header, wf_index_name(l->saved->path, l->bit, name));
    status = check_entry(l, t.from, e, name, part);
    if (status != WF_OK)
        return status;
    if (l->stated) {
        *l->file = file;
        return wf_header_checksum(&t.from->header, t.from->file.path, name, l->stated,
                                  l->error);
    }
    t.at = t.from->header.data + e->begin;
    return read_runs(&t, part);
}

static wf_part whole_of(const wf_index_tensor *t)
{
    wf_part part = {.ndim = t->ndim};

    for (int d = 0; d < t->ndim; d++)
        part.local[d] = t->dim[d].size;
    return part;
}

/* Every saved part that overlaps the one that is wanted. */
static wf_status visit(reading *l)
{
    static const int nowhere[WF_MAX_AXES];
    const wf_reader *r = l->reader;
    const wf_index *index = &r->from->index;
    const wf_index_tensor *saved = l->saved;
    wf_part whole = whole_of(saved);

    if (index->kind == WF_INDEX_SHARDED)
        return wf_saved_parts_visit(&index->mesh, &saved->layout, saved->ndim, saved->dim,
                                    l->mine, read_part, l);
    if (index->kind == WF_INDEX_LOCAL && r->rank < 0)
        return wf_error_set(l->error, WF_EINVAL,
                            "%s was saved as local: only the layout that it was saved with can "
                            "read it",
                            r->from->path);
    return read_part(l, nowhere, index->kind == WF_INDEX_FULL ? &whole : l->mine);
}

wf_status wf_reader_read(wf_reader *r, int64_t i, int bit, const wf_part *part, float *to,
                         wf_error *error)
{
    reading l = {.reader = r,
                 .number = i,
                 .saved = &r->from->index.tensor[i],
                 .bit = bit,
                 .mine = part,
                 .to = to,
                 .error = error};

    return visit(&l);
}

wf_status wf_reader_stated(wf_reader *r, int64_t i, int bit, const wf_part *part,
                           uint64_t *checksum, int64_t *file, wf_error *error)
{
    reading l = {.reader = r,
                 .number = i,
                 .saved = &r->from->index.tensor[i],
                 .bit = bit,
                 .mine = part,
                 .error = error,
                 .stated = checksum,
                 .file = file};

    return visit(&l);
}

static bool same_part(const wf_part *a, const wf_part *b)
{
    for (int d = 0; d < a->ndim; d++)
        if (a->start[d] != b->start[d] || a->local[d] != b->local[d])
            return false;
    return true;
}

/* The only part that overlaps, if it is the same one. */
static wf_status compare_part(void *arg, const int *coordinate, const wf_part *part)
{
    (void)coordinate;
    return same_part(arg, part) ? WF_OK : WF_EINVAL;
}

bool wf_reader_is_saved(const wf_reader *r, int64_t i, const wf_part *part)
{
    const wf_index *index = &r->from->index;
    const wf_index_tensor *saved = &index->tensor[i];
    wf_part whole = whole_of(saved), wanted = *part;

    if (index->kind == WF_INDEX_SHARDED)
        return wf_saved_parts_visit(&index->mesh, &saved->layout, saved->ndim, saved->dim, part,
                                    compare_part, &wanted) == WF_OK;
    return index->kind == WF_INDEX_LOCAL || same_part(&whole, part);
}
