/*
 * apps/gpt_diff.c - gpt_diff A B: the first step and key in which two runs differ (their
 * --log-jsonl files), or the tensors in which two checkpoints do.
 */
#include "apps/checkpoint_diff.h"
#include "apps/program.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SAME = 0, DIFFERENT = 1, USAGE = 2, UNREADABLE = 3 };

static const char help[] =
    "gpt_diff A B - where two runs of gpt_train differ\n\n"
    "A and B are files of --log-jsonl: the first step that both have and in which loss, "
    "gradient\n"
    "norm, learning rate, validation loss or digest differ, bit by bit; and where they have\n"
    "digests of tensors (gpt_train --digest=tensors), the first tensor that differs after it.\n"
    "Or they are checkpoints, or directories of them: the tensors that differ.\n\n"
    "Exit status: 0 the same, 1 different, 2 usage, 3 a file that cannot be read\n";

/* The last row of every step of a log, in the order of steps. */
typedef struct run {
    json_t **row; /* [steps] by number of the step; NULL: none */
    size_t steps;
} run;

static bool keep_row(run *r, json_t *row)
{
    json_int_t step = json_integer_value(json_object_get(row, "step"));
    size_t need = (size_t)step + 1;

    if (step < 1 || step > 1000000000) {
        json_decref(row);
        return true; /* the row of the run */
    }
    if (need > r->steps) {
        size_t room = need > 2 * r->steps ? need : 2 * r->steps;
        json_t **longer = realloc(r->row, room * sizeof *longer);

        if (!longer)
            return false;
        memset(longer + r->steps, 0, (room - r->steps) * sizeof *longer);
        r->row = longer;
        r->steps = room;
    }
    json_decref(r->row[step]); /* a run that went on from before repeats steps */
    r->row[step] = row;
    return true;
}

static bool read_run(const char *path, run *r)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    bool good = file != NULL;

    for (long number = 1; good && getline(&line, &room, file) > 0; number++) {
        json_error_t why;
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, &why);

        good = row && keep_row(r, row);
        if (!good)
            fprintf(stderr, "gpt_diff: %s, line %ld: %s\n", path, number, why.text);
    }
    if (!file)
        fprintf(stderr, "gpt_diff: cannot read %s\n", path);
    else
        fclose(file);
    free(line);
    return good;
}

static char *text_of(const json_t *value)
{
    return value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;
}

static bool tell(size_t step, const char *key, const json_t *a, const json_t *b)
{
    char *x = text_of(a), *y = text_of(b);

    printf("step %zu: %s is %s in A and %s in B\n", step, key, x ? x : "absent",
           y ? y : "absent");
    free(x);
    free(y);
    return false;
}

/* The first tensor whose digest differs, and how many do. */
static bool same_tensors(size_t step, json_t *a, json_t *b)
{
    const char *name, *first = NULL;
    size_t both = 0, differ = 0;
    json_t *mine;

    json_object_foreach(a, name, mine)
    {
        const json_t *other = json_object_get(b, name);

        both += other != NULL;
        if (!other || json_equal(mine, other))
            continue;
        if (!differ++)
            first = name;
    }
    if (differ)
        printf("step %zu: tensor %s differs, the first of %zu of %zu tensors\n", step, first,
               differ, both);
    return !differ;
}

static bool same_row(size_t step, const json_t *a, const json_t *b)
{
    static const char *const keys[] = {"loss_bits", "grad_norm", "lr", "digest"};
    json_t *x = json_object_get(a, "val_loss"), *y = json_object_get(b, "val_loss");
    bool same = true;

    for (size_t i = 0; same && i < sizeof keys / sizeof *keys; i++) {
        const json_t *mine = json_object_get(a, keys[i]), *other = json_object_get(b, keys[i]);

        if (mine && other && !json_equal(mine, other))
            same = tell(step, keys[i], mine, other);
    }
    if (same && x && y && !json_is_null(x) && !json_is_null(y) && !json_equal(x, y))
        same = tell(step, "val_loss", x, y);
    return same_tensors(step, json_object_get(a, "digests"), json_object_get(b, "digests")) &&
           same;
}

static int diff_runs(const char *path_a, const char *path_b)
{
    run a = {NULL, 0}, b = {NULL, 0};
    bool good = read_run(path_a, &a) && read_run(path_b, &b), same = true;
    size_t both = 0;

    for (size_t i = 0; good && same && i < a.steps && i < b.steps; i++)
        if (a.row[i] && b.row[i]) {
            both++;
            same = same_row(i, a.row[i], b.row[i]);
        }
    if (good && same && !both) {
        printf("there is no step that both have\n");
        same = false;
    }
    for (size_t i = 0; i < a.steps; i++)
        json_decref(a.row[i]);
    for (size_t i = 0; i < b.steps; i++)
        json_decref(b.row[i]);
    free(a.row);
    free(b.row);
    return !good ? UNREADABLE : same ? SAME : DIFFERENT;
}

int main(int argc, char **argv)
{
    char a[4096], b[4096];
    wf_error error = {WF_OK, ""};
    bool same = false;
    int result = UNREADABLE;

    wf_program_begin();
    if (wf_program_version_asked("gpt_diff", argc, argv))
        return wf_program_end("gpt_diff", SAME);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return wf_program_end("gpt_diff", SAME);
    }
    if (argc != 3) {
        fprintf(stderr, "gpt_diff: it takes two files or folders; see gpt_diff --help\n");
        return USAGE;
    }
    if (!wf_checkpoint_find(argv[1], a) || !wf_checkpoint_find(argv[2], b))
        result = diff_runs(argv[1], argv[2]);
    else if (wf_checkpoint_diff(a, b, stdout, &same, &error) == WF_OK)
        result = same ? SAME : DIFFERENT;
    else
        fprintf(stderr, "gpt_diff: %s\n", error.text);
    return result <= DIFFERENT ? wf_program_end("gpt_diff", result) : result;
}
