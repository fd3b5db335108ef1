/* apps/tools/run_rows.c - see the header. */
#include "apps/tools/run_rows.h"
#include "core/files/input.h"
#include "parallel/report/row_file.h"
#include "apps/program.h"
#include "core/status.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Takes the row. False where memory ran out. */
static bool keep_row(app_run_rows *r, json_t *row)
{
    json_int_t number = json_integer_value(json_object_get(row, "step"));

    if (number < 1) {
        json_decref(r->first);
        r->first = row;
        return true;
    }
    if (r->steps == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        app_run_row *more = realloc(r->of, room * sizeof *more);

        if (!more) {
            json_decref(row);
            return false;
        }
        r->of = more;
        r->room = room;
    }
    r->of[r->steps] = (app_run_row){number, r->steps, row};
    r->steps++;
    return true;
}

static int by_number(const void *a, const void *b)
{
    const app_run_row *x = a, *y = b;

    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* The last row of a step replaces the others. */
static void put_in_order(app_run_rows *r)
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

void app_run_rows_free(app_run_rows *r)
{
    for (size_t i = 0; i < r->steps; i++)
        json_decref(r->of[i].row);
    free(r->of);
    json_decref(r->first);
}

/* NULL, or what is wrong with the next row; the file ends where *more is false. */
static const char *read_row(FILE *file, app_run_rows *r, json_error_t *why, bool *more)
{
    int c;
    json_t *row;
    long start;

    do
        c = fgetc(file);
    while (c == ' ' || c == '\n' || c == '\r' || c == '\t');
    *more = c != EOF;
    if (c == EOF)
        return ferror(file) ? strerror(errno) : NULL;
    ungetc(c, file);
    start = ftell(file);
    row = json_loadf(file, JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK, why);
    if (!row && c == '{') {
        row = wf_row_after_cut(file, start);
        if (row && !json_object_get(row, "mesh")) { /* no run continues there */
            json_decref(row);
            row = NULL;
        }
    }
    if (!row)
        return why->text;
    if (!json_is_object(row)) {
        json_decref(row);
        return "that is no JSON object, as --log-jsonl writes them";
    }
    return keep_row(r, row) ? NULL : "no memory for it";
}

bool app_run_rows_read(const char *path, app_run_rows *r)
{
    FILE *file = wf_input_open(path);
    const char *problem = file ? NULL : strerror(errno), *pointer;
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
    pointer = wf_input_pointer_at(path);
    if (pointer)
        snprintf(line, sizeof line, "%s %s", path, pointer);
    else if (rows)
        snprintf(line, sizeof line,
                 "%s, row %ld: %s; it takes two files of --log-jsonl, or two checkpoints", path,
                 rows, problem);
    else
        snprintf(line, sizeof line, "cannot read %s: %s", path, problem);
    fprintf(stderr, "gpt_diff: %s\n", wf_text_visible(line));
    return false;
}
