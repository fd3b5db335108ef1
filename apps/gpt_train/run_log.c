/* apps/gpt_train/run_log.c - the console line and the JSONL row of a step. */
#include "apps/gpt_train/run_log.h"
#include "apps/gpt_train/event_file.h"
#include "apps/gpt_train/run_line.h"
#include "apps/gpt_train/whole_write.h"
#include "parallel/train/measure.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { KEPT_ON_TERMINAL = 20, KEPT_IN_FILE = 100, EVERY_STEP_UP_TO = 50 };

struct app_run_log {
    FILE *console;
    bool terminal, line_open;
    int columns;
    int64_t steps, interval;
    bool any;     /* a step was logged */
    bool nothing; /* a step without a loss was warned of */
    double mean_ms;
    int file;
    bool failing; /* rows found no room; that has been told */
    char *path;
    app_event_file *events; /* NULL: none */
    bool events_failing;
    double world, peak;
};

void app_run_log_console(app_run_log_options *options, FILE *console)
{
    struct winsize size = {0};
    const char *kind = getenv("TERM");

    options->console = console;
    options->terminal = isatty(fileno(console)) && !(kind && !strcmp(kind, "dumb"));
    if (options->terminal && ioctl(fileno(console), TIOCGWINSZ, &size) == 0)
        options->columns = size.ws_col;
}

/* The step between kept lines: 1, 2 or 5 times a power of ten, at most `lines` lines in all. */
static int64_t interval_for(int64_t steps, int64_t lines)
{
    int64_t interval = 1;

    while (steps / interval > lines) {
        int64_t first = interval;

        while (first >= 10)
            first /= 10;
        interval = first == 2 ? interval / 2 * 5 : interval * 2;
    }
    return interval;
}

/* Hours of work are not given up for a line about them. */
static void warn(const wf_error *error)
{
    fprintf(stderr, "gpt_train: warning: %s; training goes on\n", error->text);
}

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

static json_t *first_row(const app_run_log_options *o)
{
    json_t *mesh = json_object(), *options = json_deep_copy(o->options);
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

static wf_status open_file(app_run_log *log, const app_run_log_options *o, wf_error *error)
{
    json_t *row;
    char *text, *line = NULL;
    int length = -1;
    wf_status status;

    log->path = strdup(o->path);
    if (!log->path)
        return wf_error_set(error, WF_ENOMEM, "no memory for the log");
    /* This does not wait for a reader where the name is a pipe's. */
    log->file = open(
        o->path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | (o->append ? O_APPEND : O_TRUNC),
        0666);
    if (log->file < 0 || fcntl(log->file, F_SETFL, o->append ? O_APPEND : 0) != 0)
        return wf_error_set(error, WF_EIO, "cannot open log file %s: %s", o->path,
                            strerror(errno));
    row = first_row(o);
    text = row ? dump_short(row) : NULL;
    if (text)
        length = asprintf(&line, "%s\n", text);
    status = length < 0 ? wf_error_set(error, WF_ENOMEM, "no memory for the log's first row")
                        : app_write_whole(log->file, log->path, line, (size_t)length, error);
    if (length >= 0)
        free(line);
    free(text);
    json_decref(row);
    return status;
}

wf_status app_run_log_open(const app_run_log_options *options, app_run_log **log,
                           wf_error *error)
{
    app_run_log *l = calloc(1, sizeof *l);
    wf_status status = WF_OK;
    int64_t lines = options->terminal ? KEPT_ON_TERMINAL : KEPT_IN_FILE;

    *log = NULL;
    if (!l)
        return wf_error_set(error, WF_ENOMEM, "no memory for the log");
    l->console = options->console;
    l->terminal = options->terminal;
    l->columns = options->columns > 0 ? options->columns : 80;
    l->steps = options->steps;
    l->interval = options->steps <= EVERY_STEP_UP_TO ? 1 : interval_for(options->steps, lines);
    l->file = -1;
    l->world = 1;
    l->peak = options->peak;
    for (int i = 0; i < options->axis_count; i++)
        l->world *= (double)options->axes[i].size;
    if (options->path)
        status = open_file(l, options, error);
    if (status == WF_OK && options->tensorboard)
        status = app_event_file_open(options->tensorboard, &l->events, error);
    if (status == WF_OK)
        *log = l;
    else
        app_run_log_close(l, NULL);
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

/* Model FLOPs utilization; NaN where no peak is known. */
static double mfu_of(const app_run_log *log, const app_step_log *r)
{
    return log->peak > 0 ? r->model_flops_per_s / log->peak : NAN;
}

/* Paths are made of letters, digits, dots and underscores. */
static void write_digests(FILE *row, const app_step_log *r)
{
    static const char *const suffix[] = {"", ".m", ".v"};

    fputs(", \"digests\": {", row);
    for (int64_t i = 0; i < r->tensors; i++)
        fprintf(row, "%s\"%s%s\": \"%016" PRIx64 "\"", i ? ", " : "", r->of[i].path,
                suffix[r->of[i].kind], r->of[i].digest);
    fputc('}', row);
}

static wf_status write_step(app_run_log *log, const app_step_log *r, wf_error *error)
{
    wf_error unwritten = {WF_OK, ""};
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
            number(t[6], r->model_flops_per_s, 6), number(t[7], mfu_of(log, r), 6),
            number(t[5], r->has_val_loss ? r->val_loss : NAN, 9));
    if (r->has_score)
        fprintf(row, ", \"acc\": %s, \"acc_norm\": %s, \"answer_bits_per_byte\": %s",
                number(t[0], app_run_share(&r->score, r->score.right), 9),
                number(t[1], app_run_share(&r->score, r->score.right_by_bytes), 9),
                number(t[2], r->score.labelled ? r->score.bits_per_byte : NAN, 17));
    if (r->has_digest)
        fprintf(row, ", \"digest\": \"%016" PRIx64 "\"", r->digest);
    if (r->tensors)
        write_digests(row, r);
    fputs("}\n", row);
    if (fclose(row)) /* memory that it grew into */
        status = wf_error_set(error, WF_ENOMEM, "no memory for a row of the log");
    else if (app_write_whole(log->file, log->path, line, length, &unwritten) != WF_OK &&
             !log->failing)
        warn(&unwritten);
    log->failing |=
        unwritten.code != WF_OK; /* a shorter row may still fit: told once all the same */
    free(line);
    return status;
}

/* Writes the tags of torchtitan, whose rates are those of a device. What has no value has no point. */
static void write_events(app_run_log *log, const app_step_log *r)
{
    const float none = NAN;
    const app_event_scalar scalars[] = {
        {"loss_metrics/global_avg_loss", r->loss},
        {"grad_norm", r->grad_norm},
        {"lr", (float)r->lr},
        {"throughput(tps)", (float)(r->tokens_per_s / log->world)},
        {"tflops", (float)(r->model_flops_per_s / 1e12 / log->world)},
        {"mfu(%)", (float)(100 * mfu_of(log, r))},
        {"time_metrics/end_to_end(s)", (float)(r->ms / 1e3)},
        {"memory/max_active(GiB)", (float)((double)r->memory_peak / (1 << 30))},
        {"validation_metrics/loss", r->has_val_loss ? r->val_loss : none},
        {"validation_metrics/acc",
         r->has_score ? (float)app_run_share(&r->score, r->score.right) : none},
        {"validation_metrics/acc_norm",
         r->has_score ? (float)app_run_share(&r->score, r->score.right_by_bytes) : none},
    };
    app_event_scalar known[sizeof scalars / sizeof *scalars];
    wf_error unwritten = {WF_OK, ""};
    int count = 0;

    for (size_t i = 0; i < sizeof scalars / sizeof *scalars; i++)
        if (!isnan(scalars[i].value))
            known[count++] = scalars[i];
    if (app_event_file_scalars(log->events, r->step, known, count, &unwritten) != WF_OK &&
        !log->events_failing)
        warn(&unwritten);
    log->events_failing |= unwritten.code != WF_OK;
}

static void show_step(app_run_log *log, const app_step_log *r)
{
    wf_error error = {WF_OK, ""};
    bool keep =
        !log->any || r->step % log->interval == 0 || r->step >= log->steps || r->has_val_loss;
    char line[APP_RUN_LINE];

    if (!keep && !log->terminal)
        return;
    app_run_line(line, r, log->steps, log->mean_ms, mfu_of(log, r));
    if (log->terminal)
        fputs("\r\033[K", log->console);
    /* A line that wraps could not be rewritten. */
    fprintf(log->console, "%.*s", keep ? APP_RUN_LINE : log->columns - 1, line);
    if (keep)
        fputc('\n', log->console);
    log->line_open = !keep;
    if (fflush(log->console)) {
        wf_error_set(&error, WF_EIO, "cannot write to the console: %s", strerror(errno));
        warn(&error);
        log->console = NULL;
    }
}

int64_t app_run_log_last(const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t room = 0;
    int64_t last = 0;

    while (file && getline(&line, &room, file) > 0) {
        json_t *row = json_loads(line, 0, NULL), *step = json_object_get(row, "step");

        if (json_is_integer(step))
            last = json_integer_value(step);
        json_decref(row);
    }
    free(line);
    if (file)
        fclose(file);
    return last;
}

/* Warns once of a step whose batch has no target that counts: it has no loss, and gradients of 0. */
static void warn_of_nothing(app_run_log *log, const app_step_log *r)
{
    if (!isnan(r->loss) || log->nothing)
        return;
    log->nothing = true;
    app_run_log_clear(log);
    fprintf(stderr,
            "gpt_train: warning: no token of the batch of step %" PRId64
            " is trained on (loss masks, or documents of one token): it has no loss, and "
            "gradients of 0\n",
            r->step);
}

wf_status app_run_log_step(app_run_log *log, const app_step_log *record, wf_error *error)
{
    wf_status status = WF_OK;

    warn_of_nothing(log, record);
    /* The first step is slow (caches, page faults): the mean soon forgets it. */
    log->mean_ms = log->any ? 0.8 * log->mean_ms + 0.2 * record->ms : record->ms;
    if (log->file >= 0)
        status = write_step(log, record, error);
    if (status == WF_OK && log->events)
        write_events(log, record);
    if (status == WF_OK && log->console)
        show_step(log, record);
    log->any = true;
    return status;
}

void app_run_log_clear(app_run_log *log)
{
    if (!log || !log->line_open || !log->console)
        return;
    fputs("\r\033[K", log->console);
    fflush(log->console);
    log->line_open = false;
}

wf_status app_run_log_close(app_run_log *log, wf_error *error)
{
    wf_error events = {WF_OK, ""};
    wf_status status = WF_OK;

    if (!log)
        return WF_OK;
    app_run_log_clear(log);
    if (log->file >= 0 && close(log->file) && !log->failing)
        status = wf_error_set(error, WF_EIO, "cannot close log file %s: %s", log->path,
                              strerror(errno));
    if (app_event_file_close(log->events, &events) != WF_OK && !log->events_failing &&
        status == WF_OK)
        status = wf_error_set(error, events.code, "%s", events.text);
    free(log->path);
    free(log);
    return status;
}
