/* parallel/checkpoint/contents.c - a checkpoint's index and elements, for programs that look at
   one. */
#include "parallel/checkpoint/contents.h"
#include "parallel/checkpoint/read_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

_Static_assert((int)WF_PAR_SAVED_STATES == (int)WF_INDEX_KINDS &&
                   WF_INDEX_M == 1 << WF_PAR_SAVED_M && WF_INDEX_V == 1 << WF_PAR_SAVED_V &&
                   (int)WF_PAR_SAVED_EMA == 1 + WF_NN_STATES,
               "states are the kinds of the index");

struct wf_par_checkpoint_reader {
    wf_reader reader;
};

wf_par_checkpoint_summary wf_par_checkpoint_describe(const wf_par_checkpoint *c)
{
    const wf_index *index = &c->index;
    wf_par_checkpoint_summary s = {.kind = wf_index_kind_name(index->kind),
                                   .strategy = index->strategy,
                                   .step = index->step,
                                   .sequences = index->sequences,
                                   .files = index->files,
                                   .bytes = index->bytes,
                                   .digest = index->digest,
                                   .tensors = index->count,
                                   .options = index->option_count,
                                   .n_axes = index->mesh.n_axes};

    for (int a = 0; a < s.n_axes; a++) {
        s.axis_name[a] = index->mesh.name[a];
        s.axis_size[a] = index->mesh.size[a];
    }
    return s;
}

void wf_par_checkpoint_option_at(const wf_par_checkpoint *c, int64_t i, const char **key,
                                 const char **value)
{
    *key = c->index.option[2 * i];
    *value = c->index.option[2 * i + 1];
}

wf_par_saved_tensor wf_par_checkpoint_tensor(const wf_par_checkpoint *c, int64_t i)
{
    const wf_index_tensor *from = &c->index.tensor[i];
    wf_par_saved_tensor t = {
        .path = from->path, .states = from->kinds, .ndim = from->ndim, .pp = from->layout.pp};

    for (int d = 0; d < t.ndim; d++) {
        t.size[d] = from->dim[d].size;
        t.n_axes[d] = from->layout.n_axes[d];
        for (int a = 0; a < t.n_axes[d]; a++)
            t.axis[d][a] = from->layout.axis[d][a];
    }
    return t;
}

int64_t wf_par_checkpoint_find(const wf_par_checkpoint *c, const char *path)
{
    return wf_par_checkpoint_find_states(c, path, WF_INDEX_VALUE);
}

int64_t wf_par_checkpoint_find_states(const wf_par_checkpoint *c, const char *path,
                                      unsigned states)
{
    const wf_index_tensor *t = wf_index_find_kinds(&c->index, path, states);

    return t ? t - c->index.tensor : -1;
}

wf_par_checkpoint_reader *wf_par_checkpoint_reader_open(const wf_par_checkpoint *c,
                                                        wf_error *error)
{
    wf_par_checkpoint_reader *r = calloc(1, sizeof *r);

    if (!r) {
        wf_error_set(error, WF_ENOMEM, "no memory to read %s", c->path);
        return NULL;
    }
    if (wf_reader_open(&r->reader, c, error) == WF_OK)
        return r;
    wf_par_checkpoint_reader_close(r);
    return NULL;
}

void wf_par_checkpoint_reader_close(wf_par_checkpoint_reader *r)
{
    if (r)
        wf_reader_close(&r->reader);
    free(r);
}

wf_status wf_par_checkpoint_reader_read(wf_par_checkpoint_reader *r, int64_t i,
                                        wf_par_saved_state state, float *to, wf_error *error)
{
    const wf_index *index = &r->reader.from->index;
    wf_part part = {.ndim = 0};

    if (i < 0 || i >= index->count)
        return wf_error_set(error, WF_EINVAL,
                            "%s has no tensor %" PRId64 ": their numbers are 0 to %" PRId64,
                            r->reader.from->path, i, index->count - 1);
    if ((int)state < 0 || (int)state >= WF_PAR_SAVED_STATES ||
        !(index->tensor[i].kinds >> state & 1))
        return wf_error_set(error, WF_EINVAL,
                            "%s: state %d of %s was not saved; wf_par_saved_tensor.states says "
                            "which were",
                            r->reader.from->path, (int)state, index->tensor[i].path);
    part.ndim = index->tensor[i].ndim;
    for (int d = 0; d < part.ndim; d++)
        part.local[d] = index->tensor[i].dim[d].size;
    return wf_reader_read(&r->reader, i, (int)state, &part, to, error);
}

char *wf_par_saved_tensor_name(const wf_par_saved_tensor *tensor, wf_par_saved_state state,
                               char *text, size_t size)
{
    const char *suffix = wf_nn_kept_suffix((int)state);

    snprintf(text, size, "%s%s%s", tensor->path, *suffix ? "." : "", suffix);
    return text;
}
