/*
 * apps/tools/gpt_diff.c - gpt_diff A B: the first step and key in which two runs differ (their
 * --log-jsonl files), or the tensors in which two checkpoints do.
 */
#include "apps/tools/checkpoint_diff.h"
#include "apps/program.h"
#include "core/status.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { SAME = 0, DIFFERENT = 1, USAGE = 2, UNREADABLE = 3 };

static const char help[] =
    "gpt_diff - find where two runs of gpt_train differ\n\n"
    "Usage: gpt_diff A B\n\n"
    "A and B are files of --log-jsonl: the first step that both have and in which loss, "
    "gradient\n"
    "norm, learning rate, validation loss or digest differ, bit by bit; and where they have\n"
    "digests of tensors (gpt_train --digest=tensors), the first tensor that differs after it.\n"
    "Or they are checkpoints, or directories of them: the tensors that differ.\n"
    "Where the two were computed by other rules (their numerics identities: another version "
    "of\n"
    "Weft, device or dtype), that is told as well.\n\n"
    "gpt_diff --version says version, commit, compiler and what is built in.\n\n"
    "Exit status: 0 the same, 1 different, 2 usage, 3 a file that cannot be read, or output\n"
    "that cannot be written\n";

/* A step's row of a log. */
typedef struct logged_step {
    json_int_t number;
    size_t place; /* among all rows: a run that went on from before repeats steps */
    json_t *row;
} logged_step;

/* The last row of every step of a log, in the order of steps. */
typedef struct run {
    logged_step *of;
    size_t steps, room;
    json_t *first; /* the last row of the run, which says by what rules it computes; or NULL */
} run;

/* Takes the row. False where memory ran out. */
static bool keep_row(run *r, json_t *row)
{
    json_int_t number = json_integer_value(json_object_get(row, "step"));

    if (number < 1) {
        json_decref(r->first);
        r->first = row;
        return true;
    }
    if (r->steps == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        logged_step *more = realloc(r->of, room * sizeof *more);

        if (!more) {
            json_decref(row);
            return false;
        }
        r->of = more;
        r->room = room;
    }
    r->of[r->steps] = (logged_step){number, r->steps, row};
    r->steps++;
    return true;
}

static int by_number(const void *a, const void *b)
{
    const logged_step *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->place < y->place ? -1 : 1;
}

/* The last row of a step replaces the others. */
static void put_in_order(run *r)
{
    size_t kept = 0;

    if (r->steps)
        qsort(r->of, r->steps, sizeof *r->of, by_number);
    for (size_t i = 0; i < r->steps; i++) {
        if (kept && r->of[kept - 1].number == r->of[i].number)
            json_decref(r->of[--kept].row);
        r->of[kept++] = r->of[i];
    }
    r->steps = kept;
}

static void drop_run(run *r)
{
    for (size_t i = 0; i < r->steps; i++)
        json_decref(r->of[i].row);
    free(r->of);
    json_decref(r->first);
}

/* NULL, or what is wrong with the next row; the file ends where *more is false. */
static const char *read_row(FILE *file, run *r, json_error_t *why, bool *more)
{
    int c;
    json_t *row;

    do
        c = fgetc(file);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t');
    *more = c != EOF;
    if (c == EOF)
        return ferror(file) ? strerror(errno) : NULL;
    ungetc(c, file);
    row = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, why);
    if (!row)
        return why->text;
    if (!json_is_object(row)) {
        json_decref(row);
        return "that is no JSON object, as --log-jsonl writes them";
    }
    return keep_row(r, row) ? NULL : "no memory for it";
}

static bool read_run(const char *path, run *r)
{
    FILE *file = app_program_file(path, "r");
    const char *problem = file ? NULL : strerror(errno);
    bool more = true;
    json_error_t why;
    char line[1024];
    long rows = 0;

    while (!problem && more) {
        problem = read_row(file, r, &why, &more);
        rows++;
    }
    if (file)
        fclose(file);
    if (!problem) {
        put_in_order(r);
        return true;
    }
    if (rows)
        snprintf(line, sizeof line,
                 "%s, row %ld: %s; it takes two files of --log-jsonl, or two checkpoints", path,
                 rows, problem);
    else
        snprintf(line, sizeof line, "cannot read %s: %s", path, problem);
    fprintf(stderr, "gpt_diff: %s\n", wf_text_visible(line));
    return false;
}

static char *text_of(const json_t *value)
{
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)) : NULL;

    return text ? wf_text_visible(text) : NULL;
}

static bool tell(json_int_t step, const char *key, const json_t *a, const json_t *b)
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
static void tell_numerics(const run *a, const run *b)
{
    const char *x = json_string_value(json_object_get(a->first, "numerics"));
    const char *y = json_string_value(json_object_get(b->first, "numerics"));

    app_tell_numerics(stdout, x, y);
}

static bool same_row(json_int_t step, const json_t *a, const json_t *b)
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
    run a = {.of = NULL}, b = {.of = NULL};
    bool good = read_run(path_a, &a) && read_run(path_b, &b), same = true;
    size_t both = 0, i = 0, k = 0;

    while (good && same && i < a.steps && k < b.steps) {
        const logged_step *x = &a.of[i], *y = &b.of[k];

        if (x->number == y->number) {
            both++;
            same = same_row(x->number, x->row, y->row);
        }
        i += x->number <= y->number;
        k += y->number <= x->number;
    }
    if (good && same && !both) {
        printf("there is no step that both have\n");
        same = false;
    }
    if (good)
        tell_numerics(&a, &b);
    drop_run(&a);
    drop_run(&b);
    return !good ? UNREADABLE : same ? SAME : DIFFERENT;
}

int main(int argc, char **argv)
{
    char a[4096], b[4096];
    wf_error error = {WF_OK, ""};
    bool same = false;
    int result = UNREADABLE;

    app_program_begin();
    if (app_program_version_asked("gpt_diff", argc, argv))
        return app_program_end("gpt_diff", SAME);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(help, stdout);
        return app_program_end("gpt_diff", SAME);
    }
    if (argc != 3 || argv[1][0] == '-' || argv[2][0] == '-') {
        fprintf(stderr, "gpt_diff: it takes two files or folders; see gpt_diff --help\n");
        return USAGE;
    }
    if (!app_checkpoint_find(argv[1], a, &error) || !app_checkpoint_find(argv[2], b, &error))
        result = error.code == WF_OK ? diff_runs(argv[1], argv[2]) : UNREADABLE;
    else if (app_checkpoint_diff(a, b, stdout, &same, &error) == WF_OK)
        result = same ? SAME : DIFFERENT;
    if (error.code != WF_OK)
        fprintf(stderr, "gpt_diff: %s\n", error.text);
    return result <= DIFFERENT ? app_program_end("gpt_diff", result) : result;
}
