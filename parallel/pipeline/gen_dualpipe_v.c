/*
 * parallel/pipeline/gen_dualpipe_v.c - forward of one micro-batch beside backward of another,
 * on a V: half of DualPipe, without its second copy of the parameters (DeepSeek-AI, 2412.19437,
 * and Sea AI's cut of it).
 */
#include "parallel/pipeline/table_internal.h"
#include <stdlib.h>

/* One rank's row. Each action takes the next micro-batch of its stage and kind; I and B count
   as one. */
typedef struct row {
    wf_pipe_table *table;
    int rank, forward[2], backward[2];
    wf_pipe_action *waits; /* W of the I that were, in order */
    int first, n;
} row;

static int stage_of(const row *w, int late)
{
    return late ? w->table->shape.stages - 1 - w->rank : w->rank;
}

static void forward(row *w, int late)
{
    wf_pipe_table_add(w->table, w->rank, WF_PIPE_F, stage_of(w, late), w->forward[late]++);
}

static void backward(row *w, int late, bool split)
{
    int micro = w->backward[late]++, stage = stage_of(w, late);

    wf_pipe_table_add(w->table, w->rank, split ? WF_PIPE_I : WF_PIPE_B, stage, micro);
    if (split)
        w->waits[w->n++] = (wf_pipe_action){WF_PIPE_W, false, (int16_t)stage, micro, micro};
}

static void weights(row *w)
{
    wf_pipe_table_append(w->table, w->rank, &w->waits[w->first++]);
}

/* Forward of one stage and backward of the other, which may overlap. */
static void both(row *w, int late)
{
    wf_pipe_action f = {WF_PIPE_F, true, (int16_t)stage_of(w, late), w->forward[late],
                        w->forward[late]};

    w->forward[late]++;
    wf_pipe_table_append(w->table, w->rank, &f);
    backward(w, !late, false);
}

static void fill(row *w)
{
    int after = w->table->shape.ranks - 1 - w->rank;

    for (int i = 0; i < 2 * after; i++)
        forward(w, 0);
    for (int i = 0; i <= w->rank; i++) {
        forward(w, 0);
        forward(w, 1);
    }
    for (int i = 0; i < after; i++) {
        backward(w, 1, true);
        weights(w);
        forward(w, 1);
    }
}

static void steady(row *w)
{
    int ranks = w->table->shape.ranks, after = ranks - 1 - w->rank;

    for (int i = 0; i < w->table->shape.micro - 2 * ranks + w->rank + 1; i++) {
        if (i == 0 && w->rank == ranks - 1) {
            /* The last rank's first two do not overlap: its gradient goes out earlier. */
            forward(w, 0);
            backward(w, 1, false);
        } else {
            both(w, 0);
        }
        both(w, 1);
    }
    for (int i = 0; i < after; i++) {
        backward(w, 1, false);
        both(w, 1);
    }
}

/* Ends a row: the second half of the last gradients goes to the next rank before its weights
   are done. */
static void drain(row *w)
{
    int last = w->rank + 1, from_late = last / 2 + !(w->rank % 2), from_early = last / 2;

    for (int i = 0; i < last; i++) {
        backward(w, 1, i >= from_late);
        backward(w, 0, i >= from_early);
    }
    for (int i = w->rank + 1; i < w->table->shape.ranks; i++) {
        weights(w);
        backward(w, 0, true);
    }
    while (w->first < w->n)
        weights(w);
}

wf_status wf_pipe_gen_dualpipe_v(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    wf_pipe_action *waits;
    wf_status status = wf_pipe_assign_v("dualpipe-v", t);

    if (status == WF_OK && shape->micro < 2 * shape->ranks)
        return wf_pipe_table_refuse(t,
                                    "dualpipe-v needs twice as many micro-batches as ranks: %d "
                                    "are fewer than %d; take %d or more, or zb-v",
                                    shape->micro, 2 * shape->ranks, 2 * shape->ranks);
    if (status != WF_OK)
        return status;
    waits = malloc(2 * (size_t)shape->micro * sizeof *waits);
    if (!waits)
        return wf_error_set(&t->error, WF_ENOMEM, "no memory for %d micro-batches",
                            shape->micro);
    for (int r = 0; r < shape->ranks; r++) {
        row w = {.table = t, .rank = r, .waits = waits};

        fill(&w);
        steady(&w);
        drain(&w);
    }
    free(waits);
    return t->error.code;
}
