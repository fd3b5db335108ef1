/* parallel/pipeline/table_internal.h - what a table is made of, and what generators share. */
#ifndef WF_PARALLEL_PIPELINE_TABLE_INTERNAL_H
#define WF_PARALLEL_PIPELINE_TABLE_INTERNAL_H

#include "parallel/pipeline/schedule.h"

typedef struct wf_pipe_row {
    wf_pipe_action *action;
    int64_t n, room;
} wf_pipe_row;

struct wf_pipe_table {
    wf_pipe_shape shape;
    int16_t *stage_rank; /* [stages] ranks, -1: not placed */
    wf_pipe_row *row;    /* [ranks] */
    wf_error error;      /* the first one */
    wf_pipe_facts facts;
};

/* The name of a kind, its operands, and whether lowering derives it. */
enum wf_pipe_operands { WF_PIPE_NONE, WF_PIPE_STAGE, WF_PIPE_MICRO, WF_PIPE_RANGE };

typedef struct wf_pipe_kind_info {
    const char *name;
    enum wf_pipe_operands operands;
    bool derived;
} wf_pipe_kind_info;

extern const wf_pipe_kind_info wf_pipe_kind_table[WF_PIPE_KINDS];

/* Returns the index of (stage, micro) in arrays with one entry for each. */
static inline int64_t wf_pipe_at(const wf_pipe_table *t, int64_t stage, int64_t micro)
{
    return stage * t->shape.micro + micro;
}

/* Returns true where a gradient comes back from a stage to the one before it. */
static inline bool wf_pipe_gradient_leaves(const wf_pipe_table *t, int stage)
{
    return stage > t->facts.frozen;
}

/* Stages go round the ranks: stage s is on rank s % ranks. */
void wf_pipe_assign_loop(wf_pipe_table *t);

/* Two stages a rank, on a V: down the ranks, and back up. Refuses another number of stages. */
wf_status wf_pipe_assign_v(const char *name, wf_pipe_table *t);

/* Refuses more than one stage a rank; `instead` is a schedule that takes them. */
wf_status wf_pipe_one_stage(const char *name, wf_pipe_table *t, const char *instead);

/* 1F1B over the rounds of interleaved schedules (rounds.c). `warm`: forwards before the first
   backward per rank after this one. `split`: I and W are actions of their own, W of rank r is r
   actions later. */
wf_status wf_pipe_rounds(const wf_pipe_shape *shape, wf_pipe_table *t, int warm, bool split);

/* All forwards, then all backwards, of one stage after the other (gpipe and looped-bfs). */
wf_status wf_pipe_all_forward(const wf_pipe_shape *shape, wf_pipe_table *t);

/* A building block on a V: how much later F0, F1, I1 and I0 of one micro-batch begin on the
   next rank, in units of which a micro-batch takes six of each rank (block.c). */
typedef struct wf_pipe_block {
    int f0, f1, i1, i0;
} wf_pipe_block;

wf_status wf_pipe_repeat_block(const char *name, wf_pipe_block block, wf_pipe_table *t);

/* The most live activations of a row: forwards without W or B. */
int wf_pipe_peak(const wf_pipe_row *row);

#define SCHEDULE(name, generate, ...) wf_pipe_generator generate;
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE

#endif
