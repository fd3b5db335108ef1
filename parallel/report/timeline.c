/* parallel/report/timeline.c - see the header. */
#include "parallel/report/timeline.h"
#include "mesh/comm/collective.h"
#include "core/files/prepare.h"
#include "core/files/output.h"
#include <inttypes.h>
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    COMPUTE,
    COMMUNICATION, /* the first of the rows for collectives */
    MOST_ROWS = 16,
    PIPELINE = COMMUNICATION + MOST_ROWS /* shown above them */
};

/* The rows of a rank, until those of all ranks are there. */
typedef struct part {
    char *text;
    size_t bytes;
} part;

struct wf_timeline {
    char *path;
    pthread_mutex_t lock;
    bool begun, changed; /* changed: since the file was written */
    int ranks, come;
    part of[];
};

/* The text that the rows of a rank are written to. */
typedef struct rows {
    FILE *file;
    int64_t zero; /* time 0 of the timeline, by this host's clock */
    bool empty;
} rows;

/* Checks the file, which changes nothing: the timeline replaces it later. */
static wf_status check(const char *path, wf_error *error)
{
    struct stat s;

    if (stat(path, &s) == 0 && !S_ISREG(s.st_mode))
        return wf_error_set(error, WF_EIO,
                            "cannot write timeline %s: it is no regular file, which a timeline "
                            "replaces",
                            path);
    return wf_output_prepare(".trace", path, error);
}

static void free_timeline(wf_timeline *t)
{
    for (int r = 0; r < t->ranks; r++)
        free(t->of[r].text);
    free(t->path);
    free(t);
}

wf_status wf_timeline_open(const char *path, int ranks, wf_timeline **timeline, wf_error *error)
{
    wf_timeline *t;

    *timeline = NULL;
    if (check(path, error) != WF_OK)
        return error->code;
    t = calloc(1, sizeof *t + (size_t)ranks * sizeof *t->of);
    if (!t)
        return wf_error_set(error, WF_ENOMEM, "no memory for a timeline");
    t->path = strdup(path);
    if (!t->path) {
        free_timeline(t);
        return wf_error_set(error, WF_ENOMEM, "no memory for a timeline");
    }
    t->ranks = ranks;
    pthread_mutex_init(&t->lock, NULL);
    *timeline = t;
    return WF_OK;
}

int64_t wf_timeline_clock(void)
{
    struct timespec t;

    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* One line; takes the object. */
static wf_status put(rows *t, json_t *object, wf_error *error)
{
    bool good = object && fputs(t->empty ? "" : ",\n", t->file) != EOF &&
                json_dumpf(object, t->file, JSON_COMPACT | JSON_REAL_PRECISION(15)) == 0;

    t->empty = false;
    json_decref(object);
    return good ? WF_OK
                : wf_error_set(error, WF_ENOMEM, "no memory for an event of the timeline");
}

static wf_status put_name(rows *t, const char *what, int rank, int row, const char *name,
                          wf_error *error)
{
    return put(t,
               json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "name", what, "ph", "M", "pid", rank,
                         "tid", row, "args", "name", name),
               error);
}

/* Viewers sort by name or by number of events where nothing is said. */
static wf_status put_order(rows *t, const char *what, int rank, int row, int location,
                           wf_error *error)
{
    return put(t,
               json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "name", what, "ph", "M", "pid", rank,
                         "tid", row, "args", "sort_index", location),
               error);
}

static wf_status put_row(rows *t, int rank, int row, const char *name, wf_error *error)
{
    wf_status status = put_name(t, "thread_name", rank, row, name, error);

    return status == WF_OK ? put_order(t, "thread_sort_index", rank, row, row, error) : status;
}

static wf_status put_event(rows *t, int rank, int row, const wf_trace_event *e, wf_error *error)
{
    static const char *const categories[] = {"op",   "phase", "action",
                                             "wait", "host",  "transfer"};
    bool moves = e->kind == WF_TRACE_WAIT || e->kind == WF_TRACE_TRANSFER;
    char name[64];
    json_t *args;

    if (e->kind == WF_TRACE_ACTION)
        row = PIPELINE;
    snprintf(name, sizeof name, "%s%s", e->kind == WF_TRACE_WAIT ? "wait for " : "", e->name);
    if (moves)
        args = json_pack("{s:s, s:s, s:I}", "kind", e->name, "axis", e->location, "bytes",
                         (json_int_t)e->bytes);
    else if (e->location)
        args = json_pack("{s:s}", "module", e->location);
    else
        args = json_object();
    return put(t,
               json_pack("{s:s, s:s, s:s, s:f, s:f, s:i, s:i, s:o}", "name", name, "cat",
                         categories[e->kind], "ph", "X", "ts",
                         (double)(e->start - t->zero) / 1e3, "dur",
                         (double)(e->end - e->start) / 1e3, "pid", rank, "tid", row, "args",
                         args),
               error);
}

/* An arrow from the action that begins to send a message to the one that ends its receipt. */
static wf_status put_arrow(rows *t, int rank, const wf_trace_event *e, wf_error *error)
{
    bool sends = strcmp(e->name, wf_collective_name(WF_SEND)) == 0;
    char id[24];

    snprintf(id, sizeof id, "0x%016" PRIx64, e->message);
    return put(t,
               json_pack("{s:s, s:s, s:s, s:s, s:s, s:f, s:i, s:i}", "name", "message", "cat",
                         "message", "ph", sends ? "s" : "f", "bp", "e", "id", id, "ts",
                         (double)((sends ? e->begun : e->end) - t->zero) / 1e3, "pid", rank,
                         "tid", PIPELINE),
               error);
}

static int by_start(const void *a, const void *b)
{
    const wf_trace_event *x = *(const wf_trace_event *const *)a;
    const wf_trace_event *y = *(const wf_trace_event *const *)b;

    return (x->start > y->start) - (x->start < y->start);
}

/* Writes transfers. Those of one group but its messages never overlap, those of different
   groups may: a concurrent one goes to a further row. */
static wf_status put_transfers(rows *t, int rank, int64_t n, const wf_trace_event **transfer,
                               wf_error *error)
{
    int64_t busy[MOST_ROWS] = {0};
    wf_status status = WF_OK;

    qsort(transfer, (size_t)n, sizeof(const wf_trace_event *), by_start);
    for (int64_t i = 0; i < n && status == WF_OK; i++) {
        int row = 0;

        while (row < MOST_ROWS - 1 && busy[row] > transfer[i]->start)
            row++;
        if (busy[row] == 0)
            status = put_row(t, rank, COMMUNICATION + row,
                             row ? "communication at the same time" : "communication", error);
        busy[row] = transfer[i]->end;
        if (status == WF_OK)
            status = put_event(t, rank, COMMUNICATION + row, transfer[i], error);
    }
    return status;
}

/* Writes the rank's own events, in the order in which they ended. */
static wf_status put_own(rows *t, int rank, const wf_trace_event *e, bool *acts,
                         wf_error *error)
{
    wf_status status = WF_OK;

    if (e->kind == WF_TRACE_ACTION && !*acts) {
        *acts = true;
        status = put_name(t, "thread_name", rank, PIPELINE, "pipeline", error);
        if (status == WF_OK)
            status = put_order(t, "thread_sort_index", rank, PIPELINE, -1, error);
    }
    if (status == WF_OK)
        status = put_event(t, rank, COMPUTE, e, error);
    return status == WF_OK && e->message ? put_arrow(t, rank, e, error) : status;
}

static wf_status put_rank(rows *t, int rank, const wf_trace *trace,
                          const wf_trace_event **transfer, wf_error *error)
{
    int64_t n = 0;
    char name[32];
    bool acts = false;
    wf_status status;

    snprintf(name, sizeof name, "rank %d", rank);
    status = put_name(t, "process_name", rank, COMPUTE, name, error);
    if (status == WF_OK)
        status = put_order(t, "process_sort_index", rank, COMPUTE, rank, error);
    if (status == WF_OK)
        status = put_row(t, rank, COMPUTE, "compute", error);
    for (int64_t i = 0; i < wf_trace_count(trace) && status == WF_OK; i++) {
        const wf_trace_event *e = wf_trace_at(trace, i);

        if (e->kind == WF_TRACE_TRANSFER)
            transfer[n++] = e;
        else
            status = put_own(t, rank, e, &acts, error);
    }
    return status == WF_OK ? put_transfers(t, rank, n, transfer, error) : status;
}

wf_status wf_timeline_text(int rank, const wf_trace *trace, int64_t zero, char **text,
                           size_t *bytes, wf_error *error)
{
    const wf_trace_event **transfer =
        malloc(((size_t)wf_trace_count(trace) + 1) * sizeof(const wf_trace_event *));
    rows to = {.zero = zero - (wf_timeline_clock() - wf_trace_now()), .empty = true};
    wf_status status;

    *text = NULL;
    to.file = transfer ? open_memstream(text, bytes) : NULL;
    if (to.file) {
        status = put_rank(&to, rank, trace, transfer, error);
        if (fclose(to.file) == 0 && status == WF_OK) {
            free(transfer);
            return WF_OK;
        }
    }
    free(transfer);
    free(*text);
    *text = NULL;
    return wf_error_set(error, WF_ENOMEM, "no memory for the timeline of rank %d", rank);
}

/* All that has come, rank by rank. */
static bool write_parts(const wf_timeline *t, FILE *file)
{
    bool good = fputs("[\n", file) != EOF, empty = true;

    for (int r = 0; r < t->ranks && good; r++) {
        const part *p = &t->of[r];

        if (!p->text)
            continue;
        good = (empty || fputs(",\n", file) != EOF) &&
               fwrite(p->text, 1, p->bytes, file) == p->bytes;
        empty = false;
    }
    return good && fputs("\n]\n", file) != EOF;
}

static wf_status replace(wf_timeline *t, wf_error *error)
{
    wf_output *output = wf_output_open(t->path, error);

    if (!output)
        return error->code;
    if (write_parts(t, wf_output_stream(output))) {
        t->changed = wf_output_publish(output, error) != WF_OK;
        return error->code;
    }
    wf_output_failed(output, error);
    wf_output_discard(output);
    return error->code;
}

wf_status wf_timeline_begin(wf_timeline *t, wf_error *error)
{
    wf_status status;

    pthread_mutex_lock(&t->lock);
    t->begun = true;
    status = replace(t, error);
    pthread_mutex_unlock(&t->lock);
    return status;
}

void wf_timeline_put(wf_timeline *t, int rank, char *text, size_t bytes)
{
    wf_error later = {WF_OK, ""};

    pthread_mutex_lock(&t->lock);
    t->of[rank] = (part){text, bytes};
    t->changed = true;
    if (++t->come == t->ranks && t->begun)
        replace(t, &later);
    pthread_mutex_unlock(&t->lock);
}

wf_status wf_timeline_close(wf_timeline *t, wf_error *error)
{
    wf_status status = WF_OK;

    if (!t)
        return WF_OK;
    if (t->changed && t->begun)
        status = replace(t, error);
    pthread_mutex_destroy(&t->lock);
    free_timeline(t);
    return status;
}
