/* parallel/recovery/replay_rows.c - the rows of --log-digests' files, checked: see the
   header. */
#include "parallel/recovery/replay_rows_internal.h"
#include "parallel/report/row_file.h"
#include "parallel/train/parts.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static bool add(wf_replay_rows *r, wf_replay_row row)
{
    if (r->count == r->room) {
        int64_t room = r->room ? 2 * r->room : 1024;
        wf_replay_row *more = realloc(r->row, (size_t)room * sizeof *more);

        if (!more)
            return false;
        r->row = more;
        r->room = room;
    }
    row.order = r->count;
    r->row[r->count++] = row;
    return true;
}

static bool is_in(const json_t *value, int64_t least, int64_t most)
{
    return json_is_integer(value) && json_integer_value(value) >= least &&
           json_integer_value(value) <= most;
}

/* A part lies within its tensor: start + local is at most size, in each dim. */
static bool are_dims(const json_t *sizes, const json_t *starts, const json_t *locals)
{
    size_t n = json_array_size(sizes);
    bool well = json_is_array(sizes) && json_is_array(starts) && json_is_array(locals) &&
                n <= WF_MAX_DIMS && json_array_size(starts) == n &&
                json_array_size(locals) == n;

    for (size_t d = 0; well && d < n; d++) {
        const json_t *size = json_array_get(sizes, d);

        well = is_in(size, 0, INT64_MAX) &&
               is_in(json_array_get(locals, d), 0, json_integer_value(size)) &&
               is_in(json_array_get(starts, d), 0,
                     json_integer_value(size) - json_integer_value(json_array_get(locals, d)));
    }
    return well;
}

static bool is_part(const json_t *part)
{
    return json_array_size(part) == 5 && json_is_string(json_array_get(part, 0)) &&
           is_in(json_array_get(part, 1), 0, WF_PAR_KINDS - 1) &&
           are_dims(json_array_get(part, 2), json_array_get(part, 3), json_array_get(part, 4));
}

static bool is_head(const json_t *head)
{
    const json_t *parts = json_object_get(head, "parts"),
                 *ranks = json_object_get(head, "ranks");
    bool well = json_is_array(parts) && is_in(ranks, 1, INT_MAX) &&
                is_in(json_object_get(head, "rank"), 0, json_integer_value(ranks) - 1) &&
                json_is_string(json_object_get(head, "numerics"));

    for (size_t i = 0; well && i < json_array_size(parts); i++)
        well = is_part(json_array_get(parts, i));
    return well;
}

static bool is_step(const json_t *row, const json_t *head)
{
    const json_t *digests = json_object_get(row, "digests");
    bool well = head && is_in(json_object_get(row, "step"), 0, INT64_MAX) &&
                json_array_size(digests) == json_array_size(json_object_get(head, "parts"));

    for (size_t i = 0; well && i < json_array_size(digests); i++)
        well = json_is_string(json_array_get(digests, i));
    return well;
}

static wf_status check_head(wf_replay_rows *r, const json_t *head, const char *path,
                            const char *numerics, wf_error *error)
{
    const char *theirs = json_string_value(json_object_get(head, "numerics"));
    int ranks = (int)json_integer_value(json_object_get(head, "ranks"));

    if (strcmp(theirs, numerics) != 0)
        return wf_error_set(error, WF_EINVAL,
                            ".replay: %s is of a run with other numerics (%.200s, here %s): "
                            "its steps cannot be repeated with the same bits",
                            path, theirs, numerics);
    r->ranks = ranks > r->ranks ? ranks : r->ranks;
    return WF_OK;
}

static wf_status take_row(wf_replay_rows *r, json_t *row, const json_t **head, const char *path,
                          const char *numerics, wf_error *error)
{
    bool heads = is_head(row), steps = !heads && is_step(row, *head);

    if (json_array_append_new(r->all, row) != 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    if (heads)
        return check_head(r, *head = row, path, numerics, error);
    if (!steps)
        return wf_error_set(
            error, WF_EDATA,
            ".replay: %s has a row that is none of .log_digests' (row %zu of all "
            "that were read)",
            path, json_array_size(r->all));
    if (!add(r, (wf_replay_row){.step = json_integer_value(json_object_get(row, "step")),
                                .rank = (int)json_integer_value(json_object_get(*head, "rank")),
                                .head = *head,
                                .digests = json_object_get(row, "digests")}))
        return wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    return WF_OK;
}

/* Returns true where a line ends between here and the end of the file. */
static bool a_line_ends(FILE *file)
{
    int c;

    do
        c = fgetc(file);
    while (c != EOF && c != '\n');
    return c == '\n';
}

/* Returns the next row; NULL at the end. A row that was cut is the last, or a run that
   continued has written a head after it, on a line of its own. */
static json_t *next_row(FILE *file, bool *damaged)
{
    long start;
    json_t *row;
    int c;

    do
        c = fgetc(file);
    while (c == '\n' || c == '\r' || c == ' ' || c == '\t');
    if (c == EOF || ungetc(c, file) == EOF)
        return NULL;
    start = ftell(file);
    row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);
    if (row || fseek(file, start, SEEK_SET) != 0 || !a_line_ends(file))
        return row;
    row = wf_row_after_cut(file, start);
    *damaged = !row || !is_head(row);
    if (*damaged)
        json_decref(row);
    return *damaged ? NULL : row;
}

wf_status wf_replay_rows_read(wf_replay_rows *r, FILE *file, const char *path,
                              const char *numerics, wf_error *error)
{
    const json_t *head = NULL;
    wf_status status = WF_OK;
    bool damaged = false;
    json_t *row;

    if (!r->all && !(r->all = json_array()))
        return wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    while (status == WF_OK && (row = next_row(file, &damaged)))
        status = take_row(r, row, &head, path, numerics, error);
    if (status == WF_OK && ferror(file))
        return wf_error_set(error, WF_EIO, ".replay: cannot read %s", path);
    if (status == WF_OK && damaged)
        return wf_error_set(error, WF_EDATA,
                            ".replay: %s is damaged after %zu rows of all that were read: what "
                            "follows is neither a row nor one that was cut",
                            path, json_array_size(r->all));
    return status;
}

/* Sorts by rank and step, and by their order in the files. */
static int compare(const void *a, const void *b)
{
    const wf_replay_row *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->step != y->step)
        return x->step < y->step ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

void wf_replay_rows_sort(wf_replay_rows *r)
{
    int64_t kept = 0;

    if (r->count)
        qsort(r->row, (size_t)r->count, sizeof *r->row, compare);
    for (int64_t i = 0; i < r->count; i++)
        if (i + 1 == r->count || r->row[i + 1].rank != r->row[i].rank ||
            r->row[i + 1].step != r->row[i].step)
            r->row[kept++] = r->row[i];
    r->count = kept;
}

void wf_replay_rows_free(wf_replay_rows *r)
{
    json_decref(r->all);
    free(r->row);
    *r = (wf_replay_rows){.count = 0};
}

void wf_replay_part(const wf_replay_row *row, size_t k, wf_par_held_part *part)
{
    const json_t *of = json_array_get(json_object_get(row->head, "parts"), k);
    const json_t *dims[] = {json_array_get(of, 2), json_array_get(of, 3),
                            json_array_get(of, 4)};

    *part = (wf_par_held_part){
        .path = json_string_value(json_array_get(of, 0)),
        .kind = (int)json_integer_value(json_array_get(of, 1)),
        .ndim = (int)json_array_size(dims[0]),
        .digest = strtoull(json_string_value(json_array_get(row->digests, k)), NULL, 16)};
    for (int d = 0; d < part->ndim; d++) {
        part->size[d] = json_integer_value(json_array_get(dims[0], (size_t)d));
        part->start[d] = json_integer_value(json_array_get(dims[1], (size_t)d));
        part->local[d] = json_integer_value(json_array_get(dims[2], (size_t)d));
    }
}
