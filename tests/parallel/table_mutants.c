/* tests/parallel/table_mutants.c - mistakes of tables, a function each. */
#include "tests/parallel/table_mutants.h"
#include "parallel/pipeline/table_internal.h"
#include <stddef.h>

/* A row that has actions. */
static wf_pipe_row *some_row(wf_pipe_table *t)
{
    wf_pipe_row *row;

    do
        row = &t->row[table_chance(t->shape.ranks)];
    while (!row->n);
    return row;
}

static wf_pipe_action *some_action(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    return &row->action[table_chance(row->n)];
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

/* Returns the index, after a given one, of the first action of a kind, stage and micro-batch;
   -1: there is none. */
static int64_t find(const wf_pipe_row *row, int64_t from, int kind, int stage, int micro)
{
    for (int64_t i = from; i < row->n; i++)
        if (row->action[i].kind == kind && row->action[i].stage == stage &&
            row->action[i].micro == micro)
            return i;
    return -1;
}

/* Moves some action of a kind between two to an earlier place of its row. */
static void move_up(wf_pipe_row *row, int first_kind, int last_kind)
{
    int64_t begin = table_chance(row->n);

    for (int64_t k = 0; k < row->n; k++) {
        int64_t i = (begin + k) % row->n;

        if (i && row->action[i].kind >= first_kind && row->action[i].kind <= last_kind) {
            move(row, i, i - 1 - table_chance(i < 6 ? i : 6));
            return;
        }
    }
}

static void swap(wf_pipe_action *a, wf_pipe_action *b)
{
    wf_pipe_action c = *a;

    *a = *b;
    *b = c;
}

static void neighbours_swapped(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t i = table_chance(row->n);

    swap(&row->action[i], &row->action[i + 1 < row->n ? i + 1 : i]);
}

static void any_two_swapped(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    swap(&row->action[table_chance(row->n)], &row->action[table_chance(row->n)]);
}

static void dropped(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    move(row, table_chance(row->n), row->n - 1);
    row->n--;
}

/* Adds an action to some place of some row. */
static void insert(wf_pipe_table *t, int rank, wf_pipe_action a)
{
    wf_pipe_table_append(t, rank, &a);
    move(&t->row[rank], t->row[rank].n - 1, table_chance(t->row[rank].n));
}

static void twice(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);

    insert(t, (int)(row - t->row), row->action[table_chance(row->n)]);
}

/* Something that is not needed, or too early, or impossible. */
static void added(wf_pipe_table *t)
{
    wf_pipe_action a = {.kind = (uint8_t)table_chance(WF_PIPE_KINDS)};

    if (wf_pipe_kind_table[a.kind].operands != WF_PIPE_NONE)
        a.stage = (int16_t)table_chance(t->shape.stages);
    if (wf_pipe_kind_table[a.kind].operands >= WF_PIPE_MICRO)
        a.micro = a.last = table_chance(t->shape.micro);
    insert(t, t->stage_rank[a.stage] < 0 ? 0 : t->stage_rank[a.stage], a);
}

static void of_another_rank(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t i = table_chance(row->n);

    insert(t, table_chance(t->shape.ranks), row->action[i]);
    move(row, i, row->n - 1);
    row->n--;
}

static void wrong_stage(wf_pipe_table *t)
{
    some_action(t)->stage = (int16_t)table_chance(t->shape.stages);
}

static void wrong_micro(wf_pipe_table *t)
{
    wf_pipe_action *a = some_action(t);

    if (wf_pipe_kind_table[a->kind].operands < WF_PIPE_MICRO)
        return;
    a->micro = a->last = table_chance(t->shape.micro);
    if (wf_pipe_kind_table[a->kind].operands == WF_PIPE_RANGE)
        a->last += table_chance(t->shape.micro - a->micro);
}

static bool begins_receive(const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_RECV_F || a->kind == WF_PIPE_RECV_B;
}

static bool ends_receive(const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_RECVD_F || a->kind == WF_PIPE_RECVD_B;
}

/* A receive begins, or ends, before the one that is before it. */
static void receive_first(wf_pipe_row *row, bool (*of)(const wf_pipe_action *))
{
    int64_t i = table_chance(row->n), before;

    while (i && !of(&row->action[i]))
        i--;
    before = i - 1;
    while (before > 0 && !of(&row->action[before]))
        before--;
    if (before >= 0)
        move(row, i, before);
}

/* Two receives of a row change places: where they begin, where they end, or both. */
static void receives_reordered(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t one = table_chance(row->n), other = table_chance(row->n);
    const wf_pipe_action a = row->action[one], b = row->action[other];
    int which = 1 + table_chance(3);

    if (t->facts.lowered && table_chance(8) == 0) {
        receive_first(row, which & 1 ? begins_receive : ends_receive);
        return;
    }
    if (!begins_receive(&a) || !begins_receive(&b))
        return;
    if (which & 1)
        swap(&row->action[one], &row->action[other]);
    one = find(row, 0, a.kind + 1, a.stage, a.micro);
    other = find(row, 0, b.kind + 1, b.stage, b.micro);
    if (which & 2 && one >= 0 && other >= 0)
        swap(&row->action[one], &row->action[other]);
}

static bool sends(const wf_pipe_action *a)
{
    return a->kind == WF_PIPE_SEND_F || a->kind == WF_PIPE_SEND_B;
}

/* Returns the rank that it is sent to; -1: there is no such stage. */
static int peer(const wf_pipe_table *t, const wf_pipe_action *a)
{
    int stage = a->kind == WF_PIPE_SEND_F ? a->stage + 1 : a->stage - 1;

    return stage < 0 || stage >= t->shape.stages ? -1 : t->stage_rank[stage];
}

/* Sends end where they begin (a depth of 0), or before the next one to the same rank (1). */
static void too_few_buffers(wf_pipe_table *t)
{
    int depth = table_chance(2);

    for (int r = 0; r < t->shape.ranks; r++) {
        wf_pipe_row *row = &t->row[r];

        for (int64_t i = 0; i < row->n; i++) {
            const wf_pipe_action *a = &row->action[i];
            int64_t end = sends(a) ? find(row, i, a->kind + 1, a->stage, a->micro) : -1;
            int64_t at = i + 1;

            while (depth && at < end &&
                   !(sends(&row->action[at]) && peer(t, &row->action[at]) == peer(t, a)))
                at++;
            if (end > at)
                move(row, end, at);
        }
    }
}

static void reshard_early(wf_pipe_table *t)
{
    move_up(some_row(t), WF_PIPE_RESHARD, WF_PIPE_RESHARD);
}

static void reduce_early(wf_pipe_table *t)
{
    move_up(some_row(t), WF_PIPE_REDUCE, WF_PIPE_REDUCED);
}

static void end_early(wf_pipe_table *t)
{
    move_up(some_row(t), WF_PIPE_TIE, WF_PIPE_OPT);
}

/* A REDUCE, and where it ends, of other micro-batches of the group, or of more than one. */
static void group_cut(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t i = table_chance(row->n), end;
    wf_pipe_action a = row->action[i];

    if (a.kind != WF_PIPE_REDUCE)
        return;
    end = find(row, i, WF_PIPE_REDUCED, a.stage, a.micro);
    if (table_chance(2))
        row->action[i].micro += table_chance(a.last - a.micro + 1);
    row->action[i].last =
        row->action[i].micro + table_chance(t->shape.micro - row->action[i].micro);
    if (end >= 0 && table_chance(4)) {
        row->action[end].micro = row->action[i].micro;
        row->action[end].last = row->action[i].last;
    }
}

/* The first rank waits for the stage that all others come before, and then does its first
   one. */
static void circle(wf_pipe_table *t)
{
    wf_pipe_row *row = &t->row[0];
    int ranks = t->shape.ranks, kind = t->facts.lowered ? WF_PIPE_RECV_F : WF_PIPE_F;
    int64_t begin, end;

    for (int s = 0; s < t->shape.stages; s++)
        if (ranks < 3 || t->shape.stages == ranks || t->stage_rank[s] != s % ranks)
            return;
    begin = find(row, 0, kind, ranks, 0);
    end = find(row, 0, WF_PIPE_RECVD_F, ranks, 0);
    if (begin >= 0)
        move(row, begin, 0);
    if (begin >= 0 && end > begin)
        move(row, end, 1);
}

static void wrong_rank(wf_pipe_table *t)
{
    int one = table_chance(t->shape.stages), other = table_chance(t->shape.stages);
    int16_t rank = t->stage_rank[one];

    t->stage_rank[one] = (int16_t)(table_chance(t->shape.ranks + 1) - 1);
    if (table_chance(2)) {
        t->stage_rank[one] = t->stage_rank[other];
        t->stage_rank[other] = rank;
    }
}

static void sent_early(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int kind = table_chance(2) ? WF_PIPE_SENT_F : WF_PIPE_SENT_B;

    move_up(row, kind, kind);
}

/* Mostly two that compute, in the order that they have or in the other one. */
static void overlapped(wf_pipe_table *t)
{
    wf_pipe_row *row = some_row(t);
    int64_t i = table_chance(row->n);
    wf_pipe_action *a = &row->action[i];
    bool two = i + 1 < row->n && a[0].kind <= WF_PIPE_R && a[1].kind <= WF_PIPE_R;

    if (two && table_chance(2))
        swap(&a[0], &a[1]);
    if (two || table_chance(8) == 0)
        a->with_next = !a->with_next;
}

static void other_facts(wf_pipe_table *t)
{
    /* Lowering alone decides of more than that. */
    switch (t->facts.lowered ? table_chance(4) : 0) {
    case 0:
        t->facts.lowered = !t->facts.lowered;
        break;
    case 1:
        t->facts.tied = !t->facts.tied;
        break;
    case 2:
        t->facts.resident = table_chance(4);
        break;
    default:
        t->facts.group = table_chance(2) ? 1 << table_chance(4) : 0;
    }
}

const mutation table_mutations[] = {{"neighbours swapped", neighbours_swapped},
                                    {"any two swapped", any_two_swapped},
                                    {"one dropped", dropped},
                                    {"one twice", twice},
                                    {"one added", added},
                                    {"one of another rank", of_another_rank},
                                    {"wrong stage", wrong_stage},
                                    {"wrong micro-batch", wrong_micro},
                                    {"receives reordered", receives_reordered},
                                    {"depth 0 or 1", too_few_buffers},
                                    {"RESHARD early", reshard_early},
                                    {"REDUCE early", reduce_early},
                                    {"end of step early", end_early},
                                    {"REDUCE cuts a group", group_cut},
                                    {"circle of all ranks", circle},
                                    {"wrong place", wrong_rank},
                                    {"SENT before a RECV", sent_early},
                                    {"two overlap", overlapped},
                                    {"other facts", other_facts},
                                    {NULL, NULL}};
