/*
 * tests/bench/bench.h - what the subcommands of bench share: options, rows of results, races
 * between alternating entrants, threads that start at once, worlds of ranks that sleep between
 * their rounds, and the limits of the machine.
 *
 * A figure means something only beside a limit or a peer that was measured in the same run, so
 * a command puts both into one race, and reports medians and ratios.
 */
#ifndef WF_TESTS_BENCH_BENCH_H
#define WF_TESTS_BENCH_BENCH_H

#include <weft/weft.h>

/* ---- options (options.c) ---- */

enum { BENCH_SHAPES = 64, BENCH_SHAPE = 5 };

typedef struct bench_options {
    bool json, quick, help;
    int64_t threads; /* 0: the command's own choice */
    double seconds;  /* the time of one race; 0: the standard */
    const char *shapes, *forms;
    const char *dtype; /* gemm: "fp32", the default, or "bf16" */
    const char *model, *layouts;
    int64_t tp, dp; /* 0: not given */
    bool sequence_parallel;
    const char *exact; /* "on", "off" or "both" */
    bool libraries;    /* step: the same products by other libraries */
    const char *ranks, *sizes;
    const char *device; /* "cpu", "cuda"; NULL: the first */
    bool processes;     /* Weft over MPI, against MPI's own collectives */
    bool mpi_child;     /* started by bench itself, under mpirun */
    const char *self;   /* this program, to start copies of it */
    int cores;
} bench_options;

typedef struct bench_report bench_report;

/* A subcommand. */
typedef struct bench_command {
    const char *name, *summary, *more; /* a line; what is measured, and examples */
    wf_status (*run)(const bench_options *o, bench_report *report, wf_error *error);
    const char *(*here)(void); /* a line on this machine for its help; NULL: none */
} bench_command;

extern const bench_command bench_gemm, bench_attention, bench_step, bench_pipeline, bench_comm,
    bench_dispatch, bench_memory, bench_init, bench_checkpoint, bench_decode, bench_cached,
    bench_experts;

/* Fills *o from the words after the subcommand; WF_EINVAL where one is unknown. */
wf_status bench_options_parse(const bench_command *command, int argc, char **argv,
                              bench_options *o, wf_error *error);
void bench_options_help(const bench_command *command);

/* Next of the words of a list "a,b,c"; false at its end. */
bool bench_next_word(const char **list, char *word, size_t size);

/* The shapes that a command takes: numbers with an x between each two. */
typedef struct bench_shape_rule {
    int numbers;
    int64_t most[BENCH_SHAPE]; /* limit of each number, which is 1 or more */
    /* NULL, or returns true where the numbers go together */
    bool (*fits)(const int64_t *shape);
    const char *text; /* "MxKxN, like 1024x768x3072" */
} bench_shape_rule;

/* Reads a list of shapes; returns how many, 0 with WF_EINVAL where one is none, or there are
   more than BENCH_SHAPES. */
int bench_shapes(const char *list, const bench_shape_rule *rule,
                 int64_t shapes[BENCH_SHAPES][BENCH_SHAPE], wf_error *error);

/* ---- rows (report.c) ---- */

typedef struct bench_cell {
    const char *name; /* key in JSON, and the column's title */
    const char *text; /* NULL: a number */
    double number;    /* NAN: there is none (no such peer) */
    int decimals;
} bench_cell;

static inline bench_cell bench_text(const char *name, const char *text)
{
    return (bench_cell){.name = name, .text = text};
}

static inline bench_cell bench_number(const char *name, double number, int decimals)
{
    return (bench_cell){.name = name, .number = number, .decimals = decimals};
}

struct bench_report {
    const char *command;
    bool json;
    char titles[512]; /* the head of the table that is being printed */
};

/* One result; cells end with one that has no name. A table gets titles when its columns change.
 */
void bench_row(bench_report *report, const bench_cell *cells);

/* A remark: what was measured, what is missing. */
void bench_note(bench_report *report, const char *format, ...) WF_PRINTF(2, 3);

/* ---- races (race.c) ---- */

enum { BENCH_ENTRANTS = 24 };

/* An entrant of a race. */
typedef struct bench_entrant {
    /* the seconds that `repeat` runs took, or NAN after a failure */
    double (*run)(void *arg, int64_t repeat);
    void *arg;
    double seconds; /* result: the median of one run */
} bench_entrant;

/*
 * Rounds in which each entrant runs once, after one that is not counted; a short run is
 * repeated until its sample is long enough to be timed, and a twentieth of the longest of them.
 * False after a failure.
 */
bool bench_race(const bench_options *o, int count, bench_entrant *entrant);

/* Processor time of this thread where one thread does it all (being interrupted then costs
 * nothing), else time of day. */
double bench_now(int threads);

/* The same when a device is through with what it was asked for, time of day then; gpu: NULL on
   the CPU. */
double bench_stop_clock(struct wf_device *gpu, int threads);

double bench_median(double *values, int count);

/* ---- threads at once (workers.c) ---- */

typedef struct bench_workers bench_workers;

/* Members of which the caller is the first; NULL and a text where they can't be had. */
bench_workers *bench_workers_open(int members, wf_error *error);
void bench_workers_close(bench_workers *workers);
int bench_workers_size(const bench_workers *workers);

/* fn(arg, member) on all members at once; seconds from the first start to the last end. */
double bench_workers_run(bench_workers *workers, void (*fn)(void *arg, int member), void *arg);

/* ---- worlds of ranks (world.c) ---- */

typedef struct bench_world bench_world;

/* A rank's work in a round; *own is its own between rounds. */
typedef wf_status bench_part(wf_rank *rank, void **own, void *arg);

/* A world of `ranks` threads that sleep between rounds, so that several worlds can race;
   `threads` of each are bound to cores of their own, where there are enough. */
bench_world *bench_world_open(int ranks, int threads, wf_error *error);

/* Runs a round: every rank does its part. After a failure the world is over. */
wf_status bench_world_run(bench_world *world, bench_part *part, void *arg, wf_error *error);
void bench_world_close(bench_world *world);

/* ---- limits of the machine (limits.c) ---- */

/* The name of the widest instructions for multiply-add that are here: "AVX-512", ... */
const char *bench_fma_name(void);

/* An entrant whose run is `bench_fma_flops(workers)` operations of independent chains. */
bench_entrant bench_fma(bench_workers *workers);
double bench_fma_flops(const bench_workers *workers);

/* The same chains by one member while the others are idle: a member's share of those
   operations. */
bench_entrant bench_fma_alone(bench_workers *workers);

/* The way a copy stores: as memcpy does, or non-temporal. */
typedef enum bench_store { BENCH_STORE_PLAIN, BENCH_STORE_STREAM, BENCH_STORES } bench_store;

/* A copy of `bytes` (a multiple of 64 per member) shared out among a workers. */
typedef struct bench_copy {
    bench_workers *workers;
    const void *from;
    void *to;
    size_t bytes;
    bench_store store;
    int64_t repeat; /* copies of the run in progress */
} bench_copy;

bench_entrant bench_copier(bench_copy *copy);

/* A plain read of memory shared out among workers, who add up its words. */
typedef struct bench_read {
    bench_workers *workers;
    const void *data;
    size_t bytes;
    int64_t repeat; /* reads of the run in progress */
    _Atomic uint64_t sum;
} bench_read;

/* An entrant whose run is one read. */
bench_entrant bench_reader(bench_read *read);

/* A word that goes from the first member of a workers to the second and back; both wait by
   looking, or sleep. */
typedef struct bench_handover {
    bench_workers *workers; /* two members at least, each with a core */
    bool sleeps;
    _Atomic uint32_t turn;
    int64_t repeat;
} bench_handover;

/* An entrant whose run is one hand-over. */
bench_entrant bench_gather_to_one(bench_handover *h);

/* One such copy by this thread; both ends and bytes are multiples of 16, bytes of 64. */
void bench_copy_bytes(bench_store store, void *to, const void *from, size_t bytes);

/* `bytes` of memory in huge pages where there are any, set to small numbers so that every page
 * is there; NULL and a text where there is too little. free() it. */
float *bench_memory_new(size_t bytes, wf_error *error);

/* Opens a context on the CPU with `threads` threads; closed by wf_context_close. */
wf_context *bench_context(int threads, wf_error *error);

/* One on the first GPU. */
wf_context *bench_gpu_context(bool exact_off, wf_error *error);

/* Both directions of attention there, two rows (attention_gpu.c). */
wf_status bench_attention_gpu(const bench_options *o, bench_report *out, int64_t seq,
                              int64_t dim, wf_error *error);

#endif
