/* parallel/report/step_rows.c - the rows of --log-jsonl; see the header. */
#include "parallel/report/step_rows_internal.h"
#include "core/files/input.h"
#include "parallel/report/expert_load.h"
#include "parallel/report/row_file.h"
#include "parallel/report/run_line_internal.h"
#include "parallel/train/added_loss.h"
#include "parallel/train/measure.h"
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct wf_step_rows {
    wf_row_file file;
    json_t *first;  /* the row that begins those of this run */
    int64_t logged; /* the last step that the file had */
};

/* Numbers as short as they can be and still be read back as they were. */
static char *dump_short(const json_t *value)
{
    char *text = json_dumps(value, JSON_REAL_PRECISION(15));
    json_t *back = text ? json_loads(text, 0, NULL) : NULL;
    bool same = back && json_equal(back, value);

    json_decref(back);
    if (same)
        return text;
    free(text);
    return json_dumps(value, JSON_REAL_PRECISION(17));
}

static json_t *first_row(const wf_run_log_options *o)
{
    json_t *mesh = json_object(),
           *options = json_loads(o->settings ? o->settings : "{}", 0, NULL);
    json_int_t world = 1;

    for (int i = 0; i < o->axis_count; i++) {
        world *= o->axes[i].size;
        if (json_object_set_new(mesh, o->axes[i].name, json_integer(o->axes[i].size)))
            break;
    }
    if (!mesh || !options || json_object_size(mesh) != (size_t)o->axis_count) {
        json_decref(mesh);
        json_decref(options);
        return NULL;
    }
    return json_pack("{s:o, s:I, s:s, s:s?, s:o}", "mesh", mesh, "world", world, "transport",
                     o->transport, "numerics", o->numerics && *o->numerics ? o->numerics : NULL,
                     "options", options);
}

/* Reads what a file has: the last step, by its rows and those of the runs that wrote them.
   False: it has no row of ours. */
static bool read_rows(const char *path, int64_t *last)
{
    FILE *file = wf_input_open(path);
    char *line = NULL;
    size_t room = 0;
    bool any = false, ours = false;

    *last = 0;
    while (file && getline(&line, &room, file) > 0) {
        json_t *row = json_loads(line, 0, NULL), *step = json_object_get(row, "step"),
               *after = json_object_get(row, "after");

        any = true;
        ours = ours || json_object_get(row, "mesh") || json_is_integer(step);
        if (json_is_integer(step))
            *last = json_integer_value(step);
        else if (json_is_integer(after))
            *last = json_integer_value(after);
        json_decref(row);
    }
    free(line);
    if (file)
        fclose(file);
    return ours || !any;
}

/* Refuses a file with rows of a run that is not continued: another run is not appended to
   them. */
static wf_status check_rows(wf_step_rows *rows, const wf_run_log_options *o, wf_error *error)
{
    struct stat s;

    if (stat(o->path, &s) != 0 || !S_ISREG(s.st_mode))
        return WF_OK;
    if (!read_rows(o->path, &rows->logged))
        return wf_error_set(error, WF_EINVAL,
                            ".log_jsonl %s is a file of something else, with no row of a run: "
                            "give another name",
                            o->path);
    if (o->continues || !rows->logged)
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        ".log_jsonl %s has rows of a run, up to step %" PRId64
                        ", and this run continues from no checkpoint: give another name, "
                        "remove the file, or continue with .resume",
                        o->path, rows->logged);
}

int64_t wf_step_rows_logged(const wf_step_rows *rows)
{
    return rows->logged;
}

wf_status wf_step_rows_open(const wf_run_log_options *o, wf_step_rows **out, wf_error *error)
{
    wf_step_rows *rows = calloc(1, sizeof *rows);

    *out = NULL;
    if (!rows)
        return wf_error_set(error, WF_ENOMEM, "no memory for the log");
    if (wf_row_file_open(&rows->file, ".log_jsonl", o->path, error) == WF_OK &&
        check_rows(rows, o, error) == WF_OK && !(rows->first = first_row(o)))
        wf_error_set(error, WF_ENOMEM, "no memory for the log's first row");
    if (error->code == WF_OK)
        *out = rows;
    else
        wf_step_rows_close(rows, NULL);
    return error->code;
}

wf_status wf_step_rows_begin(wf_step_rows *rows, int64_t after, wf_error *error)
{
    char *text, *line = NULL;
    int length = -1;
    wf_status status;

    json_object_set_new(rows->first, "after", json_integer(after));
    text = dump_short(rows->first);
    if (text)
        length = asprintf(&line, "%s\n", text);
    free(text);
    if (length < 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for the log's first row");
    status = wf_row_file_write(&rows->file, line, (size_t)length, error);
    free(line);
    return status;
}

/* A number that JSON can hold, or null. 9 digits bring back any float. */
static const char *number(char out[32], double value, int digits)
{
    if (isfinite(value))
        snprintf(out, 32, "%.*g", digits, value);
    else
        snprintf(out, 32, "null");
    return out;
}

/* Paths are made of letters, digits, dots and underscores. */
static void write_digests(FILE *row, const wf_step_log *r)
{
    fputs(", \"digests\": {", row);
    for (int64_t i = 0; i < r->tensors; i++)
        fprintf(row, "%s\"%s%s%s\": \"%016" PRIx64 "\"", i ? ", " : "", r->of[i].path,
                r->of[i].kind ? "." : "", wf_nn_kept_suffix(r->of[i].kind), r->of[i].digest);
    fputc('}', row);
}

/* Writes how many choices experts with a capacity did not take, of each mixture. */
static void write_dropped(FILE *row, const wf_step_log *r)
{
    int n = 0;

    for (int i = 0; i < r->load_count; i++)
        if (r->loads[i].dropped)
            fprintf(row, "%s\"%s\": %" PRIu64, n++ ? ", " : ", \"expert_dropped\": {",
                    r->loads[i].path, *r->loads[i].dropped);
    if (n)
        fputc('}', row);
}

static void write_loads(FILE *row, const wf_step_log *r)
{
    fputs(", \"expert_load\": {", row);
    for (int i = 0; i < r->load_count; i++) {
        fprintf(row, "%s\"%s\": [", i ? ", " : "", r->loads[i].path);
        for (int64_t e = 0; e < r->loads[i].experts; e++)
            fprintf(row, "%s%" PRIu64, e ? ", " : "", r->loads[i].tokens[e]);
        fputc(']', row);
    }
    fputc('}', row);
    write_dropped(row, r);
}

wf_status wf_step_rows_write(wf_step_rows *rows, const wf_step_log *r, double mfu,
                             wf_error *unwritten, wf_error *error)
{
    char *line = NULL, t[8][32];
    uint32_t bits;
    size_t length = 0;
    FILE *row = open_memstream(&line, &length);
    wf_status status = WF_OK;

    if (!row)
        return wf_error_set(error, WF_ENOMEM, "no memory for a row of the log");
    memcpy(&bits, &r->loss, sizeof bits);
    fprintf(row,
            "{\"step\": %" PRId64 ", \"loss\": %s, \"loss_bits\": \"%08" PRIx32 "\", "
            "\"grad_norm\": %s, \"lr\": %s, \"ms\": %s, \"tokens_per_s\": %s, "
            "\"model_flops_per_s\": %s, \"mfu\": %s, \"val_loss\": %s",
            r->step, number(t[0], r->loss, 9), bits, number(t[1], r->grad_norm, 9),
            number(t[2], r->lr, 9), number(t[3], r->ms, 6), number(t[4], r->tokens_per_s, 6),
            number(t[6], r->model_flops_per_s, 6), number(t[7], mfu, 6),
            number(t[5], r->has_val_loss ? r->val_loss : NAN, 9));
    if (r->skipped)
        fputs(", \"skipped\": true", row);
    for (int i = 0; i < r->loss_count; i++)
        fprintf(row, "%s\"%s\": %s%s", i ? ", " : ", \"losses\": {", r->losses[i].name,
                number(t[0], r->losses[i].mean, 9), i + 1 < r->loss_count ? "" : "}");
    for (int i = 0; i < r->scalar_count; i++)
        fprintf(row, ", \"%s\": %s", r->scalars[i].key,
                number(t[0], r->scalars[i].value, r->scalars[i].digits));
    if (r->has_digest)
        fprintf(row, ", \"digest\": \"%016" PRIx64 "\"", r->digest);
    if (r->tensors)
        write_digests(row, r);
    if (r->load_count)
        write_loads(row, r);
    fputs("}\n", row);
    if (fclose(row)) /* memory that it grew into */
        status = wf_error_set(error, WF_ENOMEM, "no memory for a row of the log");
    else
        wf_row_file_write(&rows->file, line, length, unwritten);
    free(line);
    return status;
}

wf_status wf_step_rows_close(wf_step_rows *rows, wf_error *error)
{
    wf_status status;

    if (!rows)
        return WF_OK;
    status = wf_row_file_close(&rows->file, error);
    json_decref(rows->first);
    free(rows);
    return status;
}
