/*
 * parallel/checkpoint/load.c - from any layout to any layout: each rank reads what it holds.
 *
 * Where the saved parts lie follows from (shape, saved mesh, saved layout); of each part that
 * overlaps its own a rank reads the runs that they have in common.
 */
#include "core/host_data.h"
#include "parallel/checkpoint/agree.h"
#include "parallel/checkpoint/state.h"
#include "parallel/checkpoint/read.h"
#include "parallel/measure.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct loader {
    const wf_par_checkpoint *from;
    wf_state *state;
    wf_error *error;
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

static wf_status read_tensor(wf_reader *reader, int64_t saved, int bit, const wf_part *part,
                             wf_tensor *t, wf_error *error)
{
    wf_host_data view;
    void *to = wf_data_write(t, false, &view);
    wf_status status = to ? wf_reader_read(reader, saved, bit, part, to, error)
                          : wf_error_set(error, WF_ENOMEM, "no memory to load a tensor");

    wf_data_close(&view);
    return status;
}

/* What this rank holds, tensor by tensor. */
static wf_status read_all(loader *l)
{
    wf_reader reader;
    wf_status status = wf_reader_open(&reader, l->from, l->error);

    if (l->from->index.kind == WF_INDEX_LOCAL)
        reader.rank = wf_context_rank(l->state->trained.par->ctx);
    for (int64_t i = 0; i < l->state->index.count && status == WF_OK; i++) {
        int64_t saved = wf_index_find(&l->from->index, l->state->index.tensor[i].path) -
                        l->from->index.tensor;

        for (int bit = 0; bit < WF_INDEX_KINDS && status == WF_OK; bit++) {
            wf_tensor *t = l->state->tensor[i][bit];
            wf_part part = t ? wf_part_of_tensor(t) : (wf_part){.ndim = 0};

            if (t && wf_part_count(&part))
                status = read_tensor(&reader, saved, bit, &part, t, l->error);
        }
    }
    wf_reader_close(&reader);
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
