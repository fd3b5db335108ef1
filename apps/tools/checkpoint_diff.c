/* apps/tools/checkpoint_diff.c - two checkpoints compared; see the header. */
#include "apps/tools/checkpoint_diff.h"
#include "parallel/checkpoint/read_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH = 4096 };

bool app_checkpoint_find(const char *path, char *text, wf_error *error)
{
    struct stat s;
    char **paths;
    int64_t count;

    if (wf_par_checkpoint_there(path)) {
        snprintf(text, PATH, "%s", path);
        return true;
    }
    if (stat(path, &s) == 0 && !S_ISDIR(s.st_mode))
        return false;
    wf_par_checkpoint_list(path, &paths, &count, error);
    if (count)
        snprintf(text, PATH, "%s", paths[0]);
    for (int64_t i = 0; i < count; i++)
        free(paths[i]);
    free(paths);
    return count > 0 && error->code == WF_OK;
}

/* One of the two. */
typedef struct side {
    wf_par_checkpoint *c;
    wf_reader reader;
    float *x; /* the whole tensor that is compared */
} side;

static wf_status open_side(side *s, const char *path, wf_error *error)
{
    s->c = wf_par_checkpoint_open(path, error);
    return s->c ? wf_reader_open(&s->reader, s->c, error) : error->code;
}

static void close_side(side *s)
{
    if (s->c)
        wf_reader_close(&s->reader);
    wf_par_checkpoint_close(s->c);
    free(s->x);
}

static wf_status read_whole(side *s, const char *path, int bit, int64_t *n, wf_error *error)
{
    const wf_index_tensor *t = wf_index_find(&s->c->index, path);
    wf_part part = {.ndim = t->ndim};

    for (int d = 0; d < t->ndim; d++)
        part.local[d] = t->dim[d].size;
    *n = wf_part_count(&part);
    free(s->x);
    s->x = malloc((size_t)*n * sizeof *s->x + 1);
    if (!s->x)
        return wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    return wf_reader_read(&s->reader, t - s->c->index.tensor, bit, &part, s->x, error);
}

/* Elements that differ in their bits; the first of them, and how far apart values are at most. */
static int64_t compare(const float *a, const float *b, int64_t n, int64_t *first, double *most)
{
    int64_t count = 0;

    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        double apart = fabs((double)a[i] - (double)b[i]);

        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        if (!count++)
            *first = i;
        if (!(apart <= *most))
            *most = apart;
    }
    return count;
}

static bool same_shape(const wf_index_tensor *a, const wf_index_tensor *b)
{
    for (int d = 0; d < a->ndim && a->ndim == b->ndim; d++)
        if (a->dim[d].size != b->dim[d].size)
            return false;
    return a->ndim == b->ndim;
}

static wf_status diff_tensor(side *a, side *b, const wf_index_tensor *t, FILE *out, bool *same,
                             wf_error *error)
{
    const wf_index_tensor *other = wf_index_find(&b->c->index, t->path);
    wf_status status = WF_OK;
    bool fits = other && same_shape(t, other) && t->kinds == other->kinds;

    if (!fits) {
        fprintf(out, "%s: %s\n", t->path, other ? "another shape or state" : "is missing in B");
        *same = false;
        return WF_OK;
    }
    for (int bit = 0; bit < WF_INDEX_KINDS && status == WF_OK; bit++) {
        char name[WF_INDEX_NAME + 2];
        int64_t n, count, first = 0;
        double most;

        if (!(t->kinds >> bit & 1))
            continue;
        status = read_whole(a, t->path, bit, &n, error);
        if (status == WF_OK)
            status = read_whole(b, t->path, bit, &n, error);
        count = status == WF_OK ? compare(a->x, b->x, n, &first, &most) : 0;
        if (count) {
            fprintf(out,
                    "%s: %" PRId64 " of %" PRId64
                    " elements differ, by %g at most; the first is "
                    "%" PRId64 ": %.9g and %.9g\n",
                    wf_index_name(t->path, bit, name), count, n, most, first,
                    (double)a->x[first], (double)b->x[first]);
            *same = false;
        }
    }
    return status;
}

wf_status app_checkpoint_diff(const char *path_a, const char *path_b, FILE *out, bool *same,
                              wf_error *error)
{
    side a = {.c = NULL}, b = {.c = NULL};
    wf_status status = open_side(&a, path_a, error);

    *same = true;
    if (status == WF_OK)
        status = open_side(&b, path_b, error);
    if (status == WF_OK && a.c->index.step != b.c->index.step) {
        fprintf(out, "step: %" PRId64 " and %" PRId64 "\n", a.c->index.step, b.c->index.step);
        *same = false;
    }
    for (int64_t i = 0; status == WF_OK && i < a.c->index.count; i++)
        status = diff_tensor(&a, &b, &a.c->index.tensor[i], out, same, error);
    for (int64_t i = 0; status == WF_OK && i < b.c->index.count; i++)
        if (!wf_index_find(&a.c->index, b.c->index.tensor[i].path)) {
            fprintf(out, "%s: is missing in A\n", b.c->index.tensor[i].path);
            *same = false;
        }
    close_side(&a);
    close_side(&b);
    return status;
}
