/*
 * parallel/plan/search_internal.h - gpt_train --plan --search: every layout of a model over
 * ranks, pruned with counts, simulated on a machine, and the best ones planned.
 */
#ifndef WF_PARALLEL_PLAN_SEARCH_INTERNAL_H
#define WF_PARALLEL_PLAN_SEARCH_INTERNAL_H

#include "parallel/plan/search.h"
#include "parallel/plan/strategy_order_internal.h"
#include "core/dtype.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/simulate/cost.h"

enum {
    WF_SEARCH_STAGES = 1024,
    WF_SEARCH_TOP = 10,
    WF_SEARCH_TABLES = 4096,
    WF_SEARCH_MEASURED = 4096
};

/* A layout: what the search may choose. */
typedef struct wf_search_candidate {
    int32_t pp, tp, shard, replicate, micro, micros;
    int32_t ep;       /* ranks of `shard` that split experts; 0 as 1 */
    int32_t cp;       /* ranks that split tokens; 0 as 1 */
    int16_t per_rank; /* stages of a rank; 0 without a pipeline */
    int8_t schedule, strategy, recompute, accumulate, dtype,
        /* indices of lists; of wf_pipe_schedule_at, wf_strategy_to_search, wf_dtype */
        sequence_parallel, gather_keys, features; /* features: tp splits those of experts */
    float bound;                                  /* no step is shorter, s */
} wf_search_candidate;

/* Why candidates were left out, in the order in which it is looked at. */
typedef enum wf_search_reason {
#define REASON(name, words) WF_SEARCH_##name,
#include "parallel/plan/search_reasons.def"
#undef REASON
    WF_SEARCH_REASONS
} wf_search_reason;

/* One that was simulated, and planned if it is in the list. */
typedef struct wf_search_found {
    wf_search_candidate candidate;
    double seconds, bubble,
        utilisation; /* the step; idle in the pipeline; model FLOPs over the peak's */
    wf_sim_cost path;
    bool planned, fits;
    bool refused; /* does not fit by its plan, for another reason than memory */
    size_t peak;  /* the fullest rank's, where it was planned */
    int rank;
    double estimate; /* bytes that it takes */
} wf_search_found;

/* A lowered table, kept for the next candidate that has it. */
typedef struct wf_search_table {
    const char *schedule;
    int pp, per_rank, micros, group, resident;
    bool recompute, tied;
    wf_pipe_table *table; /* NULL: it cannot be made */
} wf_search_table;

/* Measured memory, from plans of four and five blocks: bytes of a block for a micro-batch, and
   bytes that are there once. */
typedef struct wf_search_measured {
    wf_search_candidate key;
    double kept, once;
} wf_search_measured;

typedef struct wf_search {
    const wf_plan_request *options;
    wf_sim_machine machine;
    wf_sim_model model;
    int64_t ranks, threads; /* a candidate's; each of its ranks' */
    bool inexact;           /* layouts that are not exact are taken, too */
    bool timed;             /* no sizes are known: each candidate is timed by its plans */
    wf_search_candidate *candidate;
    int64_t count, room, considered, simulated, planned;
    int64_t left_out[WF_SEARCH_REASONS];
    wf_search_found
        *top; /* by time; in the end WF_SEARCH_TOP of them at most, which fit by their plans */
    int64_t n_top, room_top;
    wf_search_found plain; /* the best of data parallelism alone; fits: whether there is any */
    bool no_plain;         /* no candidate is data parallelism alone */
    wf_search_table table[WF_SEARCH_TABLES];
    int tables;
    wf_search_measured measured[WF_SEARCH_MEASURED];
    int n_measured;
    /* why the first plan was refused that was so for another reason than memory; WF_OK: none
       was */
    wf_error refusal;
    double seconds; /* work of this process */
} wf_search;

/* Known errors of simulated times, in per cent (docs/planning.md): beside runs of ranks that
   take a machine's pace, and beside the published tokens/s of real machines, as
   scripts/proofs/paced.py and scripts/pages/planning.py find it. */
#define WF_SEARCH_PACED_MEDIAN     0.2
#define WF_SEARCH_PACED_WORST      2.3
#define WF_SEARCH_PUBLISHED_RUNS   35
#define WF_SEARCH_PUBLISHED_MEDIAN 41
#define WF_SEARCH_PUBLISHED_LEAST  -80
#define WF_SEARCH_PUBLISHED_MOST   91

/* Lists of what may be chosen. */
extern const char *const wf_search_recompute[], *const wf_search_accumulate[];

/* A candidate's schedule; without a name where it is a file's. */
static inline wf_pipe_schedule wf_search_schedule(const wf_search_candidate *c)
{
    return wf_pipe_schedule_at(c->schedule);
}

/* Returns how many data-parallel ranks of a candidate split experts. */
static inline int64_t wf_search_ep(const wf_search_candidate *c)
{
    return c->ep > 1 ? c->ep : 1;
}

/* Returns how many of all ranks of a candidate split experts, but those of cp: those of tp may
   split their features. */
static inline int64_t wf_search_owners(const wf_search_candidate *c)
{
    return wf_search_ep(c) * (c->features ? 1 : c->tp);
}

/* Returns how many ranks of a candidate split the tokens of a sequence. */
static inline int64_t wf_search_cp(const wf_search_candidate *c)
{
    return c->cp > 1 ? c->cp : 1;
}

/* A candidate's strategy. */
static inline const wf_par_strategy *wf_search_strategy(const wf_search_candidate *c)
{
    return wf_strategy_to_search(c->strategy);
}

/* Find all candidates whose sizes fit together, and bounds of their time and memory.
   WF_ENOMEM */
wf_status wf_search_enumerate(wf_search *s, wf_error *error);

/* Returns whether attention of a candidate with cp gathers keys and values by itself: queries
   have too few heads, or sequence parallelism cuts tokens further. */
bool wf_search_must_gather(const wf_search *s, const wf_search_candidate *c);

/* A candidate as options. Its texts are the options'. */
wf_plan_request wf_search_options(const wf_search *s, const wf_search_candidate *c);
wf_sim_layout wf_search_layout(const wf_search *s, const wf_search_candidate *c);

/* Cuts the model into `stages` stages; writes the first step of each, and the end: [stages +
   1]. False: there is no memory. */
bool wf_search_split(const wf_search *s, const wf_search_candidate *c, int stages,
                     int64_t *first);

/* No step of a candidate is shorter, and no rank of it takes less. */
double wf_search_time_bound(const wf_search *s, const wf_search_candidate *c);
double wf_search_memory_bound(const wf_search *s, const wf_search_candidate *c);

/* Parameters of a block on a tensor-parallel rank, of whose experts it has one of `ep`
   parts. */
double wf_search_parameters(const wf_search *s, const wf_search_candidate *c, int64_t ep);

/* Bytes that the fullest rank takes, by replaying rows with what a few blocks take: nearly what
   its plan says. */
double wf_search_memory_estimate(wf_search *s, const wf_search_candidate *c,
                                 const wf_pipe_table *table, const int64_t *first, int *rank);

/* The same of a candidate whose table is not made yet, at the least. */
double wf_search_least_memory(wf_search *s, const wf_search_candidate *c);

/* Return true where an estimate leaves it open that a plan fits. */
bool wf_search_may_fit(const wf_search *s, double bytes);
bool wf_search_may_fit_in(double bytes, size_t limit);

/* Returns the bytes of what the optimizer keeps of a parameter, at least: of 8 bits without the
   scales, which follow from the length of rows. */
double wf_search_state_bytes(const wf_search *s);

/* Blocks of a stage; the first and the last step are none. */
double wf_search_blocks(const wf_search *s, const int64_t *first, int stage);

/* The least that it holds at a time, of a candidate whose table is not made yet. */
double wf_search_least_live(const wf_search_candidate *c);

/* Times a request by plans of its ranks: any model's. */
wf_status wf_search_time_plans(const wf_plan_request *request, const wf_sim_machine *machine,
                               int flags, wf_search_found *found, wf_error *error);

/* Its step in time, with flags of wf_sim_run. False: its schedule cannot be made for these
   sizes. */
bool wf_search_simulate(wf_search *s, const wf_search_candidate *c, int flags,
                        wf_search_found *found);

/* The same of a table, and of a model cut as `first` says: [stages + 1]. */
bool wf_search_simulate_table(wf_search *s, const wf_search_candidate *c,
                              const wf_pipe_table *table, const int64_t *first, int flags,
                              wf_search_found *found);

/* Returns whether a run would take the options of a candidate; keeps why the first one was
   refused. */
bool wf_search_may_run(wf_search *s, const wf_search_candidate *c);

/* Plan it; whether all ranks fit. And a first step of the rank alone that takes most by its
   estimate. */
bool wf_search_plan(wf_search *s, wf_search_found *found);
bool wf_search_plan_fullest(wf_search *s, wf_search_found *found);

/* An empty search with the figures of --machine; NULL on errors. Owner: caller,
   wf_search_close */
wf_search *wf_search_open(const wf_plan_request *options, wf_error *error);
void wf_search_close(wf_search *s);

/* Fill in its list: of s->ranks ranks. */
void wf_search_go(wf_search *s, wf_error *error);

/* Returns a search that is made, of as many ranks as the request says; NULL on errors. Owner:
   caller, wf_search_close */
wf_search *wf_search_made(const wf_plan_request *options, wf_error *error);

/* Lists what it has found. Owner: caller, wf_plan_list_free, also after errors. */
wf_status wf_search_list(const wf_search *s, wf_plan_list *list, wf_error *error);

/* Searches, prints the list, and writes options->json. */
wf_status wf_search_run(const wf_plan_request *options, FILE *out, wf_error *error);

/* The step of one layout, as options have it, on --machine, whose name is written to
   [WF_SIM_NAME]. */
wf_status wf_search_time(const wf_plan_request *options, wf_search_found *found, char *machine,
                         wf_error *error);

/* Prints by how much times are known to be off: of sums of a plan's ops (`timed`), or of those
   by a model's sizes. */
void wf_search_print_accuracy(bool timed, FILE *out);

/* Prints the time along the critical path, by term. */
void wf_search_print_path(const wf_sim_cost *path, double seconds, FILE *out);

/* Naive model parallelism, DDP and FSDP over all ranks, side by side: largest micro-batch that
   fits, time, how busy devices are; and which of them the model needs (search_baselines.c). */
void wf_search_print_baselines(wf_search *s, FILE *out);

/* The list, and why its first line wins (search_report.c). */
void wf_search_print(wf_search *s, const wf_plan_list *list, FILE *out);
wf_status wf_search_write_json(const wf_plan_list *list, const char *path, wf_error *error);

#endif
