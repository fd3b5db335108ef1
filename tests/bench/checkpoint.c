/*
 * tests/bench/checkpoint.c - bench checkpoint: saving and loading beside plain writing and
 * reading of as many bytes on the same disk; what an asynchronous save holds a step up, beside
 * a memory copy.
 */
#include "tests/bench/bench.h"
#include "tests/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROUNDS = 7, CHUNK = 1 << 20 };

typedef enum figure { SAVE, WRITE, LOAD, READ, STALL, COPY, FIGURES } figure;

typedef struct bench {
    const bench_options *o;
    bench_report *report;
    char dir[256], file[280];
    char *from, *to; /* two buffers of the state's size */
    size_t bytes;
    double seconds[FIGURES][ROUNDS];
} bench;

/* The bytes into a new file, on the disk when it returns. */
static wf_status plain_write(bench *b, wf_error *error)
{
    int fd = open(b->file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool good = fd >= 0;

    for (size_t at = 0; good && at < b->bytes; at += CHUNK) {
        size_t n = b->bytes - at < CHUNK ? b->bytes - at : CHUNK;

        good = pwrite(fd, b->from + at, n, (off_t)at) == (ssize_t)n;
    }
    good = good && fsync(fd) == 0;
    if (fd >= 0)
        close(fd);
    return good ? WF_OK
                : wf_error_set(error, WF_EIO, "cannot write %s: %s", b->file, strerror(errno));
}

static wf_status plain_read(bench *b, wf_error *error)
{
    int fd = open(b->file, O_RDONLY);
    bool good = fd >= 0;

    for (size_t at = 0; good && at < b->bytes; at += CHUNK) {
        size_t n = b->bytes - at < CHUNK ? b->bytes - at : CHUNK;

        good = pread(fd, b->to + at, n, (off_t)at) == (ssize_t)n;
    }
    if (fd >= 0)
        close(fd);
    return good ? WF_OK
                : wf_error_set(error, WF_EIO, "cannot read %s: %s", b->file, strerror(errno));
}

static wf_status load(wf_par_trainer *trainer, const char *path, wf_error *error)
{
    wf_par_checkpoint *c = wf_par_checkpoint_open(path, error);

    if (c)
        wf_par_checkpoint_load(trainer, c, error);
    wf_par_checkpoint_close(c);
    return error->code;
}

/* Each of them once, in turns; only the first call of an asynchronous save is a stall. */
static wf_status one_round(bench *b, int round, wf_par_trainer *trainer, wf_par_saver *sync,
                           wf_par_saver *async, wf_error *error)
{
    double t[FIGURES + 1];
    char path[512];

    t[SAVE] = wf_test_clock(CLOCK_MONOTONIC);
    wf_par_saver_save(sync, 2 * round + 1, error);
    t[WRITE] = wf_test_clock(CLOCK_MONOTONIC);
    plain_write(b, error);
    t[LOAD] = wf_test_clock(CLOCK_MONOTONIC);
    load(trainer, wf_par_saver_path(sync, 2 * round + 1, path, sizeof path), error);
    t[READ] = wf_test_clock(CLOCK_MONOTONIC);
    plain_read(b, error);
    t[STALL] = wf_test_clock(CLOCK_MONOTONIC);
    wf_par_saver_save(async, 2 * round + 2, error);
    t[COPY] = wf_test_clock(CLOCK_MONOTONIC);
    for (int k = SAVE; k < COPY; k++)
        b->seconds[k][round] = t[k + 1] - t[k];
    wf_par_saver_finish(async, error);
    t[COPY] = wf_test_clock(CLOCK_MONOTONIC);
    memcpy(b->to, b->from, b->bytes);
    b->seconds[COPY][round] = wf_test_clock(CLOCK_MONOTONIC) - t[COPY];
    return error->code;
}

static void report_pair(bench *b, const char *what, figure mine, figure peer)
{
    double m = bench_median(b->seconds[mine], ROUNDS),
           p = bench_median(b->seconds[peer], ROUNDS);
    double gb = (double)b->bytes * 1e-9;

    bench_row(b->report, (bench_cell[]){bench_text("what", what),
                                        bench_number("mb", gb * 1e3, 1),
                                        bench_number("ms", m * 1e3, 2),
                                        bench_number("gb_s", gb / m, 2),
                                        bench_number("plain_ms", p * 1e3, 2),
                                        bench_number("plain_gb_s", gb / p, 2),
                                        bench_number("of_plain", p / m, 3),
                                        {.name = NULL}});
}

static wf_status race(bench *b, wf_par *par, wf_par_trainer *trainer, wf_error *error)
{
    wf_par_save_options options = {.dir = b->dir, .keep = 2};
    wf_par_saver *sync = wf_par_saver_open(trainer, &options), *async;
    wf_memory_report memory;

    options.async = true;
    async = wf_par_saver_open(trainer, &options);
    wf_pool_report(wf_context_pool(wf_par_context(par)), &memory);
    b->bytes = memory.now[WF_MEMORY_CHECKPOINT];
    b->from = async ? (char *)bench_memory_new(b->bytes, error) : NULL;
    b->to = b->from ? (char *)bench_memory_new(b->bytes, error) : NULL;
    for (int round = -1; b->to && round < ROUNDS && error->code == WF_OK; round++)
        one_round(b, round < 0 ? 0 : round, trainer, sync, async, error);
    wf_par_saver_close(async);
    wf_par_saver_close(sync);
    if (b->to && error->code == WF_OK) {
        report_pair(b, "save, against write and fsync", SAVE, WRITE);
        report_pair(b, "load, against read", LOAD, READ);
        report_pair(b, "stall of an async save, against memcpy", STALL, COPY);
    }
    free(b->from);
    free(b->to);
    return error->code;
}

static wf_status bench_rank(wf_rank *rank, void *arg)
{
    static const wf_nn_gpt_config small = {WF_NN_GPT2,  .vocabulary = 256, .positions = 64,
                                           .layers = 2, .heads = 4,        .kv_heads = 4,
                                           .width = 64, .ffn = 256},
                                  large = {WF_NN_GPT2,   .vocabulary = 8192, .positions = 256,
                                           .layers = 6,  .heads = 8,         .kv_heads = 8,
                                           .width = 512, .ffn = 2048};
    bench *b = arg;
    wf_par *par = wf_par_open(rank, &(wf_par_options){.tp = 1}, &rank->error);
    wf_par_trainer *trainer = NULL;
    wf_nn_gpt *model;

    if (!par)
        return rank->error.code;
    model = wf_nn_gpt_new(wf_par_context(par), b->o->quick ? &small : &large);
    if (model && wf_par_plan(par, &model->base, wf_par_gpt_plan) == WF_OK &&
        wf_par_materialize(par, &model->base) == WF_OK)
        trainer = wf_par_trainer_open(
            par, &model->base,
            &(wf_par_train_options){.global_batch = 1,
                                    .field = WF_PAR_GPT_FIELDS(64),
                                    .optimizer = {WF_NN_ADAMW, .beta1 = 0.9f, .beta2 = 0.95f,
                                                  .eps = 1e-8f, .weight_decay = 0.1f},
                                    .schedule = {.lr = 1e-3, .steps = 1},
                                    .loss = wf_par_gpt_loss});
    if (trainer)
        race(b, par, trainer, &rank->error);
    if (wf_context_status(wf_par_context(par)) != WF_OK)
        wf_error_set(&rank->error, wf_context_status(wf_par_context(par)), "%s",
                     wf_context_error(wf_par_context(par))->text);
    wf_par_trainer_close(trainer);
    if (model)
        wf_nn_free(&model->base);
    wf_par_close(par);
    return rank->error.code;
}

static void remove_all(const bench *b)
{
    char command[320];

    snprintf(command, sizeof command, "rm -rf '%s'", b->dir);
    if (system(command) != 0)
        fprintf(stderr, "bench: %s is left over\n", b->dir);
}

static wf_status run(const bench_options *o, bench_report *report, wf_error *error)
{
    const char *where = getenv("TMPDIR");
    bench b = {.o = o, .report = report};

    snprintf(b.dir, sizeof b.dir, "%.200s/weft-bench-XXXXXX", where ? where : "/tmp");
    if (!mkdtemp(b.dir))
        return wf_error_set(error, WF_EIO, "cannot make directory %s: %s", b.dir,
                            strerror(errno));
    snprintf(b.file, sizeof b.file, "%s/plain", b.dir);
    bench_note(report, "one rank, in %s; reading comes from the page cache", b.dir);
    wf_launch(&(wf_launch_options){.ranks = 1}, bench_rank, &b, error);
    remove_all(&b);
    return error->code;
}

const bench_command bench_checkpoint = {
    .name = "checkpoint",
    .summary = "saving and loading, beside plain writing and reading",
    .more =
        "Parameters and moments of a GPT-2, saved and loaded by one rank, beside as many "
        "bytes\n"
        "that are written to a file and synced, and read from it; then what the call of an\n"
        "asynchronous save takes, beside a copy in memory. Files are in $TMPDIR, or in "
        "/tmp.\n\n"
        "  TMPDIR=/data bench checkpoint",
    .run = run};
