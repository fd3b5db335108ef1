/*
 * apps/gpt_train/search.h - gpt_train --plan --search: every layout of a model over ranks, pruned with counts, simulated on
 * a machine, and the best ones planned.
 */
#ifndef WF_APPS_SEARCH_H
#define WF_APPS_SEARCH_H

#include "apps/gpt_train/dry_run.h"
#include "apps/gpt_train/strategy_order.h"
#include "core/dtype.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/simulate/cost.h"

enum { SEARCH_STAGES = 1024, SEARCH_TOP = 10, SEARCH_TABLES = 4096, SEARCH_MEASURED = 4096 };

/* A layout: what the search may choose. */
typedef struct search_candidate {
    int32_t pp, tp, shard, replicate, micro, micros;
    int16_t per_rank; /* stages of a rank; 0 without a pipeline */
    int8_t schedule, strategy, recompute, accumulate, dtype,
        sequence_parallel; /* indices of lists; of wf_pipe_schedule_at, strategy_to_search, wf_dtype */
    float bound;           /* no step is shorter, s */
} search_candidate;

/* Why candidates were left out, in the order in which it is looked at. */
typedef enum search_reason {
#define REASON(name, words) SEARCH_##name,
#include "apps/gpt_train/search_reasons.def"
#undef REASON
    SEARCH_REASONS
} search_reason;

/* One that was simulated, and planned if it is in the list. */
typedef struct search_found {
    search_candidate candidate;
    double seconds, bubble,
        utilisation; /* the step; idle in the pipeline; model FLOPs over the peak's */
    wf_sim_cost path;
    bool planned, fits;
    size_t peak; /* the fullest rank's, where it was planned */
    int rank;
    double estimate; /* bytes that it takes */
} search_found;

/* A lowered table, kept for the next candidate that has it. */
typedef struct search_table {
    const char *schedule;
    int pp, per_rank, micros, group, resident;
    bool again, tied;
    wf_pipe_table *table; /* NULL: it cannot be made */
} search_table;

/* What four and five blocks have shown: bytes that one keeps of a micro-batch, and that are there once. */
typedef struct search_measured {
    search_candidate key;
    double kept, once;
} search_measured;

typedef struct search {
    const app_options *options;
    wf_sim_machine machine;
    wf_sim_model model;
    int64_t ranks, threads; /* what a candidate has; what each of its ranks has */
    bool inexact;           /* layouts that are not exact are taken, too */
    search_candidate *candidate;
    int64_t count, room, considered, simulated, planned;
    int64_t left_out[SEARCH_REASONS];
    search_found
        *top; /* by time; in the end SEARCH_TOP of them at most, which fit by their plans */
    int64_t n_top, room_top;
    search_found plain; /* the best of data parallelism alone; fits: whether there is any */
    search_table table[SEARCH_TABLES];
    int tables;
    search_measured measured[SEARCH_MEASURED];
    int n_measured;
    double seconds; /* work of this process */
} search;

/* What simulated times are known to be off by, in per cent (docs/planning.md): beside runs of ranks that take a machine's
   pace, and beside the published tokens/s of real machines, as scripts/paced.py and scripts/planning.py find it. */
#define SEARCH_PACED_MEDIAN     0.2
#define SEARCH_PACED_WORST      2.3
#define SEARCH_PUBLISHED_RUNS   35
#define SEARCH_PUBLISHED_MEDIAN 40
#define SEARCH_PUBLISHED_LEAST  -80
#define SEARCH_PUBLISHED_MOST   86

/* Lists of what may be chosen. */
extern const char *const search_recompute[], *const search_accumulate[];

/* A candidate's schedule; without a name where it is a file's. */
static inline wf_pipe_schedule search_schedule(const search_candidate *c)
{
    return wf_pipe_schedule_at(c->schedule);
}

/* A candidate's strategy. */
static inline const wf_par_strategy *search_strategy(const search_candidate *c)
{
    return strategy_to_search(c->strategy);
}

/* Find all candidates whose sizes fit together, and bounds of their time and memory. WF_ENOMEM */
wf_status search_enumerate(search *s, wf_error *error);

/* A candidate as options. Its texts are the options'. */
app_options search_options(const search *s, const search_candidate *c);
wf_sim_layout search_layout(const search *s, const search_candidate *c);

/* Where the model is cut into so many stages: [stages + 1]. False: there is no memory. */
bool search_split(const search *s, const search_candidate *c, int stages, int64_t *first);

/* No step of a candidate is shorter, and no rank of it takes less. */
double search_time_bound(const search *s, const search_candidate *c);
double search_memory_bound(const search *s, const search_candidate *c);

/* Bytes that the fullest rank takes, by replaying rows with what a few blocks take: nearly what its plan says. */
double search_memory_estimate(search *s, const search_candidate *c, const wf_pipe_table *table,
                              const int64_t *first, int *rank);

/* The same of a candidate whose table is not made yet, at the least. */
double search_least_memory(search *s, const search_candidate *c);

/* Whether an estimate leaves it open that a plan fits. */
bool search_may_fit(const search *s, double bytes);
bool search_may_fit_in(double bytes, size_t limit);

/* Blocks of a stage; the first and the last step are none. */
double search_blocks(const search *s, const int64_t *first, int stage);

/* The least that it holds at a time, of a candidate whose table is not made yet. */
double search_least_live(const search_candidate *c);

/* Its step in time, with flags of wf_sim_run. False: its schedule cannot be made for these sizes. */
bool search_simulate(search *s, const search_candidate *c, int flags, search_found *found);

/* The same of a table, and of a model cut as `first` says: [stages + 1]. */
bool search_simulate_table(search *s, const search_candidate *c, const wf_pipe_table *table,
                           const int64_t *first, int flags, search_found *found);

/* Plan it; whether all ranks fit. And a first step of the rank alone that takes most by its estimate. */
bool search_plan(search *s, search_found *found);
bool search_plan_fullest(search *s, search_found *found);

/* An empty search with the figures of --machine; NULL on errors. Owner: caller, search_close */
search *search_open(const app_options *options, wf_error *error);
void search_close(search *s);

/* Fill in its list: of s->ranks ranks. */
void search_go(search *s, wf_error *error);

wf_status search_run(const app_options *options, FILE *out, wf_error *error);

/* The step of one layout, as options have it, on --machine, whose name is written to [WF_SIM_NAME]. */
wf_status search_time(const app_options *options, search_found *found, char *machine,
                      wf_error *error);

/* How long what it is takes, by term, along the critical path. */
void search_print_path(const wf_sim_cost *path, double seconds, FILE *out);

/* Naive model parallelism, DDP and FSDP over all ranks, side by side: largest micro-batch that fits, time, how busy
   devices are; and which of them the model needs (search_ways.c). */
void search_print_ways(search *s, FILE *out);

/* The list, and why its first line wins (search_report.c). */
void search_print(search *s, FILE *out);
wf_status search_write_json(const search *s, const char *path, wf_error *error);

#endif
