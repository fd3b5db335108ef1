/*
 * parallel/pipeline/schedule.h - pipeline schedules as data: a table lists the actions of every
 * pipeline rank, in order. Nothing here needs a rank, a tensor or a device.
 *
 *     wf_pipe_shape shape = {.ranks = 4, .stages = 8, .micro = 16};
 *     wf_pipe_table *table;
 *
 *     wf_pipe_generate("interleaved", &shape, &table, &error);
 *
 * A stage is a run of consecutive layers of the model; a rank may have several. A micro-batch
 * passes forward through all stages, and its gradient back. A custom table is written by a
 * function:
 *
 *     static wf_status waves(const wf_pipe_shape *shape, wf_pipe_table *table)
 *     {
 *         for (int s = 0; s < shape->stages; s++)
 *             wf_pipe_table_set_rank(table, s, s / shape->ranks % 2 ? .. : s % shape->ranks);
 *         return wf_pipe_table_list(table, &(wf_pipe_list_rule){.cap = shape->cap});
 *     }
 *
 *     wf_pipe_register("waves", waves);
 */
#ifndef WF_PARALLEL_PIPELINE_SCHEDULE_H
#define WF_PARALLEL_PIPELINE_SCHEDULE_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

WF_BEGIN_DECLS

/** wf_pipe_kind - the kind of an action: the rows of parallel/pipeline/actions.def. */
typedef enum wf_pipe_kind {
#define ACTION(name, operands, derived) WF_PIPE_##name,
#include "parallel/pipeline/actions.def"
#undef ACTION
    WF_PIPE_KINDS
} wf_pipe_kind;

/** wf_pipe_action - one action of a row. */
typedef struct wf_pipe_action {
    uint8_t kind;        /* a wf_pipe_kind */
    bool with_next;      /* the first of two compute actions that may overlap */
    int16_t stage;       /* 0 where the kind has none */
    int32_t micro, last; /* the micro-batches micro..last; equal but for ranges */
} wf_pipe_action;

/** wf_pipe_shape - the sizes that a schedule is made for. */
typedef struct wf_pipe_shape {
    int ranks, stages, micro; /* stages: a multiple of ranks */
    /* list: most live activations of a rank, in stages; 0: as many as it has stages times
       ranks, the memory of 1f1b */
    int cap;
} wf_pipe_shape;

/** wf_pipe_facts - the decisions of lowering; all zeros where a table has compute actions
 * alone. */
typedef struct wf_pipe_facts {
    bool lowered; /* rows have messages, NORM and OPT */
    /* gradients are reduced over data-parallel ranks in groups of this many micro-batches; 0:
       never */
    int group;
    /* most stages of a rank that are gathered at a time; 0: no gathers */
    int resident;
    /* stages at the beginning without trained parameters: no gradient is sent to them */
    int frozen;
    /* the first and the last stage share a parameter: TIE where they are on two ranks */
    bool tied;
} wf_pipe_facts;

typedef struct wf_pipe_table wf_pipe_table;

/** wf_pipe_generator - writes the rows, and the ranks of the stages, of a table whose shape is
 * set. */
typedef wf_status wf_pipe_generator(const wf_pipe_shape *shape, wf_pipe_table *table);

/** WF_PIPE_SCHEDULE - the schedule by default. */
#define WF_PIPE_SCHEDULE "1f1b"

/** wf_pipe_schedule - a schedule by its name: a row of parallel/pipeline/schedules.def, or a
 * registered one, of
 *  which nothing is known. */
typedef struct wf_pipe_schedule {
    const char *name;
    wf_pipe_generator *generate;
    int per_rank; /* stages of a rank, by default */
    /* most stages of a rank that a search tries, doubling; 0: it leaves the schedule out */
    int searched;
    int needs;  /* micro-batches to a rank of the pipeline that a table needs */
    bool whole; /* gradients of inputs and of weights are one action, B, in all tables */
    /* micro-batches, to a rank of the pipeline, whose activations the first rank holds at the
       least; INFINITY: all */
    double live;
    const char *what; /* a line for users */
} wf_pipe_schedule;

/**
 * wf_pipe_table_new - makes an empty table: no stage is placed, no row has an action
 *
 * @param shape  1 to 1024 ranks, 1 to 32767 stages, 1 to 2^20 micro-batches, 2^26 stages times
 *               micro-batches
 * @param table  the new table, the caller's: wf_pipe_table_free
 * Errors:       WF_EINVAL: a size is none of these; WF_ENOMEM
 */
WF_API wf_status wf_pipe_table_new(const wf_pipe_shape *shape, wf_pipe_table **table,
                                   wf_error *error);

/** wf_pipe_table_free - frees a table; NULL is allowed. */
WF_API void wf_pipe_table_free(wf_pipe_table *table);

/**
 * wf_pipe_table_set_rank - assigns a stage to a rank
 *
 * Errors:  WF_EINVAL: no such stage or rank. A table keeps its first error: wf_pipe_table_error
 */
WF_API wf_status wf_pipe_table_set_rank(wf_pipe_table *table, int stage, int rank);

/**
 * wf_pipe_table_add - appends an action to a row
 *
 *     wf_pipe_table_add(table, rank, WF_PIPE_F, stage, micro);
 *
 * @param stage, micro  0 where the kind has none
 * Errors:  WF_EINVAL: no such rank, kind, stage or micro-batch; WF_ENOMEM. As above, kept
 */
WF_API wf_status wf_pipe_table_add(wf_pipe_table *table, int rank, wf_pipe_kind kind, int stage,
                                   int micro);

/** wf_pipe_table_append - appends any action to a row: ranges, actions that overlap. */
WF_API wf_status wf_pipe_table_append(wf_pipe_table *table, int rank,
                                      const wf_pipe_action *action);

/**
 * wf_pipe_table_refuse - stores an error in the table: name the rule, the values, the fix
 *
 * Returns: WF_EINVAL, or the error that was kept before
 */
WF_API wf_status wf_pipe_table_refuse(wf_pipe_table *table, const char *format, ...)
    WF_PRINTF(2, 3);

/** wf_pipe_table_error - returns the first error of a table; its code is WF_OK without one.
 * Owner: the table. */
WF_API const wf_error *wf_pipe_table_error(const wf_pipe_table *table);

/** wf_pipe_table_shape - returns the sizes of a table. */
WF_API wf_pipe_shape wf_pipe_table_shape(const wf_pipe_table *table);

/** wf_pipe_table_facts - returns the decisions of lowering. */
WF_API wf_pipe_facts wf_pipe_table_facts(const wf_pipe_table *table);

/** wf_pipe_table_rank - returns the rank that has a stage; -1: it is not placed. */
WF_API int wf_pipe_table_rank(const wf_pipe_table *table, int stage);

/** wf_pipe_table_row - returns the actions of a rank, n of them, valid until the table
 * changes. */
WF_API const wf_pipe_action *wf_pipe_table_row(const wf_pipe_table *table, int rank,
                                               int64_t *n);

/** wf_pipe_runs_beside - returns whether an action and the one after it run alternately where
 * experts' tokens are exchanged: F, and B or I of another stage, that may overlap. */
WF_API bool wf_pipe_runs_beside(const wf_pipe_action *action);

/** wf_pipe_action_text - writes an action as "F2.5", "W2.4-7", "NORM"; returns text. */
WF_API char *wf_pipe_action_text(const wf_pipe_action *action, char *text, size_t size);

/** wf_pipe_list_rule - the constraint of list scheduling. */
typedef struct wf_pipe_list_rule {
    /* most live activations of a rank, in stages, at least as many as it has stages; 0: as
       wf_pipe_shape.cap */
    int cap;
} wf_pipe_list_rule;

/**
 * wf_pipe_table_list - fills the rows of a placed table by list scheduling: whenever a rank is
 * free it begins a ready action, I before F before W, later stages before earlier ones, earlier
 * micro-batches before later ones. Forwards of a stage leave one slot free for each later stage
 * of the rank, so that caps as small as its number of stages make progress.
 *
 * Errors:  WF_EINVAL: a stage is not placed, rows are not empty, or the cap is too small;
 *          WF_ENOMEM. Stored in the table
 */
WF_API wf_status wf_pipe_table_list(wf_pipe_table *table, const wf_pipe_list_rule *rule);

/**
 * wf_pipe_generate - makes the table of a schedule
 *
 * @param name   a row of parallel/pipeline/schedules.def, or one that wf_pipe_register was
 *               given
 * @param table  the new table, the caller's: wf_pipe_table_free; NULL on errors
 * Errors:       WF_EINVAL: no such schedule (the text lists them), or the schedule is not
 *               defined for the shape (the text names the rule, the values and the fix);
 *               WF_ENOMEM
 */
WF_API wf_status wf_pipe_generate(const char *name, const wf_pipe_shape *shape,
                                  wf_pipe_table **table, wf_error *error);

/**
 * wf_pipe_register - adds a custom schedule; it replaces another one of the same name
 *
 * Call it before ranks are started: registered schedules are the process's.
 *
 * @param name  alive as long as the process
 * Errors:      WF_EINVAL: no name or no generator, or 32 schedules are registered
 */
WF_API wf_status wf_pipe_register(const char *name, wf_pipe_generator *generate);

/** wf_pipe_schedule_at - returns the i-th schedule; its name is NULL past the last one. */
WF_API wf_pipe_schedule wf_pipe_schedule_at(int i);

/** wf_pipe_schedule_find - returns the number of a schedule for wf_pipe_schedule_at; -1: none
 * has the name. */
WF_API int wf_pipe_schedule_find(const char *name);

/**
 * wf_pipe_least_live - returns the micro-batches whose activations the first rank holds at a
 * time, in all of its stages, at the least: the first one until its backward pass begins; and
 * of few ones on a V those end before all have begun.
 */
WF_API double wf_pipe_least_live(const wf_pipe_schedule *schedule, const wf_pipe_shape *shape);

/** wf_pipe_costs - the times of actions, in ticks: whole numbers, so that times are exact. */
typedef struct wf_pipe_costs {
    int64_t forward, inputs, weights; /* F (and R), I, W of a stage; B is I and W */
    int64_t message; /* from the end of a send's action to that of its receive */
    /* actions that may overlap begin when both can and end together, as one block; else one
       after the other */
    bool blocks;
} wf_pipe_costs;

/** wf_pipe_span - a rank's compute time, and its memory in activations. */
typedef struct wf_pipe_span {
    /* ticks: begin of its first and end of its last compute action; all of them together */
    int64_t begin, end, busy;
    int peak; /* most live activations: stages forward without W or B */
} wf_pipe_span;

/** wf_pipe_timing - a table in time. */
typedef struct wf_pipe_timing {
    int64_t makespan; /* ticks */
    int64_t idle; /* ticks of all ranks together; over makespan times ranks: the step bubble */
    int64_t span_idle, span; /* their ratio for the rank where it is largest: the span bubble */
    wf_pipe_span *rank;      /* [ranks] */
    int64_t **start, **end;  /* [ranks][actions of the row] */
    int rows;                /* length of these arrays */
} wf_pipe_timing;

/**
 * wf_pipe_simulate - computes when each action begins and ends where ranks run their rows as
 * soon as they can
 *
 * In a table without messages, an input from another rank arrives `message` after it was made,
 * and any number of messages may be in flight. Sends of a table with messages end when they
 * have been received (rendezvous), so few buffers cost time.
 *
 * @param timing  the caller's, whose arrays wf_pipe_timing_free frees
 * Errors:        WF_EINVAL: the table cannot end; the text has the cycle of ranks. WF_ENOMEM
 */
WF_API wf_status wf_pipe_simulate(const wf_pipe_table *table, const wf_pipe_costs *costs,
                                  wf_pipe_timing *timing, wf_error *error);

/** wf_pipe_timing_free - frees the arrays of a timing. */
WF_API void wf_pipe_timing_free(wf_pipe_timing *timing);

WF_END_DECLS

#endif
