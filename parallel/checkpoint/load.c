/*
 * parallel/checkpoint/load.c - loads from any layout to any layout: each rank reads what it
 * holds.
 *
 * Where the saved parts lie follows from (shape, saved mesh, saved layout); of each part that
 * overlaps its own a rank reads the runs that they have in common. Two threads share the
 * tensors.
 *
 * Where every rank wants just the parts that were saved, the bytes that it read are checked
 * against their checksums; else the digest of the whole is compared, which costs more.
 */
#include "core/numerics/digest.h"
#include "core/host_data.h"
#include "mesh/comm/collective.h"
#include "parallel/agree_internal.h"
#include "core/files/checksum_internal.h"
#include "parallel/checkpoint/contents.h"
#include "parallel/checkpoint/load_internal.h"
#include "parallel/checkpoint/state_internal.h"
#include "parallel/shard/unshard_internal.h"
#include "parallel/train/train_internal.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

typedef struct loader {
    const wf_par_checkpoint *from;
    wf_state *state;
    wf_error *error;
    bool as_saved;        /* every part that is wanted is one that was saved */
    _Atomic int64_t next; /* tensor to be read: number in the index and kind */
} loader;

/* The tensor of the saved index that number i of this state is. */
static int64_t saved_number(const loader *l, int64_t i)
{
    const wf_index_tensor *mine = &l->state->index.tensor[i];

    return wf_index_find_kinds(&l->from->index, mine->path, mine->kinds) -
           l->from->index.tensor;
}

static bool wants_what_was_saved(const loader *l)
{
    const wf_reader reader = {.from = l->from};

    for (int64_t i = 0; l->state && i < l->state->index.count; i++)
        for (int bit = 0; bit < WF_INDEX_KINDS; bit++) {
            const wf_tensor *t = l->state->tensor[i][bit];
            wf_part part = t ? wf_part_of_tensor(t) : (wf_part){.ndim = 0};

            if (t && !wf_tensor_is_fake(t) && wf_part_count(&part) &&
                !wf_reader_is_saved(&reader, saved_number(l, i), &part))
                return false;
        }
    return true;
}

/* Checks the headers of all files, divided among the ranks, which agree on how tensors are to
   be checked. */
static wf_status check_headers(loader *l, wf_par *par)
{
    int64_t ranks = wf_mesh_ranks(par->mesh);
    uint64_t sums[2] = {0, !wants_what_was_saved(l)}, one = 0;
    wf_status status = WF_OK;

    wf_comm_at_files(wf_mesh_world(par->mesh), true);
    for (int64_t r = wf_context_rank(par->ctx); r < l->from->index.files && status == WF_OK;
         r += ranks) {
        status = wf_checkpoint_header(l->from, r, &one, l->error);
        sums[0] += one;
    }
    wf_comm_at_files(wf_mesh_world(par->mesh), false);
    status = wf_agree(par, 2, sums, l->error);
    l->as_saved = sums[1] == 0;
    if (status == WF_OK && sums[0] != l->from->index.files_checksum)
        return wf_checkpoint_mixed(l->from, l->error);
    return status;
}

/* A thread that reads tensors, and what came of it. */
typedef struct worker {
    loader *l;
    uint64_t digest;
    wf_error error;
} worker;

/* Explains bytes that are not those that were saved, by the file's checksums. */
static wf_status damaged(worker *w, int64_t file, const char *path)
{
    if (wf_checkpoint_contents(w->l->from, file, &w->error) == WF_OK)
        wf_error_set(&w->error, WF_EDATA,
                     "%s: %s was read wrong from file %" PRId64 ", which is as it was saved",
                     w->l->from->path, path, file);
    return w->error.code;
}

/* A part that was saved, into x, against its checksum. */
static wf_status read_as_saved(worker *w, wf_reader *reader, int64_t i, int bit,
                               const wf_part *part, float *x)
{
    const char *path = w->l->state->index.tensor[i].path;
    bool local = w->l->from->index.kind == WF_INDEX_LOCAL; /* no part of it can be asked for */
    int64_t all = part->ndim ? part->local[0] : 1, saved = saved_number(w->l, i), file = 0;
    int64_t rows = local ? all : wf_part_slab_rows(part);
    wf_checksum_stream *stream = wf_checksum_begin();
    uint64_t stated = 0;

    if (!stream)
        return wf_error_set(&w->error, WF_ENOMEM, "no memory for a checksum");
    wf_reader_stated(reader, saved, bit, part, &stated, &file, &w->error);
    for (int64_t row = 0; row < all && w->error.code == WF_OK; row += rows) {
        wf_part slab = wf_part_slab(part, row, rows);
        int64_t n = wf_part_count(&slab);

        if (wf_reader_read(reader, saved, bit, &slab, x, &w->error) == WF_OK)
            wf_checksum_add(stream, x, (size_t)n * sizeof *x);
        x += n;
    }
    if (wf_checksum_end(stream) != stated && w->error.code == WF_OK)
        return damaged(w, file, path);
    return w->error.code;
}

/* Any part, into x, and what it adds to the digest. */
static wf_status read_for_digest(worker *w, wf_reader *reader, int64_t i, int bit,
                                 const wf_part *part, float *x)
{
    const wf_index_tensor *t = &w->l->state->index.tensor[i];
    bool counts = wf_state_counts_here(w->l->state, i, bit);
    int64_t all = part->ndim ? part->local[0] : 1, rows = wf_part_slab_rows(part);
    int64_t size[WF_MAX_DIMS];

    for (int d = 0; d < t->ndim; d++)
        size[d] = t->dim[d].size;
    for (int64_t row = 0; row < all && w->error.code == WF_OK; row += rows) {
        wf_part slab = wf_part_slab(part, row, rows);

        if (wf_reader_read(reader, saved_number(w->l, i), bit, &slab, x, &w->error) == WF_OK &&
            counts)
            w->digest += wf_digest_part(wf_digest_path(t->path), (uint32_t)bit, t->ndim, size,
                                        slab.start, slab.local, x);
        x += wf_part_count(&slab);
    }
    return w->error.code;
}

/* Slab by slab: what has been read is in the caches when it is checked. */
static wf_status read_tensor(worker *w, wf_reader *reader, int64_t i, int bit)
{
    wf_tensor *t = w->l->state->tensor[i][bit];
    wf_part part = t ? wf_part_of_tensor(t) : (wf_part){.ndim = 0};
    wf_host_data view;
    wf_status status;
    float *x;

    if (!t || wf_tensor_is_fake(t) || !wf_part_count(&part))
        return WF_OK;
    x = wf_data_write_f32(t, &view);
    if (!x)
        return wf_error_set(&w->error, WF_ENOMEM, "no memory to load a tensor");
    status = (w->l->as_saved ? read_as_saved : read_for_digest)(w, reader, i, bit, &part, x);
    wf_data_close(&view);
    return status;
}

static void *read_some(void *arg)
{
    worker *w = arg;
    loader *l = w->l;
    int64_t tensors = l->state->index.count * WF_INDEX_KINDS, k;
    wf_reader reader;
    wf_status status = wf_reader_open(&reader, l->from, &w->error);

    if (l->from->index.kind == WF_INDEX_LOCAL)
        reader.rank = wf_context_rank(l->state->trained.par->ctx);
    while (status == WF_OK && (k = atomic_fetch_add(&l->next, 1)) < tensors)
        status = read_tensor(w, &reader, k / WF_INDEX_KINDS, (int)(k % WF_INDEX_KINDS));
    if (status != WF_OK)
        atomic_store(&l->next, tensors); /* the other one need not continue */
    wf_reader_close(&reader);
    return NULL;
}

/* Reads this rank's parts, and adds those that it counts to the digest. */
static wf_status read_all(loader *l, uint64_t *digest)
{
    wf_comm *world = wf_mesh_world(l->state->trained.par->mesh);
    worker mine = {.l = l}, other = {.l = l};
    pthread_t thread;
    bool threaded = pthread_create(&thread, NULL, read_some, &other) == 0;
    const wf_error *error;

    wf_comm_at_files(world, true);
    read_some(&mine);
    if (threaded)
        pthread_join(thread, NULL);
    wf_comm_at_files(world, false);
    *digest = mine.digest + other.digest;
    error = mine.error.code != WF_OK ? &mine.error : &other.error;
    return error->code == WF_OK ? WF_OK
                                : wf_error_set(l->error, error->code, "%s", error->text);
}

/* Checks the contents of all files, divided among the ranks. */
static wf_status check_contents(loader *l, wf_par *par)
{
    int64_t ranks = wf_mesh_ranks(par->mesh);
    wf_status status = WF_OK;

    wf_comm_at_files(wf_mesh_world(par->mesh), true);
    for (int64_t r = wf_context_rank(par->ctx); r < l->from->index.files && status == WF_OK;
         r += ranks)
        status = wf_checkpoint_contents(l->from, r, l->error);
    wf_comm_at_files(wf_mesh_world(par->mesh), false);
    return wf_agree(par, 0, NULL, l->error);
}

/* The digest of what was read; where it is another one, which tensor is it? */
static wf_status check_digest(loader *l, uint64_t digest)
{
    wf_status status;

    if (digest == l->from->index.digest)
        return WF_OK;
    status = check_contents(l, l->state->trained.par);
    if (status == WF_OK)
        return wf_error_set(l->error, WF_EDATA,
                            "%s: what was loaded has digest %016" PRIx64 " and %016" PRIx64
                            " was saved, though its files have their checksums",
                            l->from->path, digest, l->from->index.digest);
    return status;
}

wf_status wf_par_checkpoint_load(wf_par_trainer *trainer, const wf_par_checkpoint *checkpoint,
                                 wf_error *error)
{
    wf_par *par = wf_par_trainer_state(trainer).par;
    wf_error mine = {WF_OK, ""};
    uint64_t digest = 0;
    wf_state state;
    loader l = {.from = checkpoint, .state = &state, .error = &mine};
    wf_status status = wf_state_open(&state, trainer, &mine);

    status = wf_agree(par, 0, NULL, &mine);
    if (status == WF_OK)
        status = wf_load_fits_state(checkpoint, &state.index, &mine);
    if (status == WF_OK)
        status = check_headers(&l, par);
    if (status == WF_OK) {
        wf_par_models_change(par);
        read_all(&l, &digest);
        status = wf_agree(par, 1, &digest, &mine);
    }
    if (status == WF_OK && !l.as_saved)
        status = check_digest(&l, digest);
    if (status == WF_OK)
        wf_par_trainer_restored(trainer, checkpoint->index.step, checkpoint->index.skipped,
                                checkpoint->index.fresh);
    wf_state_close(&state);
    return status == WF_OK ? WF_OK : wf_error_set(error, mine.code, "%s", mine.text);
}

/* Returns the state of a parameter that is read instead of its value: the average, if it is
   asked for and there, since frozen parameters have none. */
static int kind_of(const wf_index_tensor *t, bool average)
{
    return average && t->kinds & 1u << WF_PAR_SAVED_EMA ? WF_PAR_SAVED_EMA : 0;
}

/* The parameters of a model, as far as this rank holds them. */
static wf_status read_model(loader *l, int64_t count, wf_nn_parameter *const *parameter,
                            bool average)
{
    wf_reader reader;
    wf_status status = wf_reader_open(&reader, l->from, l->error);

    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        wf_tensor *t = parameter[i]->tensor;
        wf_part part = wf_part_of_tensor(t);
        int64_t saved =
            wf_index_find(&l->from->index, parameter[i]->path) - l->from->index.tensor;

        wf_host_data view;
        float *x;

        if (wf_tensor_is_fake(t) || !wf_part_count(&part))
            continue; /* nothing of it is here */
        x = wf_data_write_f32(t, &view);
        status =
            x ? wf_reader_read(&reader, saved, kind_of(&l->from->index.tensor[saved], average),
                               &part, x, l->error)
              : wf_error_set(l->error, WF_ENOMEM, "no memory to load a tensor");
        wf_data_close(&view);
    }
    wf_reader_close(&reader);
    return status;
}

/* Checks that a checkpoint has a moving average. */
static wf_status check_average(const wf_par_checkpoint *from, wf_error *error)
{
    for (int64_t i = 0; i < from->index.count; i++)
        if (kind_of(&from->index.tensor[i], true))
            return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s has no moving average of the weights: its run kept none (.ema of "
                        "the optimizer)",
                        from->path);
}

static wf_status load_parameters(wf_par *par, wf_nn_module *model,
                                 const wf_par_checkpoint *checkpoint, bool average,
                                 wf_error *error)
{
    wf_error mine = {WF_OK, ""};
    loader l = {.from = checkpoint, .error = &mine};
    int64_t count;
    wf_nn_parameter **parameter = wf_nn_parameters(model, &count);
    wf_status status;

    if (parameter)
        count = wf_state_kept(count, parameter);
    if (wf_load_fits_parameters(checkpoint, count, parameter, &mine) == WF_OK && average)
        check_average(checkpoint, &mine);
    status = wf_agree(par, 0, NULL, &mine);
    if (status == WF_OK)
        status = check_headers(&l, par);
    if (status == WF_OK)
        status = check_contents(&l, par);
    if (status == WF_OK) {
        wf_par_models_change(par);
        wf_comm_at_files(wf_mesh_world(par->mesh), true);
        read_model(&l, count, parameter, average);
        wf_comm_at_files(wf_mesh_world(par->mesh), false);
        status = wf_agree(par, 0, NULL, &mine);
    }
    free(parameter);
    return status == WF_OK ? WF_OK : wf_error_set(error, mine.code, "%s", mine.text);
}

wf_status wf_par_checkpoint_load_model(wf_par *par, wf_nn_module *model,
                                       const wf_par_checkpoint *checkpoint, wf_error *error)
{
    return load_parameters(par, model, checkpoint, false, error);
}

wf_status wf_par_checkpoint_load_average(wf_par *par, wf_nn_module *model,
                                         const wf_par_checkpoint *checkpoint, wf_error *error)
{
    return load_parameters(par, model, checkpoint, true, error);
}

wf_status wf_par_checkpoint_load_fresh(wf_par_trainer *trainer,
                                       const wf_par_checkpoint *checkpoint, wf_error *error)
{
    const wf_index *index = &checkpoint->index;

    if (index->kind == WF_INDEX_LOCAL)
        return wf_error_set(error, WF_EINVAL,
                            "%s was saved as local, and parameters alone are taken of "
                            "checkpoints that fit any layout: load it whole, and save it as "
                            "sharded",
                            checkpoint->path);
    if (load_parameters(trainer->par, trainer->model, checkpoint, false, error) == WF_OK)
        wf_par_trainer_restored(trainer, index->step, 0, index->step);
    return error->code;
}
