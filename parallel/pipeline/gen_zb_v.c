/* parallel/pipeline/gen_zb_v.c - zero bubble on a V of two stages a rank: no idle time inside a
   rank's span with the memory of 1F1B, since the loss comes back to the first rank (Qi et al.,
   2401.10241). */
#include "parallel/pipeline/table_internal.h"

/* One rank's row. Each action takes the next micro-batch of its stage and kind. */
typedef struct row {
    wf_pipe_table *table;
    int rank, forwards; /* forwards of the early stage that the pattern has */
    int next[WF_PIPE_KINDS][2];
} row;

/* Appends the next micro-batch of the early (0) or late (1) stage. The pattern has enough
   micro-batches to fill the pipeline; those past the last are left out. */
static void add(row *w, wf_pipe_kind kind, int late)
{
    int micro = w->next[kind][late]++;

    if (micro < w->table->shape.micro)
        wf_pipe_table_add(w->table, w->rank, kind,
                          late ? w->table->shape.stages - 1 - w->rank : w->rank, micro);
}

static void backward(row *w, int late)
{
    add(w, WF_PIPE_I, late);
    add(w, WF_PIPE_W, late);
}

static void fill(row *w)
{
    for (int i = 0; i < 2 * (w->table->shape.ranks - w->rank) - 1; i++)
        add(w, WF_PIPE_F, 0);
    for (int i = 0; i < w->rank; i++) {
        add(w, WF_PIPE_F, 1);
        add(w, WF_PIPE_F, 0);
    }
    for (int i = w->rank; i < w->table->shape.ranks; i++) {
        add(w, WF_PIPE_F, 1);
        backward(w, 1);
    }
}

static void steady(row *w)
{
    const int(*next)[2] = (const int(*)[2])w->next;

    while (next[WF_PIPE_F][1] < next[WF_PIPE_F][0] || next[WF_PIPE_F][0] < w->forwards) {
        if (next[WF_PIPE_F][0] < w->forwards)
            add(w, WF_PIPE_F, 0);
        backward(w, 0);
        add(w, WF_PIPE_F, 1);
        backward(w, 1);
    }
}

static void drain(row *w)
{
    for (int i = 0; i < w->rank; i++) {
        add(w, WF_PIPE_I, 0);
        add(w, WF_PIPE_I, 1);
    }
    for (int i = w->rank; i < w->table->shape.ranks; i++)
        backward(w, 0);
    for (int late = 1; late >= 0; late--)
        while (w->next[WF_PIPE_W][late] < w->next[WF_PIPE_I][late])
            add(w, WF_PIPE_W, late);
}

wf_status wf_pipe_gen_zb_v(const wf_pipe_shape *shape, wf_pipe_table *t)
{
    int fill_needs = 2 * shape->ranks - 1;
    wf_status status = wf_pipe_assign_v("zb-v", t);

    for (int r = 0; status == WF_OK && r < shape->ranks; r++) {
        row w = {.table = t,
                 .rank = r,
                 .forwards = shape->micro > fill_needs ? shape->micro : fill_needs};

        fill(&w);
        steady(&w);
        drain(&w);
        status = t->error.code;
    }
    return status;
}
