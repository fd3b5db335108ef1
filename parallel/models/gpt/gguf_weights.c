/* parallel/models/gpt/gguf_weights.c - the weights of a GGUF file, one by one; see the
   header. */
#include "parallel/models/gpt/gguf_weights_internal.h"
#include "parallel/models/gpt/gguf_names_internal.h"
#include <stdlib.h>
#include <string.h>

static const int64_t slab_elements = 1 << 18; /* read at a time, or a row */

wf_status wf_gguf_weights_open(wf_gguf_weights *w, const wf_file_calls *calls, const char *path,
                               wf_error *error)
{
    *w = (wf_gguf_weights){.open = false};
    if (wf_file_open(&w->file, calls, path, WF_FILE_READ, error) != WF_OK)
        return error->code;
    w->open = true;
    if (wf_gguf_read(&w->header, &w->file, error) != WF_OK)
        return error->code;
    w->used = calloc((size_t)w->header.tensors + 1, sizeof *w->used);
    if (!w->used)
        return wf_error_set(error, WF_ENOMEM, "no memory for the tensors of %.900s", path);
    return wf_gguf_config(w, error);
}

void wf_gguf_weights_close(wf_gguf_weights *w)
{
    wf_error unread = {WF_OK, ""};

    if (w->open)
        wf_file_close(&w->file, &unread);
    wf_gguf_free(&w->header);
    free(w->used);
    *w = (wf_gguf_weights){.open = false};
}

/* The tensor that a parameter lies in; NULL without an error: there is none. */
static const wf_gguf_tensor *locate(const wf_gguf_weights *w, const wf_nn_gpt_config *model,
                                    const wf_nn_parameter *p, wf_gguf_location *location)
{
    return wf_gguf_location_of(w->architecture, model, p, location)
               ? wf_gguf_tensor_find(&w->header, location->name)
               : NULL;
}

static wf_status check(const wf_gguf_weights *w, const wf_nn_parameter *p,
                       const wf_gguf_location *location, const wf_gguf_tensor *t,
                       wf_error *error)
{
    const wf_tensor *ours = p->tensor;
    bool same;

    if (!*location->name)
        return wf_error_set(error, WF_EINVAL,
                            "%.900s: a GGUF file has no parameter %s of this model: it is none "
                            "of the file's config",
                            w->file.path, p->path);
    if (!t)
        return wf_error_set(
            error, WF_EDATA,
            "%.900s has no tensor \"%s\", which parameter %s would be read from", w->file.path,
            location->name, p->path);
    same = t->ndim == ours->ndim && t->shape[0] == location->rows;
    for (int d = 1; same && d < t->ndim; d++)
        same = t->shape[d] == ours->dim[d].size;
    if (!same)
        return wf_error_set(error, WF_EDATA,
                            "%.900s: tensor \"%s\" has another shape than the keys make of it "
                            "(parameter %s)",
                            w->file.path, t->name, p->path);
    if (t->ndim == 1 && wf_gguf_block(t->type) > 1)
        return wf_error_set(
            error, WF_EUNSUPPORTED,
            "%.900s: tensor \"%s\" is a vector in blocks, which no program reads", w->file.path,
            t->name);
    return WF_OK;
}

/* A slab that is read at a time: contiguous rows of the file that are contiguous rows of the
   parameter. */
typedef struct slab {
    char *raw;
    float *numbers;
    int64_t rows;
} slab;

/* A matrix of the file, and this rank's part of it: a parameter, or an expert's of one. */
typedef struct matrix {
    const wf_gguf_tensor *t;
    const wf_gguf_location *location;
    int64_t first, rows;     /* its first row among all of the tensor, and how many it has */
    int64_t columns;         /* a row's elements */
    int64_t row, local_rows; /* the part's rows */
    int64_t start, local;    /* its columns */
} matrix;

/* Rows [row, row + n) of the matrix, whole ones, as numbers. */
static wf_status read_rows(const wf_gguf_weights *w, const matrix *m, int64_t row, int64_t n,
                           const slab *s, wf_error *error)
{
    int64_t bytes = wf_gguf_bytes(m->t->type, m->columns);
    int64_t at = m->first + wf_gguf_file_row(m->location, m->rows, row);

    if (wf_file_read(&w->file, s->raw, (size_t)(n * bytes),
                     w->header.data + m->t->begin + at * bytes, error) == WF_OK)
        wf_gguf_numbers(m->t->type, s->raw, s->numbers, n * m->columns);
    for (int64_t k = 0; k < n * m->columns && m->location->added != 0; k++)
        s->numbers[k] -= m->location->added;
    return error->code;
}

static wf_status read_matrix(const wf_gguf_weights *w, const matrix *m, const slab *s,
                             float *to, wf_error *error)
{
    for (int64_t row = 0; row < m->local_rows && error->code == WF_OK; row += s->rows) {
        int64_t n = m->local_rows - row < s->rows ? m->local_rows - row : s->rows;

        if (read_rows(w, m, m->row + row, n, s, error) != WF_OK)
            break;
        for (int64_t i = 0; i < n; i++)
            memcpy(to + (row + i) * m->local, s->numbers + i * m->columns + m->start,
                   (size_t)m->local * sizeof *to);
    }
    return error->code;
}

/* A tensor has one dim, or two, or a matrix for each expert. */
static wf_status read_part(const wf_gguf_weights *w, const wf_gguf_tensor *t,
                           const wf_gguf_location *location, const wf_tensor *ours,
                           const slab *s, float *to, wf_error *error)
{
    const int d = t->ndim > 2 ? 1 : 0; /* the dim of rows */
    const bool wide = t->ndim > 1;
    const int64_t experts = d ? ours->local[0] : 1;
    matrix m = {.t = t,
                .location = location,
                .rows = ours->dim[d].size,
                .columns = wide ? t->shape[d + 1] : 1,
                .row = ours->start[d],
                .local_rows = ours->local[d],
                .start = wide ? ours->start[d + 1] : 0,
                .local = wide ? ours->local[d + 1] : 1};

    for (int64_t e = 0; e < experts && error->code == WF_OK; e++) {
        m.first = location->row + (d ? (ours->start[0] + e) * m.rows : 0);
        read_matrix(w, &m, s, to + e * m.local_rows * m.local, error);
    }
    return error->code;
}

wf_status wf_gguf_weights_read(wf_gguf_weights *w, const wf_nn_gpt_config *model,
                               const wf_nn_parameter *p, float *to, wf_error *error)
{
    wf_gguf_location location = {.row = 0};
    const wf_gguf_tensor *t = locate(w, model, p, &location);
    slab s = {.rows = 1};
    int64_t columns;

    if (check(w, p, &location, t, error) != WF_OK)
        return error->code;
    w->used[t - w->header.tensor] = true;
    columns = t->ndim > 1 ? t->shape[t->ndim - 1] : 1;
    if (!location.heads && columns < slab_elements)
        s.rows = slab_elements / columns;
    s.raw = malloc((size_t)(s.rows * columns) * sizeof(float));
    s.numbers = malloc((size_t)(s.rows * columns) * sizeof(float));
    if (!s.raw || !s.numbers || !to)
        wf_error_set(error, WF_ENOMEM, "no memory to read %s", p->path);
    else
        read_part(w, t, &location, p->tensor, &s, to, error);
    free(s.raw);
    free(s.numbers);
    return error->code;
}

wf_status wf_gguf_weights_find(wf_gguf_weights *w, const wf_nn_gpt_config *model,
                               const wf_nn_parameter *p, wf_error *error)
{
    wf_gguf_location location = {.row = 0};
    const wf_gguf_tensor *t = locate(w, model, p, &location);

    if (check(w, p, &location, t, error) == WF_OK)
        w->used[t - w->header.tensor] = true;
    return error->code;
}

wf_gguf_type wf_gguf_weights_type(const wf_gguf_weights *w, const wf_nn_gpt_config *model,
                                  const wf_nn_parameter *p)
{
    wf_gguf_location location;
    const wf_gguf_tensor *t = locate(w, model, p, &location);

    return t ? t->type : WF_GGUF_F32;
}

wf_status wf_gguf_weights_check_unused(const wf_gguf_weights *w, wf_error *error)
{
    for (int64_t i = 0; i < w->header.tensors; i++)
        if (!w->used[i])
            return wf_error_set(
                error, WF_EDATA,
                "%.900s: tensor \"%s\" belongs to no parameter of the model that "
                "its keys describe",
                w->file.path, w->header.tensor[i].name);
    return WF_OK;
}
