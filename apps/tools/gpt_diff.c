/*
 * apps/tools/gpt_diff.c - gpt_diff A B: the first step and key in which two runs differ (their
 * --log-jsonl files), or the tensors in which two checkpoints do; --svg draws losses of runs.
 */
#include "apps/tools/checkpoint_diff.h"
#include "apps/program.h"
#include "apps/tools/loss_picture.h"
#include "core/status.h"
#include <stdlib.h>
#include <string.h>

enum { SAME = 0, DIFFERENT = 1, USAGE = 2, UNREADABLE = 3 };

static const char help[] =
    "gpt_diff - find where two runs of gpt_train differ, and draw their losses\n\n"
    "Usage: gpt_diff A B\n"
    "       gpt_diff --svg FILE RUN...\n\n"
    "A and B are files of --log-jsonl: the first step that both have and in which loss, "
    "gradient\n"
    "norm, learning rate, validation loss or digest differ, bit by bit; and where they have\n"
    "digests of tensors (gpt_train --digest=tensors), the first tensor that differs after it.\n"
    "Or they are checkpoints, or directories of them: the tensors that differ.\n"
    "Of runs that differ, the options that differ as well; what they write is left out.\n"
    "Where the two were computed by other rules (their numerics identities: another version "
    "of\n"
    "Weft, device or dtype), that is reported as well.\n\n"
    "  --svg FILE  draw training and validation losses of one to eight files of --log-jsonl "
    "over\n"
    "              their steps; of two they are compared as well, and where they diverge is "
    "marked\n\n"
    "gpt_diff --version says version, commit, compiler and what is built in.\n\n"
    "Examples\n"
    "  gpt_diff a.jsonl b.jsonl\n"
    "  gpt_diff --svg losses.svg full.jsonl lora.jsonl qlora.jsonl\n\n"
    "Exit status: 0 the same, or drawn; 1 different, 2 usage, 3 a file that cannot be read, "
    "or\n"
    "output that cannot be written\n";

static char *text_of(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;

    return text ? wf_text_visible(text) : NULL;
}

static bool report(json_int_t step, const char *key, const json_t *a, const json_t *b)
{
    char *x = text_of(a), *y = text_of(b);

    printf("step %" JSON_INTEGER_FORMAT ": %s is %s in A and %s in B\n", step, key,
           x ? x : "absent", y ? y : "absent");
    free(x);
    free(y);
    return false;
}

/* The first tensor whose digest differs, and how many do. */
static bool same_tensors(json_int_t step, json_t *a, json_t *b)
{
    char first[600];
    const char *name;
    size_t both = 0, differ = 0;
    json_t *mine;

    json_object_foreach(a, name, mine)
    {
        const json_t *other = json_object_get(b, name);

        both += other != NULL;
        if (!other || json_equal(mine, other))
            continue;
        if (!differ++)
            snprintf(first, sizeof first, "%s", name);
    }
    if (differ)
        printf("step %" JSON_INTEGER_FORMAT
               ": tensor %s differs, the first of %zu of %zu tensors\n",
               step, wf_text_visible(first), differ, both);
    return !differ;
}

/* Why bits may differ though model, data and flags are the same. */
static void report_numerics(const app_run_rows *a, const app_run_rows *b)
{
    const char *x = json_string_value(json_object_get(a->first, "numerics"));
    const char *y = json_string_value(json_object_get(b->first, "numerics"));

    app_report_numerics(stdout, x, y);
}

/* A loss as a number, with its bits where two that differ are printed alike. */
static bool report_loss(json_int_t step, const json_t *a, const json_t *b)
{
    const json_t *row[2] = {a, b};
    char text[2][80];

    for (int i = 0; i < 2; i++) {
        char *number = text_of(json_object_get(row[i], "loss"));
        char *bits = text_of(json_object_get(row[i], "loss_bits"));

        snprintf(text[i], sizeof text[i], "%.32s (bits %.32s)", number ? number : "absent",
                 bits ? bits : "absent");
        free(number);
        free(bits);
    }
    printf("step %" JSON_INTEGER_FORMAT ": loss is %s in A and %s in B\n", step, text[0],
           text[1]);
    return false;
}

/* The options in which two runs that differ were not alike, but for what they write. */
static void report_options(const app_run_rows *a, const app_run_rows *b)
{
    static const char *const written[] = {"log_jsonl",   "save",        "tensorboard", "trace",
                                          "report_json", "log_digests", "resume"};
    json_t *mine = json_object_get(a->first, "options"), *value;
    const json_t *theirs = json_object_get(b->first, "options");
    const char *name;

    json_object_foreach(mine, name, value)
    {
        const json_t *other = json_object_get(theirs, name);
        bool differs = theirs && !json_equal(value, other);
        char *x, *y;

        for (size_t i = 0; differs && i < sizeof written / sizeof *written; i++)
            differs = strcmp(name, written[i]) != 0;
        if (!differs)
            continue;
        x = text_of(value);
        y = text_of(other);
        printf("option %.64s is %s in A and %s in B\n", name, x ? x : "absent",
               y ? y : "absent");
        free(x);
        free(y);
    }
}

static bool same_row(json_int_t step, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"loss_bits", "grad_norm", "lr", "digest"};
    json_t *x = json_object_get(a, "val_loss"), *y = json_object_get(b, "val_loss");
    bool same = true;

    for (size_t i = 0; same && i < sizeof keys / sizeof *keys; i++) {
        const json_t *mine = json_object_get(a, keys[i]), *other = json_object_get(b, keys[i]);

        if (mine && other && !json_equal(mine, other))
            same = i == 0 ? report_loss(step, a, b) : report(step, keys[i], mine, other);
    }
    if (same && x && y && !json_is_null(x) && !json_is_null(y) && !json_equal(x, y))
        same = report(step, "val_loss", x, y);
    return same_tensors(step, json_object_get(a, "digests"), json_object_get(b, "digests")) &&
           same;
}

/* Says whether two runs are the same; the step in which they are not, or 0. */
static bool compare(const app_run_rows *a, const app_run_rows *b, json_int_t *step)
{
    bool same = true;
    size_t both = 0, i = 0, k = 0;

    *step = 0;
    while (same && i < a->steps && k < b->steps) {
        const app_run_row *x = &a->of[i], *y = &b->of[k];

        if (x->number == y->number) {
            both++;
            same = same_row(x->number, x->row, y->row);
            *step = same ? 0 : x->number;
        }
        i += x->number <= y->number;
        k += y->number <= x->number;
    }
    if (same && !both) {
        printf("there is no step that both have\n");
        same = false;
    }
    if (!same)
        report_options(a, b);
    report_numerics(a, b);
    return same;
}

static int diff_runs(const char *path_a, const char *path_b)
{
    app_run_rows a = {.of = NULL}, b = {.of = NULL};
    int result = UNREADABLE;
    json_int_t step;

    if (app_run_rows_read(path_a, &a) && app_run_rows_read(path_b, &b))
        result = compare(&a, &b, &step) ? SAME : DIFFERENT;
    app_run_rows_free(&a);
    app_run_rows_free(&b);
    return result;
}

/* --svg FILE RUN.. */
static int draw_runs(const char *file, int runs, char **paths)
{
    app_run_rows rows[APP_LOSS_PICTURE_RUNS] = {{.of = NULL}};
    app_loss_picture picture = {.run = rows, .name = (const char *const *)paths, .runs = runs};
    wf_error error = {WF_OK, ""};
    int result = SAME, read = 0;

    while (read < runs && app_run_rows_read(paths[read], &rows[read]))
        read++;
    if (read < runs)
        result = UNREADABLE;
    else if (runs == 2)
        result = compare(&rows[0], &rows[1], &picture.differs) ? SAME : DIFFERENT;
    if (read == runs && app_loss_picture_svg(&picture, file, &error) != WF_OK) {
        app_program_error("gpt_diff", &error);
        result = UNREADABLE;
    }
    for (int i = 0; i < runs; i++)
        app_run_rows_free(&rows[i]);
    return result;
}

static int diff(const char *path_a, const char *path_b)
{
    char a[4096], b[4096];
    wf_error error = {WF_OK, ""};
    bool same = false;
    int result = UNREADABLE;

    if (!app_checkpoint_find(path_a, a, &error) || !app_checkpoint_find(path_b, b, &error))
        result = error.code == WF_OK ? diff_runs(path_a, path_b) : UNREADABLE;
    else if (app_checkpoint_diff(a, b, stdout, &same, &error) == WF_OK)
        result = same ? SAME : DIFFERENT;
    if (error.code != WF_OK)
        app_program_error("gpt_diff", &error);
    return result;
}

int main(int argc, char **argv)
{
    bool draws = argc > 1 && strcmp(argv[1], "--svg") == 0;
    int result, runs = argc - 3;

    app_program_begin();
    if (app_program_version_asked("gpt_diff", argc, argv))
        return app_program_end("gpt_diff", SAME);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return app_program_end("gpt_diff", SAME);
    }
    if (draws && (runs < 1 || runs > APP_LOSS_PICTURE_RUNS)) {
        fprintf(stderr,
                "gpt_diff: --svg takes the file to write, and one to %d files of --log-jsonl; "
                "see gpt_diff --help\n",
                APP_LOSS_PICTURE_RUNS);
        return USAGE;
    }
    if (!draws && (argc != 3 || argv[1][0] == '-' || argv[2][0] == '-')) {
        fprintf(stderr, "gpt_diff: it takes two files or folders; see gpt_diff --help\n");
        return USAGE;
    }
    result = draws ? draw_runs(argv[2], runs, argv + 3) : diff(argv[1], argv[2]);
    return result <= DIFFERENT ? app_program_end("gpt_diff", result) : result;
}
