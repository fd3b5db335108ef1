/*
 * parallel/pipeline/rounds.c - one forward, one backward, over one or several stages a rank.
 *
 * Micro-batches go in rounds of about as many as there are ranks. A rank takes a round through
 * its first stage, then through its second, and so on, and gradients of a round through its
 * stages from the last to the first (Narayanan et al., 2104.04473). With one stage a rank this
 * is plain 1F1B.
 */
#include "parallel/pipeline/table_internal.h"

typedef struct rounds {
    int ranks, virtual, micro, n; /* virtual: stages of a rank; n: rounds */
} rounds;

/* Rounds differ in size by one at most. The larger ones are first: what the first one has
   forward before its first backward is then enough for all. */
static int round_begin(const rounds *p, int round)
{
    int larger = p->micro % p->n;

    return p->micro / p->n * round + (round < larger ? round : larger);
}

/* The k-th (stage of the rank, micro-batch) of a row's forwards. */
static void step_at(const rounds *p, int64_t k, int *local, int *micro)
{
    int round = (int)(k / p->virtual / (p->micro / p->n + 1)), begin, size;

    while (round + 1 < p->n && (int64_t)round_begin(p, round + 1) * p->virtual <= k)
        round++;
    begin = round_begin(p, round);
    size = round_begin(p, round + 1) - begin;
    k -= (int64_t)begin * p->virtual;
    *local = (int)(k / size);
    *micro = (int)(begin + k % size);
}

/* The k-th action of a kind: backward kinds take the stages from the last to the first. */
static void add(const rounds *p, wf_pipe_table *t, int rank, wf_pipe_kind kind, int64_t k)
{
    int local, micro;

    step_at(p, k, &local, &micro);
    if (kind != WF_PIPE_F)
        local = p->virtual - 1 - local;
    wf_pipe_table_add(t, rank, kind, local * p->ranks + rank, micro);
}

static void fill_row(const rounds *p, wf_pipe_table *t, int rank, int warm, bool split)
{
    int64_t steps = (int64_t)p->virtual * p->micro, weights = 0;
    int64_t ahead =
        (int64_t)(p->virtual - 1) * round_begin(p, 1) + (int64_t)warm * (p->ranks - 1 - rank);

    ahead = ahead < steps ? ahead : steps;
    for (int64_t k = 0; k < ahead; k++)
        add(p, t, rank, WF_PIPE_F, k);
    for (int64_t k = 0; k < steps; k++) {
        if (k + ahead < steps)
            add(p, t, rank, WF_PIPE_F, k + ahead);
        add(p, t, rank, split ? WF_PIPE_I : WF_PIPE_B, k);
        if (split && k >= rank)
            add(p, t, rank, WF_PIPE_W, weights++);
    }
    while (split && weights < steps)
        add(p, t, rank, WF_PIPE_W, weights++);
}

wf_status wf_pipe_rounds(const wf_pipe_shape *shape, wf_pipe_table *t, int warm, bool split)
{
    rounds p = {shape->ranks, shape->stages / shape->ranks, shape->micro,
                shape->micro / shape->ranks};

    p.n = p.n > 1 ? p.n : 1;
    wf_pipe_assign_loop(t);
    for (int r = 0; r < shape->ranks; r++)
        fill_row(&p, t, r, warm, split);
    return t->error.code;
}
