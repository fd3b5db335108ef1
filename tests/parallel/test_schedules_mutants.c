/*
 * tests/parallel/test_schedules_mutants.c - the proof of pipeline tables against their execution: 10,000 small
 * tables with mistakes of 14 kinds in them. What the proof accepts ends right, and what it refuses does not.
 */
#include "parallel/pipeline/lower.h"
#include "parallel/pipeline/table_internal.h"
#include "tests/harness.h"
#include "tests/parallel/table_executor.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MUTANTS = 10000 };

static unsigned random_state = 1;

static int below(int64_t n)
{
    random_state = random_state * 1664525u + 1013904223u;
    return (int)((random_state >> 8) % (unsigned)n);
}

/* A row that has actions. */
static wf_pipe_row *some_row(wf_pipe_table *t)
{
    for (;;) {
        wf_pipe_row *row = &t->row[below(t->shape.ranks)];

        if (row->n > 1)
            return row;
    }
}

static void move(wf_pipe_row *row, int64_t from, int64_t to)
{
    wf_pipe_action a = row->action[from];

    for (int64_t i = from; i < to; i++)
        row->action[i] = row->action[i + 1];
    for (int64_t i = from; i > to; i--)
        row->action[i] = row->action[i - 1];
    row->action[to] = a;
}

/* Moves some action of a kind between two to an earlier place of its row; false: there is none. */
static bool move_up(wf_pipe_row *row, int first_kind, int last_kind)
{
    int64_t begin = below(row->n);

    for (int64_t k = 0; k < row->n; k++) {
        int64_t i = (begin + k) % row->n;

        if (i && row->action[i].kind >= first_kind && row->action[i].kind <= last_kind) {
            move(row, i, i - 1 - below(i < 6 ? i : 6));
            return true;
        }
    }
    return false;
}

static void swap(wf_pipe_action *a, wf_pipe_action *b)
{
    wf_pipe_action c = *a;

    *a = *b;
    *b = c;
}

static bool swap_neighbours(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t i = below(row->n - 1);

    swap(&row->action[i], &row->action[i + 1]);
    return true;
}

static bool swap_any(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    swap(&row->action[below(row->n)], &row->action[below(row->n)]);
    return true;
}

static bool drop(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    move(row, below(row->n), row->n - 1);
    row->n--;
    return true;
}

static bool twice(wf_pipe_table *t)
{
    int rank = below(t->shape.ranks);
    wf_pipe_row *row = &t->row[rank];
    wf_pipe_action a;

    if (!row->n)
        return false;
    a = row->action[below(row->n)];
    wf_pipe_table_append(t, rank, &a);
    move(row, row->n - 1, below(row->n));
    return true;
}

static bool wrong_stage(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    row->action[below(row->n)].stage = (int16_t)below(t->shape.stages);
    return true;
}

static bool wrong_micro(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    wf_pipe_action *a = &row->action[below(row->n)];

    if (wf_pipe_kind_table[a->kind].operands < WF_PIPE_MICRO)
        return false;
    a->micro = a->last = below(t->shape.micro);
    return true;
}

/* Two receives of a row change places, their begins and their ends. */
static bool reordered_receives(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int kind = below(2) ? WF_PIPE_RECV_F : WF_PIPE_RECV_B, n = 0;
    wf_pipe_action *begin[64], *end[64];

    for (int64_t i = 0; i < row->n && n < 64; i++)
        if (row->action[i].kind == kind)
            for (int64_t k = i; k < row->n; k++)
                if (row->action[k].kind == kind + 1 &&
                    row->action[k].stage == row->action[i].stage &&
                    row->action[k].micro == row->action[i].micro) {
                    begin[n] = &row->action[i];
                    end[n++] = &row->action[k];
                    break;
                }
    if (n < 2)
        return false;
    kind = below(n - 1);
    swap(begin[kind], begin[kind + 1]);
    if (below(2))
        swap(end[kind], end[kind + 1]);
    return true;
}

/* Sends that end at once: as lowered with a depth of 0. */
static bool depth_0(wf_pipe_table *t)
{
    for (int r = 0; r < t->shape.ranks; r++) {
        wf_pipe_row *row = &t->row[r];

        for (int64_t i = 0; i < row->n; i++)
            for (int64_t k = i + 1; k < row->n; k++)
                if ((row->action[i].kind == WF_PIPE_SEND_F ||
                     row->action[i].kind == WF_PIPE_SEND_B) &&
                    row->action[k].kind == row->action[i].kind + 1 &&
                    row->action[k].stage == row->action[i].stage &&
                    row->action[k].micro == row->action[i].micro)
                    move(row, k, i + 1);
    }
    return true;
}

static bool reshard_early(wf_pipe_table *t)
{
    return move_up(some_row(t), WF_PIPE_RESHARD, WF_PIPE_RESHARD);
}

static bool reduce_early(wf_pipe_table *t)
{
    return move_up(some_row(t), WF_PIPE_REDUCE, WF_PIPE_REDUCED);
}

static bool cut_group(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    for (int64_t i = 0; i < row->n; i++)
        if (row->action[i].kind == WF_PIPE_REDUCE && below(2)) {
            row->action[i].last =
                row->action[i].micro + below(t->shape.micro - row->action[i].micro);
            return true;
        }
    return false;
}

/* In three ranks something is received before its time. */
static bool circle_of_three(wf_pipe_table *t)
{
    bool any = false;

    for (int r = 0; r < t->shape.ranks && r < 3; r++)
        if (t->row[r].n)
            any = move_up(&t->row[r], below(2) ? WF_PIPE_RECVD_F : WF_PIPE_RECVD_B,
                          WF_PIPE_RECVD_B) ||
                  any;
    return any;
}

static bool wrong_place(wf_pipe_table *t)
{
    t->place[below(t->shape.stages)] = (int16_t)below(t->shape.ranks);
    return true;
}

static bool sent_early(wf_pipe_table *t)
{
    return move_up(some_row(t), below(2) ? WF_PIPE_SENT_F : WF_PIPE_SENT_B, WF_PIPE_SENT_B);
}

static const struct {
    const char *name;
    bool (*change)(wf_pipe_table *t);
} kinds[] = {{"neighbours swapped", swap_neighbours},
             {"any two swapped", swap_any},
             {"one dropped", drop},
             {"one twice", twice},
             {"wrong stage", wrong_stage},
             {"wrong micro-batch", wrong_micro},
             {"receives reordered", reordered_receives},
             {"depth 0", depth_0},
             {"RESHARD early", reshard_early},
             {"REDUCE early", reduce_early},
             {"REDUCE cuts a group", cut_group},
             {"receives early in three ranks", circle_of_three},
             {"wrong place", wrong_place},
             {"SENT early", sent_early}};

enum { KINDS = sizeof kinds / sizeof *kinds };

/* A small table of some schedule, lowered somehow, which may need more depth than it has. */
static wf_pipe_table *some_table(void)
{
    for (;;) {
        const char *names[] = {"naive",      "gpipe",      "1f1b",  "interleaved",
                               "looped-bfs", "zb-h1",      "zb-h2", "zb-v",
                               "v-min",      "dualpipe-v", "list",  "v-half"};
        int ranks = 1 + below(4);
        const wf_pipe_shape shape = {ranks, ranks * (1 + below(2)), 1 + below(6), 0};
        const wf_pipe_lowering how = {.depth = 1 + below(3),
                                      .ahead = below(3),
                                      .recompute = below(3) == 0,
                                      .group = below(2) ? 1 << below(3) : 0,
                                      .resident = below(2) ? 2 : 0,
                                      .prefetch = below(3),
                                      .tied = below(2)};
        wf_error error = {WF_OK, ""};
        wf_pipe_table *table, *lowered;

        if (wf_pipe_generate(names[below(12)], &shape, &table, &error) != WF_OK)
            continue;
        wf_pipe_lower(table, &how, &lowered, &error);
        wf_pipe_table_free(table);
        if (lowered)
            return lowered;
    }
}

/* What came of mutants of a kind. */
typedef struct tally {
    int64_t right, wrong, still, false_accepts, false_refusals;
} tally;

static void compare(const wf_pipe_table *table, const char *kind, tally *count)
{
    wf_error told = {WF_OK, ""};
    bool accepted = wf_pipe_prove(table, NULL, &told) == WF_OK;
    execution result = execute_table(table, random_state >> 8);

    count->right += result == ENDS_RIGHT;
    count->wrong += result == GOES_WRONG;
    count->still += result == STANDS_STILL;
    count->false_accepts += accepted && result != ENDS_RIGHT;
    count->false_refusals += !accepted && result == ENDS_RIGHT;
    if (accepted == (result == ENDS_RIGHT))
        return;
    printf("\n    %s: the proof says \"%s\", the execution %d\n", kind,
           accepted ? "it ends" : told.text, (int)result);
}

static void verdicts(void)
{
    tally all = {0};

    for (int i = 0; i < MUTANTS; i++) {
        wf_pipe_table *table = some_table();
        tally count = {0};
        int kind = i % KINDS;

        /* One in four has a second mistake, which may undo the first. */
        while (!kinds[kind].change(table)) {
            wf_pipe_table_free(table);
            table = some_table();
        }
        if (below(4) == 0)
            kinds[below(KINDS)].change(table);
        compare(table, kinds[kind].name, &count);
        all.right += count.right;
        all.wrong += count.wrong;
        all.still += count.still;
        all.false_accepts += count.false_accepts;
        all.false_refusals += count.false_refusals;
        wf_pipe_table_free(table);
    }
    printf(" %lld end right, %lld go wrong, %lld stand still", (long long)all.right,
           (long long)all.wrong, (long long)all.still);
    CU_ASSERT_EQUAL(all.false_accepts, 0);
    CU_ASSERT_EQUAL(all.false_refusals, 0);
    CU_ASSERT(all.right > MUTANTS / 20 && all.wrong > MUTANTS / 20 && all.still > MUTANTS / 20);
}

/* Without a mistake there are only those that have too few buffers. */
static void without_mistakes(void)
{
    tally count = {0};

    for (int i = 0; i < 1000; i++) {
        wf_pipe_table *table = some_table();

        compare(table, "no mistake", &count);
        wf_pipe_table_free(table);
    }
    CU_ASSERT_EQUAL(count.false_accepts + count.false_refusals + count.wrong, 0);
    CU_ASSERT(count.right > 900);
}

int main(void)
{
    static const wf_test tests[] = {{"without mistakes", without_mistakes},
                                    {"10,000 mutants of 14 kinds", verdicts},
                                    {NULL, NULL}};

    return wf_test_main("schedules with mistakes", tests);
}
