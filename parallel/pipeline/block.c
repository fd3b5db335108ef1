/*
 * parallel/pipeline/block.c - schedules on a V by repeating a building block (Qi et al.,
 * 2405.15362).
 *
 * A rank has six actions of one micro-batch: F, I and W of its early stage (0) and of its late
 * one (1). The block says when they begin, in units of one action; it is repeated every six
 * units, so a rank's actions must begin at six different times modulo six. The delay of a
 * micro-batch from rank to rank makes the schedule; its wait where it reverses direction is
 * searched: the shortest with which no rank has a collision.
 */
#include "parallel/pipeline/table_internal.h"
#include <string.h>

enum { F0, F1, I1, I0, W1, W0, PERIOD };

typedef struct block {
    wf_pipe_block pace;
    int ranks;
    /* units from F0 to F1 on the last rank, F1 to I1 on the first, I1 to I0 on the last */
    int turn[3];
} block;

/* Fills in when the six actions of micro-batch 0 begin on a rank; false: two collide. */
static bool begins(const block *b, int rank, int at[PERIOD])
{
    int back = b->ranks - 1 - rank, used = 0;

    at[F0] = b->pace.f0 * rank;
    at[F1] = b->pace.f0 * (b->ranks - 1) + b->turn[0] + b->pace.f1 * back;
    at[I1] = b->pace.f0 * (b->ranks - 1) + b->turn[0] + b->pace.f1 * (b->ranks - 1) +
             b->turn[1] + b->pace.i1 * rank;
    at[I0] = at[I1] + b->pace.i1 * back + b->turn[2] + b->pace.i0 * back;
    for (int k = F0; k <= I0; k++) {
        if (used >> at[k] % PERIOD & 1)
            return false;
        used |= 1 << at[k] % PERIOD;
    }
    /* W take the first free unit after their I. */
    for (int k = W1; k <= W0; k++) {
        at[k] = at[k == W1 ? I1 : I0] + 1;
        while (used >> at[k] % PERIOD & 1)
            at[k]++;
        used |= 1 << at[k] % PERIOD;
    }
    return true;
}

static bool fits(const block *b)
{
    int at[PERIOD];

    for (int r = 0; r < b->ranks; r++)
        if (!begins(b, r, at))
            return false;
    return true;
}

/* Finds the waits at the reversals with the least sum; all of them are tried. */
static bool find_turns(block *b)
{
    for (int sum = 3; sum <= 3 * PERIOD; sum++)
        for (b->turn[0] = 1; b->turn[0] <= PERIOD; b->turn[0]++)
            for (b->turn[1] = 1; b->turn[1] <= PERIOD; b->turn[1]++) {
                b->turn[2] = sum - b->turn[0] - b->turn[1];
                if (b->turn[2] >= 1 && b->turn[2] <= PERIOD && fits(b))
                    return true;
            }
    return false;
}

static void fill_row(const block *b, wf_pipe_table *t, int rank)
{
    static const wf_pipe_kind kinds[PERIOD] = {WF_PIPE_F, WF_PIPE_F, WF_PIPE_I,
                                               WF_PIPE_I, WF_PIPE_W, WF_PIPE_W};
    static const bool late[PERIOD] = {false, true, true, false, true, false};
    int at[PERIOD], owner[PERIOD], end = 0;

    begins(b, rank, at);
    for (int k = 0; k < PERIOD; k++) {
        owner[at[k] % PERIOD] = k;
        end = at[k] > end ? at[k] : end;
    }
    for (int64_t time = 0; time <= end + (int64_t)PERIOD * (t->shape.micro - 1); time++) {
        int k = owner[time % PERIOD];
        int64_t micro = (time - at[k]) / PERIOD;

        if (time >= at[k] && micro < t->shape.micro)
            wf_pipe_table_add(t, rank, kinds[k], late[k] ? t->shape.stages - 1 - rank : rank,
                              (int)micro);
    }
}

wf_status wf_pipe_repeat_block(const char *name, wf_pipe_block pace, wf_pipe_table *t)
{
    block b = {.pace = pace, .ranks = t->shape.ranks};
    wf_status status = wf_pipe_assign_v(name, t);

    if (status != WF_OK)
        return status;
    if (!find_turns(&b))
        return wf_pipe_table_refuse(t,
                                    "%s: the block (%d, %d, %d, %d) collides with itself on %d "
                                    "ranks however long micro-batches wait where they reverse",
                                    name, pace.f0, pace.f1, pace.i1, pace.i0, b.ranks);
    for (int r = 0; r < b.ranks; r++)
        fill_row(&b, t, r);
    return t->error.code;
}
