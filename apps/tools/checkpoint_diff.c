/* apps/tools/checkpoint_diff.c - two checkpoints compared; see the header. */
#include "apps/tools/checkpoint_diff.h"
#include "parallel/checkpoint/contents.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { PATH = 4096, NAME = 600 };

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
    wf_par_checkpoint_reader *reader;
    float *x; /* the whole tensor that is compared */
} side;

static wf_status open_side(side *s, const char *path, wf_error *error)
{
    s->c = wf_par_checkpoint_open(path, error);
    if (s->c)
        s->reader = wf_par_checkpoint_reader_open(s->c, error);
    return error->code;
}

static void close_side(side *s)
{
    wf_par_checkpoint_reader_close(s->reader);
    wf_par_checkpoint_close(s->c);
    free(s->x);
}

static wf_status read_whole(side *s, int64_t number, wf_par_saved_state state, int64_t *n,
                            wf_error *error)
{
    wf_par_saved_tensor t = wf_par_checkpoint_tensor(s->c, number);

    *n = 1;
    for (int d = 0; d < t.ndim; d++)
        *n *= t.size[d];
    free(s->x);
    s->x = malloc((size_t)*n * sizeof *s->x + 1);
    if (!s->x)
        return wf_error_set(error, WF_ENOMEM, "no memory for %s", t.path);
    return wf_par_checkpoint_reader_read(s->reader, number, state, s->x, error);
}

/* Returns the number of elements that differ in their bits; *first is the first of them, *most
   the largest difference. */
static int64_t compare(const float *a, const float *b, int64_t n, int64_t *first, double *most)
{
    int64_t count = 0;

    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        double distance = fabs((double)a[i] - (double)b[i]);

        if (memcmp(&a[i], &b[i], sizeof *a) == 0)
            continue;
        if (!count++)
            *first = i;
        if (!(distance <= *most))
            *most = distance;
    }
    return count;
}

static bool same_form(const wf_par_saved_tensor *a, const wf_par_saved_tensor *b)
{
    for (int d = 0; d < a->ndim && a->ndim == b->ndim; d++)
        if (a->size[d] != b->size[d])
            return false;
    return a->ndim == b->ndim && a->states == b->states;
}

static wf_status diff_tensor(side *a, side *b, int64_t number, FILE *out, bool *same,
                             wf_error *error)
{
    wf_par_saved_tensor t = wf_par_checkpoint_tensor(a->c, number), other;
    int64_t other_number = wf_par_checkpoint_find_states(b->c, t.path, t.states);
    wf_status status = WF_OK;

    if (other_number >= 0)
        other = wf_par_checkpoint_tensor(b->c, other_number);
    if (other_number < 0 || !same_form(&t, &other)) {
        fprintf(out, "%s: %s\n", t.path,
                other_number < 0 ? "is missing in B" : "another shape or state");
        *same = false;
        return WF_OK;
    }
    for (int state = 0; state < WF_PAR_SAVED_STATES && status == WF_OK; state++) {
        char name[NAME];
        int64_t n, count, first = 0;
        double most;

        if (!(t.states >> state & 1))
            continue;
        status = read_whole(a, number, (wf_par_saved_state)state, &n, error);
        if (status == WF_OK)
            status = read_whole(b, other_number, (wf_par_saved_state)state, &n, error);
        count = status == WF_OK ? compare(a->x, b->x, n, &first, &most) : 0;
        if (count) {
            fprintf(out,
                    "%s: %" PRId64 " of %" PRId64
                    " elements differ, by %g at most; the first is "
                    "%" PRId64 ": %.9g and %.9g\n",
                    wf_par_saved_tensor_name(&t, (wf_par_saved_state)state, name, sizeof name),
                    count, n, most, first, (double)a->x[first], (double)b->x[first]);
            *same = false;
        }
    }
    return status;
}

void app_report_numerics(FILE *out, const char *a, const char *b)
{
    char text[2][64];

    if (!a || !b || !*a || !*b || strcmp(a, b) == 0)
        return;
    snprintf(text[0], sizeof text[0], "%s", a);
    snprintf(text[1], sizeof text[1], "%s", b);
    fprintf(
        out,
        "numerics: %s in A and %s in B: another version, device or dtype computed them, and "
        "other bits are no fault of the layout\n",
        wf_text_visible(text[0]), wf_text_visible(text[1]));
}

wf_status app_checkpoint_diff(const char *path_a, const char *path_b, FILE *out, bool *same,
                              wf_error *error)
{
    side a = {.c = NULL}, b = {.c = NULL};
    wf_status status = open_side(&a, path_a, error);
    int64_t n_a = a.c ? wf_par_checkpoint_describe(a.c).tensors : 0, n_b;

    *same = true;
    if (status == WF_OK)
        status = open_side(&b, path_b, error);
    if (status == WF_OK && wf_par_checkpoint_step(a.c) != wf_par_checkpoint_step(b.c)) {
        fprintf(out, "step: %" PRId64 " and %" PRId64 "\n", wf_par_checkpoint_step(a.c),
                wf_par_checkpoint_step(b.c));
        *same = false;
    }
    n_b = b.c ? wf_par_checkpoint_describe(b.c).tensors : 0;
    for (int64_t i = 0; status == WF_OK && i < n_a; i++)
        status = diff_tensor(&a, &b, i, out, same, error);
    for (int64_t i = 0; status == WF_OK && i < n_b; i++) {
        wf_par_saved_tensor t = wf_par_checkpoint_tensor(b.c, i);

        if (wf_par_checkpoint_find_states(a.c, t.path, t.states) < 0) {
            fprintf(out, "%s: is missing in A\n", t.path);
            *same = false;
        }
    }
    if (status == WF_OK)
        app_report_numerics(out, wf_par_checkpoint_option(a.c, "numerics"),
                            wf_par_checkpoint_option(b.c, "numerics"));
    close_side(&a);
    close_side(&b);
    return status;
}
