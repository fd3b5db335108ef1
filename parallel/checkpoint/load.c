/*
 * parallel/checkpoint/load.c - from any layout to any layout: each rank reads what it holds.
 *
 * Where the saved parts lie follows from (shape, saved mesh, saved layout); of each part that
 * overlaps its own a rank reads the runs that they have in common.
 */
#include "parallel/checkpoint/agree.h"
#include "parallel/checkpoint/commit.h"
#include "parallel/checkpoint/pieces.h"
#include "parallel/checkpoint/verify.h"
#include "parallel/measure.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHORT_RUN = 4096 }; /* bytes below which runs are read together with what lies between */

/* A data file that is open, with its header. */
typedef struct source {
    int64_t rank; /* -1: none */
    char path[WF_CKPT_PATH];
    wf_file file;
    wf_safetensors header;
} source;

typedef struct loader {
    const wf_par_checkpoint *from;
    wf_state *state;
    wf_error *error;
    source *source; /* [sources], found by number of the file modulo sources */
    int64_t sources;

    /* the tensor that is being read */
    const wf_index_tensor *saved;
    int64_t number; /* of it in the saved index */
    int bit;
    wf_tensor *to;
    wf_part mine;
} loader;

static wf_status differs(const loader *l, const char *path, const char *what)
{
    return wf_error_set(
        l->error, WF_EINVAL,
        "%s cannot be loaded into this model: %s %s; use the options that it was "
        "saved with",
        l->from->path, path, what);
}

static wf_status check_tensor(const loader *l, const wf_index_tensor *mine)
{
    const wf_index_tensor *saved = wf_index_find(&l->from->index, mine->path);

    if (!saved)
        return differs(l, mine->path, "is not in it");
    if (saved->ndim != mine->ndim)
        return differs(l, mine->path, "has another number of dims in it");
    for (int d = 0; d < mine->ndim; d++)
        if (saved->dim[d].size != mine->dim[d].size) {
            char text[128];

            snprintf(text, sizeof text, "has %" PRId64 " in dim %d there and %" PRId64 " here",
                     saved->dim[d].size, d, mine->dim[d].size);
            return differs(l, mine->path, text);
        }
    if (saved->kinds != mine->kinds)
        return differs(l, mine->path, "has the state of another optimizer in it, or is frozen");
    return WF_OK;
}

static bool same_layouts(const wf_index *a, const wf_index *b)
{
    bool same = strcmp(a->strategy, b->strategy) == 0 && a->mesh.n_axes == b->mesh.n_axes;

    for (int i = 0; same && i < a->mesh.n_axes; i++)
        same = strcmp(a->mesh.name[i], b->mesh.name[i]) == 0 &&
               a->mesh.size[i] == b->mesh.size[i] && a->mesh.fine[i] == b->mesh.fine[i];
    for (int64_t i = 0; same && i < a->count; i++) {
        const wf_saved_layout *x = &a->tensor[i].layout, *y = &b->tensor[i].layout;

        for (int d = 0; same && d < a->tensor[i].ndim; d++)
            same =
                x->n_axes[d] == y->n_axes[d] &&
                memcmp(x->axis[d], y->axis[d], (size_t)x->n_axes[d] * sizeof *x->axis[d]) == 0;
    }
    return same;
}

static char *print_mesh(const wf_index *index, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s", index->strategy);

    for (int a = 0; a < index->mesh.n_axes && n < size; a++)
        n += (size_t)snprintf(text + n, size - n, " %s %d", index->mesh.name[a],
                              index->mesh.size[a]);
    return text;
}

/* The same on every rank, without looking at more than the index. */
static wf_status check_model(const loader *l)
{
    const wf_index *mine = &l->state->index, *saved = &l->from->index;
    char a[256], b[256];
    wf_status status = WF_OK;

    for (int64_t i = 0; i < mine->count && status == WF_OK; i++)
        status = check_tensor(l, &mine->tensor[i]);
    for (int64_t i = 0; i < saved->count && status == WF_OK; i++)
        if (!wf_index_find(mine, saved->tensor[i].path))
            status = differs(l, saved->tensor[i].path, "is in it and not in the model");
    if (status == WF_OK && saved->kind == WF_INDEX_LOCAL && !same_layouts(mine, saved))
        return wf_error_set(
            l->error, WF_EINVAL,
            "%s was saved as local, so it fits the layout that it was saved with "
            "alone, which is %s; this one is %s: load it there and save it as "
            "sharded, which fits any",
            l->from->path, print_mesh(saved, a, sizeof a), print_mesh(mine, b, sizeof b));
    return status;
}

/* Ranks take turns with the headers of all files. */
static wf_status check_headers(loader *l, wf_par *par)
{
    int64_t ranks = wf_mesh_ranks(par->mesh);
    uint64_t sum = 0, one = 0;
    wf_status status = WF_OK;

    for (int64_t r = wf_context_rank(par->ctx); r < l->from->index.files && status == WF_OK;
         r += ranks) {
        status = wf_checkpoint_header(l->from, r, &one, l->error);
        sum += one;
    }
    status = wf_agree(par, 1, &sum, l->error);
    if (status == WF_OK && sum != l->from->index.files_checksum)
        return wf_checkpoint_mixed(l->from, l->error);
    return status;
}

static void close_source(source *s)
{
    if (s->rank < 0)
        return;
    wf_safetensors_close(&s->header);
    wf_file_close(&s->file, NULL);
    s->rank = -1;
}

static source *source_of(loader *l, int64_t rank)
{
    source *s = &l->source[rank % l->sources];

    if (s->rank == rank)
        return s;
    close_source(s);
    if (wf_checkpoint_file(l->from, rank, s->path, &s->file, &s->header, l->error) != WF_OK)
        return NULL;
    s->rank = rank;
    return s;
}

/* Runs of a saved part that this rank holds. */
typedef struct transfer {
    const loader *l;
    const source *from;
    int64_t at;          /* of the tensor's bytes in the file */
    int64_t runs, first; /* how many there are; the first byte, and the one behind the last */
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
    float *to = (float *)t->l->to->data + at_mine;
    int64_t from = at_saved * (int64_t)sizeof(float);

    if (!t->span)
        return wf_file_read(&t->from->file, to, bytes, t->at + from, t->l->error);
    memcpy(to, t->span + (from - t->first), bytes);
    return WF_OK;
}

/* Many short runs cost more than what lies between them. */
static wf_status read_runs(transfer *t, const wf_part *part)
{
    const loader *l = t->l;
    wf_status status;

    wf_part_runs(part, &l->mine, count_run, t);
    if (t->runs > 1 && t->elements / t->runs < SHORT_RUN / (int64_t)sizeof(float)) {
        t->span = malloc((size_t)(t->end - t->first));
        if (!t->span)
            return wf_error_set(l->error, WF_ENOMEM, "no memory to read %s", t->from->path);
        status = wf_file_read(&t->from->file, t->span, (size_t)(t->end - t->first),
                              t->at + t->first, l->error);
        if (status != WF_OK) {
            free(t->span);
            return status;
        }
    }
    status = wf_part_runs(part, &l->mine, read_run, t);
    free(t->span);
    return status;
}

static wf_status check_entry(const loader *l, const source *s, const wf_safetensors_entry *e,
                             const char *name, const wf_part *part)
{
    bool good = e && e->dtype == WF_ST_F32 && e->ndim == part->ndim;

    for (int d = 0; good && d < part->ndim; d++)
        good = e->shape[d] == part->local[d];
    return good ? WF_OK
                : wf_error_set(l->error, WF_EDATA,
                               "%s: tensor \"%.200s\" is missing, or has not the shape that "
                               "its index says",
                               s->path, name);
}

static wf_status read_part(void *arg, const int *coordinate, const wf_part *part)
{
    loader *l = arg;
    const wf_index *index = &l->from->index;
    int writer[WF_MAX_AXES];
    char name[WF_INDEX_NAME + 2];
    const wf_safetensors_entry *e;
    transfer t = {.l = l};
    wf_status status;

    memcpy(writer, coordinate, sizeof writer);
    if (index->kind == WF_INDEX_FULL)
        t.from = source_of(l, 0);
    else if (index->kind == WF_INDEX_LOCAL)
        t.from = source_of(l, wf_saved_mesh_rank(&index->mesh, l->state->coordinate));
    else
        t.from = source_of(l, wf_saved_writer(&index->mesh, &l->saved->layout, l->saved->ndim,
                                              l->number, writer));
    if (!t.from)
        return l->error->code;
    e = wf_safetensors_find(&t.from->header, wf_index_name(l->saved->path, l->bit, name));
    status = check_entry(l, t.from, e, name, part);
    if (status != WF_OK)
        return status;
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

static wf_status read_tensor(loader *l, int64_t i, int bit)
{
    const wf_index *index = &l->from->index;
    wf_part whole;

    l->saved = wf_index_find(index, l->state->index.tensor[i].path);
    l->number = l->saved - index->tensor;
    l->bit = bit;
    l->to = l->state->tensor[i][bit];
    l->mine = wf_part_of_tensor(l->to);
    if (!wf_part_count(&l->mine))
        return WF_OK;
    whole = index->kind == WF_INDEX_FULL ? whole_of(l->saved) : l->mine;
    if (index->kind != WF_INDEX_SHARDED)
        return read_part(l, l->state->coordinate, &whole);
    return wf_saved_parts_visit(&index->mesh, &l->saved->layout, l->saved->ndim, l->saved->dim,
                                &l->mine, read_part, l);
}

static wf_status read_all(loader *l)
{
    wf_status status = WF_OK;

    l->sources = l->from->index.files < 64 ? l->from->index.files : 64;
    l->source = calloc((size_t)l->sources + 1, sizeof *l->source);
    if (!l->source)
        return wf_error_set(l->error, WF_ENOMEM, "no memory to load a checkpoint");
    for (int64_t i = 0; i < l->sources; i++)
        l->source[i].rank = -1;
    for (int64_t i = 0; i < l->state->index.count && status == WF_OK; i++)
        for (int bit = 0; bit < WF_INDEX_KINDS && status == WF_OK; bit++)
            if (l->state->tensor[i][bit])
                status = read_tensor(l, i, bit);
    for (int64_t i = 0; i < l->sources; i++)
        close_source(&l->source[i]);
    free(l->source);
    return status;
}

/* The digest of what was read; where it is another one, which tensor is it? */
static wf_status check_values(loader *l, const wf_par_trainer *trainer, wf_par *par)
{
    const wf_par_trained t = wf_par_trainer_trained(trainer);
    int64_t ranks = wf_mesh_ranks(par->mesh);
    bool local = l->from->index.kind == WF_INDEX_LOCAL; /* has copies that no digest counts */
    uint64_t digest;
    wf_status status = wf_par_digest(par, t.count, t.parameter, t.optimizer, &digest);

    if (status != WF_OK)
        return wf_error_set(l->error, status, "%s", wf_context_error(par->ctx)->text);
    if (digest == l->from->index.digest && !local)
        return WF_OK;
    for (int64_t r = wf_context_rank(par->ctx); r < l->from->index.files && status == WF_OK;
         r += ranks)
        status = wf_checkpoint_contents(l->from, r, l->error);
    status = wf_agree(par, 0, NULL, l->error);
    if (status == WF_OK && digest != l->from->index.digest)
        return wf_error_set(l->error, WF_EDATA,
                            "%s: what was loaded has digest %016" PRIx64 " and %016" PRIx64
                            " was saved, though its files have their checksums",
                            l->from->path, digest, l->from->index.digest);
    return status;
}

wf_status wf_par_checkpoint_load(wf_par_trainer *trainer, const wf_par_checkpoint *checkpoint,
                                 wf_error *error)
{
    wf_par *par = wf_par_trainer_trained(trainer).par;
    wf_error mine = {WF_OK, ""};
    wf_state state;
    loader l = {.from = checkpoint, .state = &state, .error = &mine};
    wf_status status = wf_state_open(&state, trainer, &mine);

    status = wf_agree(par, 0, NULL, &mine);
    if (status == WF_OK)
        status = check_model(&l);
    if (status == WF_OK)
        status = check_headers(&l, par);
    if (status == WF_OK) {
        read_all(&l);
        status = wf_agree(par, 0, NULL, &mine);
    }
    if (status == WF_OK)
        status = check_values(&l, trainer, par);
    if (status == WF_OK)
        wf_nn_optimizer_resume(state.trained.optimizer, checkpoint->index.step);
    wf_state_close(&state);
    return status == WF_OK ? WF_OK : wf_error_set(error, mine.code, "%s", mine.text);
}
