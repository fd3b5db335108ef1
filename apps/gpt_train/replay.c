/* apps/gpt_train/replay.c - steps made again beside the digests of all ranks; see parts_log.h. */
#include "apps/gpt_train/parts_log.h"
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { TOLD = 10 }; /* parts that differ, a line each */

/* A row of a rank's file, and what it is the row of. Both are `rows`' own. */
typedef struct step_row {
    int64_t step;
    int rank;
    const json_t *head, *digests;
} step_row;

struct app_replay {
    char *folder;
    json_t *rows; /* all that was read */
    step_row *row;
    int64_t count, room;
    int ranks, files; /* what the run had; what is here */
};

static const char *const kinds[] = {"", ", first moment", ", second moment"};

static bool add(app_replay *r, step_row row)
{
    if (r->count == r->room) {
        int64_t room = r->room ? 2 * r->room : 1024;
        step_row *more = realloc(r->row, (size_t)room * sizeof *more);

        if (!more)
            return false;
        r->row = more;
        r->room = room;
    }
    r->row[r->count++] = row;
    return true;
}

static bool are_dims(const json_t *a, size_t n)
{
    bool well = json_is_array(a) && json_array_size(a) == n && n <= WF_MAX_DIMS;

    for (size_t d = 0; well && d < n; d++)
        well = json_is_integer(json_array_get(a, d));
    return well;
}

static bool is_part(const json_t *part)
{
    size_t n = json_array_size(json_array_get(part, 2));

    return json_array_size(part) == 5 && json_is_string(json_array_get(part, 0)) &&
           json_is_integer(json_array_get(part, 1)) &&
           json_integer_value(json_array_get(part, 1)) >= 0 &&
           json_integer_value(json_array_get(part, 1)) < WF_PAR_KINDS &&
           are_dims(json_array_get(part, 2), n) && are_dims(json_array_get(part, 3), n) &&
           are_dims(json_array_get(part, 4), n);
}

static bool is_head(const json_t *head)
{
    const json_t *parts = json_object_get(head, "parts");
    bool well = json_is_array(parts) && json_is_integer(json_object_get(head, "rank")) &&
                json_is_integer(json_object_get(head, "ranks")) &&
                json_is_string(json_object_get(head, "numerics"));

    for (size_t i = 0; well && i < json_array_size(parts); i++)
        well = is_part(json_array_get(parts, i));
    return well;
}

static bool is_step(const json_t *row, const json_t *head)
{
    const json_t *digests = json_object_get(row, "digests");
    bool well = head && json_is_integer(json_object_get(row, "step")) &&
                json_array_size(digests) == json_array_size(json_object_get(head, "parts"));

    for (size_t i = 0; well && i < json_array_size(digests); i++)
        well = json_is_string(json_array_get(digests, i));
    return well;
}

static wf_status check_head(app_replay *r, const json_t *head, const char *path,
                            const char *numerics, wf_error *error)
{
    const char *theirs = json_string_value(json_object_get(head, "numerics"));
    int ranks = (int)json_integer_value(json_object_get(head, "ranks"));

    if (strcmp(theirs, numerics) != 0)
        return wf_error_set(error, WF_EINVAL,
                            "--replay: %s is of a run with other numerics (%s, here %s): its "
                            "steps cannot be made again with the same bits",
                            path, theirs, numerics);
    r->ranks = ranks > r->ranks ? ranks : r->ranks;
    return WF_OK;
}

/* Returns the next row, behind one that was cut where a run went on there; NULL at the end, or where that is cut. */
static json_t *next_row(FILE *file)
{
    long start = ftell(file);
    json_t *row = json_loadf(file, JSON_DISABLE_EOF_CHECK, NULL);

    return row ? row : app_row_after_cut(file, start);
}

static wf_status read_file(app_replay *r, const char *path, const char *numerics,
                           wf_error *error)
{
    FILE *file = fopen(path, "r");
    const json_t *head = NULL;
    wf_status status = WF_OK;
    json_t *row;

    if (!file)
        return wf_error_set(error, WF_EIO, "--replay: cannot read %s: %s", path,
                            strerror(errno));
    while (status == WF_OK && (row = next_row(file))) {
        bool heads = is_head(row), steps = !heads && is_step(row, head);

        if (json_array_append_new(r->rows, row) != 0)
            status = wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
        else if (heads)
            status = check_head(r, head = row, path, numerics, error);
        else if (!steps)
            status = wf_error_set(error, WF_EDATA,
                                  "--replay: %s has a row that is none of "
                                  "--log-digests'",
                                  path);
        else if (!add(r, (step_row){json_integer_value(json_object_get(row, "step")),
                                    (int)json_integer_value(json_object_get(head, "rank")),
                                    head, json_object_get(row, "digests")}))
            status = wf_error_set(error, WF_ENOMEM, "no memory for %s", path);
    }
    fclose(file);
    return status;
}

wf_status app_replay_open(const char *folder, const char *numerics, app_replay **replay,
                          wf_error *error)
{
    app_replay *r = *replay = calloc(1, sizeof *r);
    char pattern[4096];
    glob_t found = {.gl_pathc = 0};

    if (r) {
        r->folder = strdup(folder);
        r->rows = json_array();
    }
    if (!r || !r->folder || !r->rows)
        return wf_error_set(error, WF_ENOMEM, "no memory for the digests of %s", folder);
    snprintf(pattern, sizeof pattern, "%.4000s/rank-*.jsonl", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        wf_error_set(
            error, WF_EIO,
            "--replay: %s has no rank-*.jsonl, as a run with --log-digests leaves them",
            folder);
    for (size_t i = 0; i < found.gl_pathc && error->code == WF_OK; i++, r->files++)
        read_file(r, found.gl_pathv[i], numerics, error);
    globfree(&found);
    return error->code;
}

void app_replay_close(app_replay *r)
{
    if (!r)
        return;
    json_decref(r->rows);
    free(r->row);
    free(r->folder);
    free(r);
}

/* The last row of this step in each file: a run that went on has made it again. */
static bool is_last(const app_replay *r, int64_t i)
{
    for (int64_t k = i + 1; k < r->count && r->row[k].rank == r->row[i].rank; k++)
        if (r->row[k].step == r->row[i].step)
            return false;
    return true;
}

static void take_part(wf_par_held_part *part, const json_t *of, const json_t *digest)
{
    const json_t *dims[] = {json_array_get(of, 2), json_array_get(of, 3),
                            json_array_get(of, 4)};

    *part = (wf_par_held_part){.path = json_string_value(json_array_get(of, 0)),
                               .kind = (int)json_integer_value(json_array_get(of, 1)),
                               .ndim = (int)json_array_size(dims[0]),
                               .digest = strtoull(json_string_value(digest), NULL, 16)};
    for (int d = 0; d < part->ndim; d++) {
        part->size[d] = json_integer_value(json_array_get(dims[0], (size_t)d));
        part->start[d] = json_integer_value(json_array_get(dims[1], (size_t)d));
        part->local[d] = json_integer_value(json_array_get(dims[2], (size_t)d));
    }
}

/* The parts of all ranks after a step, and whose they are. */
static int64_t parts_of(const app_replay *r, int64_t step, wf_par_held_part *part, int *rank)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->count; i++) {
        const json_t *parts = json_object_get(r->row[i].head, "parts");

        if (r->row[i].step != step || !is_last(r, i))
            continue;
        for (size_t k = 0; k < json_array_size(parts); k++, n++) {
            if (part)
                take_part(part + n, json_array_get(parts, k),
                          json_array_get(r->row[i].digests, k));
            if (rank)
                rank[n] = r->row[i].rank;
        }
    }
    return n;
}

/* Names what differs; the first one is the failure. */
static void compare(wf_context *ctx, int64_t step, int64_t n, const wf_par_held_part *had,
                    const wf_par_held_part *again, const int *rank, FILE *out)
{
    int64_t first = -1, differ = 0;

    for (int64_t i = 0; i < n; i++) {
        if (had[i].digest == again[i].digest)
            continue;
        first = differ++ ? first : i;
        if (out && differ <= TOLD)
            fprintf(out,
                    "replay: step %" PRId64 ": rank %d had another %s%s: digest %016" PRIx64
                    ", made again %016" PRIx64 "\n",
                    step, rank[i], had[i].path, kinds[had[i].kind], had[i].digest,
                    again[i].digest);
    }
    if (out && differ > TOLD)
        fprintf(out, "replay: and %" PRId64 " more parts\n", differ - TOLD);
    if (differ)
        wf_fail(ctx, WF_EDATA,
                "replay: step %" PRId64 " is not the run's: %" PRId64 " of %" PRId64
                " parts differ, the first is rank %d's %s%s",
                step, differ, n, rank[first], had[first].path, kinds[had[first].kind]);
}

wf_status app_replay_step(const app_replay *r, wf_par *par, wf_par_trainer *trainer,
                          int64_t step, FILE *out)
{
    wf_context *ctx = wf_par_context(par);
    int64_t n = parts_of(r, step, NULL, NULL);
    wf_par_held_part *had = calloc((size_t)n + 1, sizeof *had);
    wf_par_held_part *again = calloc((size_t)n + 1, sizeof *again);
    int *rank = calloc((size_t)n + 1, sizeof *rank);

    if (!had || !again || !rank)
        wf_fail(ctx, WF_ENOMEM, "no memory for the digests of step %" PRId64, step);
    else if (n == 0)
        wf_fail(ctx, WF_EDATA,
                "--replay: %s has no digests of step %" PRId64
                ": begin at a checkpoint behind it, or end before it (--replay-to)",
                r->folder, step);
    else if (wf_par_inexact(par))
        wf_fail(ctx, WF_EINVAL,
                "--replay: bits can be compared on layouts that are exact alone: %s",
                wf_par_inexact(par));
    else {
        parts_of(r, step, had, rank);
        memcpy(again, had, (size_t)n * sizeof *had);
        if (wf_par_trainer_parts_again(trainer, again, n) == WF_OK)
            compare(ctx, step, n, had, again, rank, out);
    }
    free(had);
    free(again);
    free(rank);
    return wf_context_status(ctx);
}

int64_t app_replay_last(const app_replay *r)
{
    int64_t last = 0;

    for (int64_t i = 0; i < r->count; i++)
        last = r->row[i].step > last ? r->row[i].step : last;
    return last;
}

void app_replay_tell(const app_replay *r, int64_t first, int64_t last, FILE *out)
{
    fprintf(out,
            "replay: steps %" PRId64 " to %" PRId64
            " made again: what %d of %d ranks held is the same, part by part\n",
            first, last, r->files, r->ranks);
}
