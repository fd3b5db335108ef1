/* parallel/report/run_log.c - the console line and the JSONL row of a step. */
#include "parallel/report/run_log.h"
#include "parallel/main.h"
#include "parallel/report/event_file.h"
#include "parallel/report/expert_load.h"
#include "parallel/report/run_line_internal.h"
#include "parallel/report/step_rows_internal.h"
#include "core/files/prepare.h"
#include "parallel/train/added_loss.h"
#include "parallel/train/measure.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { KEPT_ON_TERMINAL = 20, KEPT_IN_FILE = 100, EVERY_STEP_UP_TO = 50 };

struct wf_run_log {
    FILE *console;
    bool terminal, line_open;
    int columns;
    int64_t steps, interval;
    bool any; /* a step was logged */
    double mean_ms;
    wf_step_rows *rows;  /* NULL: none */
    bool begun, failing; /* failing: rows found no room; that has been reported */
    char *events_folder; /* NULL: none */
    wf_event_file *events;
    bool events_failing;
    bool nothing; /* a step had no loss; that has been reported */
    double world, peak;
    void (*warning)(void *arg, const char *text);
    void *arg;
};

void wf_run_log_console(wf_run_log_options *options, FILE *console)
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

/* Reports what stops no run: hours of work are worth more than a line about them. */
static void warn(const wf_run_log *log, const char *text)
{
    if (log->warning)
        log->warning(log->arg, text);
    else
        wf_par_warn(NULL, text);
}

wf_status wf_run_log_open(const wf_run_log_options *options, wf_run_log **log, wf_error *error)
{
    wf_run_log *l = calloc(1, sizeof *l);
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
    l->world = 1;
    l->peak = options->peak;
    l->warning = options->warning;
    l->arg = options->arg;
    for (int i = 0; i < options->axis_count; i++)
        l->world *= (double)options->axes[i].size;
    if (options->path)
        status = wf_step_rows_open(options, &l->rows, error);
    if (status == WF_OK && options->tensorboard)
        status = wf_output_prepare_folder(".tensorboard", options->tensorboard, error);
    if (status == WF_OK && options->tensorboard &&
        !(l->events_folder = strdup(options->tensorboard)))
        status = wf_error_set(error, WF_ENOMEM, "no memory for the log");
    if (status == WF_OK)
        *log = l;
    else
        wf_run_log_close(l, NULL);
    return status;
}

wf_status wf_run_log_begin(wf_run_log *log, int64_t after, wf_error *error)
{
    wf_status status = WF_OK;

    if (log->begun)
        return WF_OK;
    log->begun = true;
    if (log->events_folder)
        status = wf_event_file_open(log->events_folder, &log->events, error);
    return status == WF_OK && log->rows ? wf_step_rows_begin(log->rows, after, error) : status;
}

int64_t wf_run_log_logged(const wf_run_log *log)
{
    return log->rows ? wf_step_rows_logged(log->rows) : 0;
}

/* Model FLOPs utilization; NaN where no peak is known. */
static double mfu_of(const wf_run_log *log, const wf_step_log *r)
{
    return log->peak > 0 ? r->model_flops_per_s / log->peak : NAN;
}

static wf_status write_row(wf_run_log *log, const wf_step_log *r, wf_error *error)
{
    wf_error unwritten = {WF_OK, ""};
    wf_status status = wf_step_rows_write(log->rows, r, mfu_of(log, r), &unwritten, error);

    if (unwritten.code != WF_OK && !log->failing)
        warn(log, unwritten.text);
    log->failing |=
        unwritten.code != WF_OK; /* a shorter row may still fit: reported once all the same */
    return status;
}

/* Writes the largest load of each mixture's experts over the mean. */
static void write_loads(wf_run_log *log, const wf_step_log *r)
{
    wf_error unwritten = {WF_OK, ""};

    for (int i = 0; i < r->load_count && !log->events_failing; i++) {
        char tag[WF_NN_PATH + 16];
        wf_event_scalar ratio = {tag, (float)wf_expert_load_ratio(&r->loads[i])};

        snprintf(tag, sizeof tag, "expert_load/%s", r->loads[i].path);
        if (!isnan(ratio.value) &&
            wf_event_file_scalars(log->events, r->step, &ratio, 1, &unwritten) != WF_OK)
            log->events_failing = true;
    }
    if (unwritten.code != WF_OK)
        warn(log, unwritten.text);
}

/* Writes the tags of torchtitan, whose rates are those of a device. What has no value has no
   point. */
static void write_events(wf_run_log *log, const wf_step_log *r)
{
    const wf_event_scalar scalars[] = {
        {"loss_metrics/global_avg_loss", r->loss},
        {"grad_norm", r->grad_norm},
        {"lr", (float)r->lr},
        {"throughput(tps)", (float)(r->tokens_per_s / log->world)},
        {"tflops", (float)(r->model_flops_per_s / 1e12 / log->world)},
        {"mfu(%)", (float)(100 * mfu_of(log, r))},
        {"time_metrics/end_to_end(s)", (float)(r->ms / 1e3)},
        {"memory/max_active(GiB)", (float)((double)r->memory_peak / (1 << 30))},
        {"validation_metrics/loss", r->has_val_loss ? r->val_loss : NAN},
    };
    enum { SCALARS = sizeof scalars / sizeof *scalars, LOSSES = 32 };
    wf_event_scalar known[SCALARS + LOSSES + WF_LOG_SCALARS];
    char tag[LOSSES][WF_NN_LOSS_NAME + 16];
    wf_error unwritten = {WF_OK, ""};
    int count = 0;

    for (int i = 0; i < SCALARS; i++)
        if (!isnan(scalars[i].value))
            known[count++] = scalars[i];
    for (int i = 0; i < r->loss_count && i < LOSSES; i++) {
        snprintf(tag[i], sizeof tag[i], "loss_metrics/%s", r->losses[i].name);
        if (!isnan(r->losses[i].mean))
            known[count++] = (wf_event_scalar){tag[i], r->losses[i].mean};
    }
    for (int i = 0; i < r->scalar_count && i < WF_LOG_SCALARS; i++)
        if (r->scalars[i].tag && !isnan(r->scalars[i].value))
            known[count++] = (wf_event_scalar){r->scalars[i].tag, (float)r->scalars[i].value};
    if (wf_event_file_scalars(log->events, r->step, known, count, &unwritten) != WF_OK &&
        !log->events_failing)
        warn(log, unwritten.text);
    log->events_failing |= unwritten.code != WF_OK;
    write_loads(log, r);
}

static void show_step(wf_run_log *log, const wf_step_log *r)
{
    wf_error error = {WF_OK, ""};
    bool keep =
        !log->any || r->step % log->interval == 0 || r->step >= log->steps || r->has_val_loss;
    char line[WF_RUN_LINE];

    if (!keep && !log->terminal)
        return;
    wf_run_line(line, r, log->steps, log->mean_ms, mfu_of(log, r));
    if (log->terminal)
        fputs("\r\033[K", log->console);
    /* A line that wraps could not be rewritten. */
    fprintf(log->console, "%.*s", keep ? WF_RUN_LINE : log->columns - 1, line);
    if (keep)
        fputc('\n', log->console);
    log->line_open = !keep;
    if (fflush(log->console)) {
        wf_error_set(&error, WF_EIO, "cannot write to the console: %s", strerror(errno));
        warn(log, error.text);
        log->console = NULL;
    }
}

/* Warns once of a step whose batch has no target that counts: it has no loss, and gradients of
   0. */
static void warn_of_nothing(wf_run_log *log, const wf_step_log *r)
{
    char text[256];

    if (!isnan(r->loss) || !isfinite(r->grad_norm) || log->nothing)
        return;
    log->nothing = true;
    wf_run_log_clear(log);
    snprintf(text, sizeof text,
             "no token of the batch of step %" PRId64
             " is trained on (loss masks, or documents of one token): it has no loss, and "
             "gradients of 0",
             r->step);
    warn(log, text);
}

wf_status wf_run_log_step(wf_run_log *log, const wf_step_log *record, wf_error *error)
{
    wf_status status = wf_run_log_begin(log, record->step - 1, error);

    warn_of_nothing(log, record);
    /* The first step is slow (caches, page faults): the mean soon forgets it. */
    log->mean_ms = log->any ? 0.8 * log->mean_ms + 0.2 * record->ms : record->ms;
    if (status == WF_OK && log->rows)
        status = write_row(log, record, error);
    if (status == WF_OK && log->events)
        write_events(log, record);
    if (status == WF_OK && log->console)
        show_step(log, record);
    log->any = true;
    return status;
}

void wf_run_log_clear(wf_run_log *log)
{
    if (!log || !log->line_open || !log->console)
        return;
    fputs("\r\033[K", log->console);
    fflush(log->console);
    log->line_open = false;
}

wf_status wf_run_log_close(wf_run_log *log, wf_error *error)
{
    wf_error events = {WF_OK, ""}, rows = {WF_OK, ""};
    wf_status status = WF_OK;

    if (!log)
        return WF_OK;
    wf_run_log_clear(log);
    if (wf_step_rows_close(log->rows, &rows) != WF_OK && !log->failing)
        status = wf_error_set(error, rows.code, "%s", rows.text);
    if (wf_event_file_close(log->events, &events) != WF_OK && !log->events_failing &&
        status == WF_OK)
        status = wf_error_set(error, events.code, "%s", events.text);
    free(log->events_folder);
    free(log);
    return status;
}
