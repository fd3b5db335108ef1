/* parallel/recovery/replay.c - repeats steps and compares the digests of all ranks; see
   parts_log.h. */
#include "parallel/recovery/parts_log.h"
#include "parallel/recovery/replay_rows_internal.h"
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_REPORTED = 10 }; /* parts that differ, a line each */

struct wf_replay {
    char *folder;
    wf_replay_rows rows;
    int files; /* those that are here */
};

static wf_status read_file(wf_replay *r, const char *path, const char *numerics,
                           wf_error *error)
{
    FILE *file = fopen(path, "re");
    wf_status status;

    if (!file)
        return wf_error_set(error, WF_EIO, ".replay: cannot read %s: %s", path,
                            strerror(errno));
    status = wf_replay_rows_read(&r->rows, file, path, numerics, error);
    fclose(file);
    return status;
}

wf_status wf_replay_open(const char *folder, const char *numerics, wf_replay **replay,
                         wf_error *error)
{
    wf_replay *r = *replay = calloc(1, sizeof *r);
    char pattern[4096];
    glob_t found = {.gl_pathc = 0};

    if (r)
        r->folder = strdup(folder);
    if (!r || !r->folder)
        return wf_error_set(error, WF_ENOMEM, "no memory for the digests of %s", folder);
    snprintf(pattern, sizeof pattern, "%.4000s/rank-*.jsonl", folder);
    if (glob(pattern, 0, NULL, &found) != 0)
        wf_error_set(error, WF_EIO,
                     ".replay: %s has no rank-*.jsonl, as a run with .log_digests leaves them",
                     folder);
    for (size_t i = 0; i < found.gl_pathc && error->code == WF_OK; i++, r->files++)
        read_file(r, found.gl_pathv[i], numerics, error);
    globfree(&found);
    wf_replay_rows_sort(&r->rows);
    return error->code;
}

void wf_replay_close(wf_replay *r)
{
    if (!r)
        return;
    wf_replay_rows_free(&r->rows);
    free(r->folder);
    free(r);
}

/* The parts of all ranks after a step, and whose they are. */
static int64_t parts_of(const wf_replay *r, int64_t step, wf_par_held_part *part, int *rank)
{
    int64_t n = 0;

    for (int64_t i = 0; i < r->rows.count; i++) {
        const wf_replay_row *row = &r->rows.row[i];

        if (row->step != step)
            continue;
        for (size_t k = 0; k < wf_replay_parts(row); k++, n++) {
            if (part)
                wf_replay_part(row, k, part + n);
            if (rank)
                rank[n] = row->rank;
        }
    }
    return n;
}

/* Names what differs; the first one is the failure. */
static void compare(wf_context *ctx, int64_t step, int64_t n, const wf_par_held_part *had,
                    const wf_par_held_part *repeated, const int *rank, FILE *out)
{
    int64_t first = -1, differ = 0;

    for (int64_t i = 0; i < n; i++) {
        if (had[i].digest == repeated[i].digest)
            continue;
        first = differ++ ? first : i;
        if (out && differ <= MOST_REPORTED)
            fprintf(out,
                    "replay: step %" PRId64 ": rank %d had another %s%s%s: digest %016" PRIx64
                    ", repeated %016" PRIx64 "\n",
                    step, rank[i], had[i].path, had[i].kind ? ", " : "",
                    had[i].kind ? wf_nn_kept_words(had[i].kind) : "", had[i].digest,
                    repeated[i].digest);
    }
    if (out && differ > MOST_REPORTED)
        fprintf(out, "replay: and %" PRId64 " more parts\n", differ - MOST_REPORTED);
    if (differ)
        wf_fail(ctx, WF_EDATA,
                "replay: step %" PRId64 " is not the run's: %" PRId64 " of %" PRId64
                " parts differ, the first is rank %d's %s%s%s",
                step, differ, n, rank[first], had[first].path, had[first].kind ? ", " : "",
                had[first].kind ? wf_nn_kept_words(had[first].kind) : "");
}

wf_status wf_replay_step(const wf_replay *r, wf_par *par, wf_par_trainer *trainer, int64_t step,
                         FILE *out)
{
    wf_context *ctx = wf_par_context(par);
    int64_t n = parts_of(r, step, NULL, NULL);
    wf_par_held_part *had = calloc((size_t)n + 1, sizeof *had);
    wf_par_held_part *repeated = calloc((size_t)n + 1, sizeof *repeated);
    int *rank = calloc((size_t)n + 1, sizeof *rank);

    if (!had || !repeated || !rank)
        wf_fail(ctx, WF_ENOMEM, "no memory for the digests of step %" PRId64, step);
    else if (n == 0)
        wf_fail(ctx, WF_EDATA,
                ".replay: %s has no digests of step %" PRId64
                ": begin at a checkpoint after it, or end before it (.replay_to)",
                r->folder, step);
    else if (wf_par_inexact(par))
        wf_fail(ctx, WF_EINVAL,
                ".replay: bits can be compared on layouts that are exact alone: %s",
                wf_par_inexact(par));
    else {
        parts_of(r, step, had, rank);
        memcpy(repeated, had, (size_t)n * sizeof *had);
        if (wf_par_trainer_digest_parts(trainer, repeated, n) == WF_OK)
            compare(ctx, step, n, had, repeated, rank, out);
    }
    free(had);
    free(repeated);
    free(rank);
    return wf_context_status(ctx);
}

int64_t wf_replay_last(const wf_replay *r)
{
    int64_t last = 0;

    for (int64_t i = 0; i < r->rows.count; i++)
        last = r->rows.row[i].step > last ? r->rows.row[i].step : last;
    return last;
}

void wf_replay_report(const wf_replay *r, int64_t first, int64_t last, FILE *out)
{
    fprintf(out,
            "replay: steps %" PRId64 " to %" PRId64
            " repeated: what %d of %d ranks held is the same, part by part\n",
            first, last, r->files, r->rows.ranks);
}
