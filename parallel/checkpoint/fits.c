/*
 * parallel/checkpoint/fits.c - checks that a checkpoint fits what it is to be loaded into. Its
 * index says so, and every rank gets the same answer without reading a file.
 */
#include "parallel/checkpoint/load_internal.h"
#include "parallel/checkpoint/state_internal.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_status differs(const wf_par_checkpoint *from, const char *path, const char *what,
                         wf_error *error)
{
    return wf_error_set(
        error, WF_EINVAL,
        "%s cannot be loaded into this model: %s %s; use the options that it was "
        "saved with",
        from->path, path, what);
}

/* Checks the entry of a path that was saved, NULL: none was. */
static wf_status check_shape(const wf_par_checkpoint *from, const wf_index_tensor *saved,
                             const char *path, int ndim, const wf_dim *dim, wf_error *error)
{
    if (!saved)
        return differs(from, path, "is not in it", error);
    if (saved->ndim != ndim)
        return differs(from, path, "has another number of dims in it", error);
    for (int d = 0; d < ndim; d++)
        if (saved->dim[d].size != dim[d].size) {
            char text[128];

            snprintf(text, sizeof text, "has %" PRId64 " in dim %d there and %" PRId64 " here",
                     saved->dim[d].size, d, dim[d].size);
            return differs(from, path, text, error);
        }
    return WF_OK;
}

static bool same_shape(const wf_index_tensor *a, const wf_index_tensor *b)
{
    bool same = a->ndim == b->ndim;

    for (int d = 0; same && d < a->ndim; d++)
        same = a->dim[d].size == b->dim[d].size;
    return same;
}

static wf_status check_tensor(const wf_par_checkpoint *from, const wf_index_tensor *mine,
                              wf_error *error)
{
    const wf_index_tensor *saved = wf_index_find_kinds(&from->index, mine->path, mine->kinds);
    bool state = wf_index_find(&from->index, mine->path) && (!saved || !(mine->kinds & 1));
    wf_status status = WF_OK;

    if (!state) /* else its optimizer is the one that differs */
        status = check_shape(from, saved, mine->path, mine->ndim, mine->dim, error);
    if (status == WF_OK && (!saved || saved->kinds != mine->kinds || !same_shape(saved, mine)))
        return differs(from, mine->path,
                       "has the state of another optimizer in it, or is frozen, or one of the "
                       "two keeps a moving "
                       "average",
                       error);
    return status;
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

/* The first tensor that belongs to another stage's ranks; -1: there is none. */
static int64_t moved(const wf_index *a, const wf_index *b)
{
    for (int64_t i = 0; wf_saved_mesh_pp(&a->mesh) >= 0 && i < a->count; i++)
        if (a->tensor[i].layout.pp != b->tensor[i].layout.pp)
            return i;
    return -1;
}

/* Returns true where every rank finds the part that it holds in its own file. */
static bool same_parts(const wf_index *a, const wf_index *b)
{
    for (int64_t i = 0; a->mesh.nested != b->mesh.nested && i < a->count; i++)
        if (!wf_saved_same_parts(&a->mesh, &b->mesh, &a->tensor[i].layout, a->tensor[i].ndim,
                                 a->tensor[i].dim))
            return false;
    return true;
}

static char *print_mesh(const wf_index *index, char *text, size_t size)
{
    size_t n = (size_t)snprintf(text, size, "%s", index->strategy);

    for (int a = 0; a < index->mesh.n_axes && n < size; a++)
        n += (size_t)snprintf(text + n, size - n, " %s %d", index->mesh.name[a],
                              index->mesh.size[a]);
    return text;
}

wf_status wf_load_fits_state(const wf_par_checkpoint *from, const wf_index *mine,
                             wf_error *error)
{
    const wf_index *saved = &from->index;
    char a[256], b[256];
    int64_t other;
    wf_status status = WF_OK;

    for (int64_t i = 0; i < mine->count && status == WF_OK; i++)
        status = check_tensor(from, &mine->tensor[i], error);
    for (int64_t i = 0; i < saved->count && status == WF_OK; i++)
        if (!wf_index_find_kinds(mine, saved->tensor[i].path, saved->tensor[i].kinds))
            status = differs(from, saved->tensor[i].path,
                             saved->tensor[i].kinds & WF_INDEX_VALUE
                                 ? "is in it and not in the model"
                                 : "has the state of another optimizer in it",
                             error);
    if (status == WF_OK && saved->kind == WF_INDEX_LOCAL && !same_layouts(mine, saved))
        return wf_error_set(
            error, WF_EINVAL,
            "%s was saved as local, so it fits the layout that it was saved with "
            "alone, which is %s; this one is %s: load it there and save it as "
            "sharded, which fits any",
            from->path, print_mesh(saved, a, sizeof a), print_mesh(mine, b, sizeof b));
    other = status == WF_OK && saved->kind == WF_INDEX_LOCAL ? moved(mine, saved) : -1;
    if (other >= 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s was saved as local, with %s on pp %d, which is on pp %d now: "
                            "give the schedule and the split that it was saved with, or load "
                            "it with those and save it as sharded, which fits any",
                            from->path, mine->tensor[other].path,
                            saved->tensor[other].layout.pp, mine->tensor[other].layout.pp);
    if (status == WF_OK && saved->kind == WF_INDEX_LOCAL && !same_parts(mine, saved))
        return wf_error_set(error, WF_EINVAL,
                            "%s was saved as local by a version that cut dims of two axes at "
                            "other rows: load it there and save it as sharded, which fits any",
                            from->path);
    return status;
}

wf_status wf_load_fits_parameters(const wf_par_checkpoint *from, int64_t count,
                                  wf_nn_parameter **parameter, wf_error *error)
{
    wf_status status = WF_OK;

    if (!parameter)
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of tensors");
    for (int64_t i = 0; i < count && status == WF_OK; i++)
        status = check_shape(from, wf_index_find(&from->index, parameter[i]->path),
                             parameter[i]->path, parameter[i]->tensor->ndim,
                             parameter[i]->tensor->dim, error);
    if (status == WF_OK && count != wf_index_parameters(&from->index))
        return wf_error_set(error, WF_EINVAL,
                            "%s has %" PRId64 " parameters and the model has %" PRId64,
                            from->path, wf_index_parameters(&from->index), count);
    return status;
}

wf_status wf_par_checkpoint_fits(wf_nn_module *model, const wf_par_checkpoint *checkpoint,
                                 wf_error *error)
{
    int64_t count;
    wf_nn_parameter **parameter = wf_nn_parameters(model, &count);
    wf_status status;

    if (parameter)
        count = wf_state_kept(count, parameter);
    status = wf_load_fits_parameters(checkpoint, count, parameter, error);

    free(parameter);
    return status;
}
