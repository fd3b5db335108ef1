/*
 * tests/mesh/test_comm.c - every collective, on both paths and 1 to 32 ranks: uneven and empty
 * parts, many buffers at once, several in flight, in place, to the bit.
 *
 * ctest: builds plain address thread, cost 50
 */
#include "tests/mesh/comm_buffers.h"

static const int sizes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 32};

typedef struct world_case {
    const wf_transport *transport; /* NULL: as launched */
    bool chain;
} world_case;

/* Set between launches: the buffers go one by one, as a caller of one buffer has it. */
static bool alone;

static wf_status run_buffers(wf_comm *c, const wf_collective *what, wf_error *error)
{
    wf_collective one = *what;

    if (!alone)
        GOOD(wf_collective_run(c, what, error));
    one.n_buffers = 1;
    for (int64_t b = 0; alone && b < what->n_buffers; b++) {
        one.buffers = &what->buffers[b];
        GOOD(wf_collective_run(c, &one, error));
    }
    test_device_settle();
    return WF_OK;
}

static wf_status reduce_all(wf_rank *rank, wf_comm *c, bool max, bool chain, bool in_place)
{
    wf_collective what;
    buffers s;

    open_buffers(&s, MOST, c->size);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        for (int64_t i = 0; i < counts[b]; i++)
            s.in[b][i] = number(c->rank, b, i);
        if (in_place)
            s.buffer[b].out = s.in[b];
    }
    what = all_of(&s, WF_ALL_REDUCE);
    what.reduction = max ? WF_REDUCE_MAX : WF_REDUCE_SUM;
    GOOD(run_buffers(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int64_t i = 0; i < counts[b]; i++) {
            float want = max     ? top_of(c->size, b, i)
                         : chain ? chain_of(c->size, b, i)
                                 : tree_of(0, c->size, b, i);

            NEED(same_bits(((float *)s.buffer[b].out)[i], want));
        }
    close_buffers(&s);
    return WF_OK;
}

enum { APART, AT_START, IN_PLACE };

static wf_status scatter(wf_rank *rank, wf_comm *c, int where)
{
    wf_collective what;
    buffers s;

    open_buffers(&s, MOST, c->size);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        int64_t *cuts = s.cuts + b * (c->size + 1);

        cut(cuts, c->size, counts[b], (int)b);
        for (int64_t i = 0; i < counts[b]; i++)
            s.in[b][i] = number(c->rank, b, i);
        if (where != APART)
            s.buffer[b].out = s.in[b] + (where == IN_PLACE ? cuts[c->rank] : 0);
    }
    what = all_of(&s, WF_REDUCE_SCATTER);
    GOOD(run_buffers(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        const int64_t *cuts = s.cuts + b * (c->size + 1);
        const float *out = s.buffer[b].out;

        for (int64_t i = cuts[c->rank]; i < cuts[c->rank + 1]; i++)
            NEED(same_bits(out[i - cuts[c->rank]], tree_of(0, c->size, b, i)));
    }
    close_buffers(&s);
    return WF_OK;
}

static wf_status gather(wf_rank *rank, wf_comm *c, int where)
{
    wf_collective what;
    buffers s;

    open_buffers(&s, MOST, c->size);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        int64_t *cuts = s.cuts + b * (c->size + 1);
        float *in = s.in[b];

        cut(cuts, c->size, counts[b], (int)b);
        if (where != APART)
            in = s.out[b] + (where == IN_PLACE ? cuts[c->rank] : 0);
        s.buffer[b].in = in;
        for (int64_t i = cuts[c->rank]; i < cuts[c->rank + 1]; i++)
            in[i - cuts[c->rank]] = number(c->rank, b, i);
    }
    what = all_of(&s, WF_ALL_GATHER);
    GOOD(run_buffers(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int m = 0; m < c->size; m++)
            for (int64_t i = s.buffer[b].cuts[m]; i < s.buffer[b].cuts[m + 1]; i++)
                NEED(same_bits(s.out[b][i], number(m, b, i)));
    close_buffers(&s);
    return WF_OK;
}

/* Returns how much member `from` sends to member `to` of buffer b: uneven, and often
   nothing. */
static int64_t block(int from, int to, int64_t b)
{
    return (from * 3 + to * 5 + b) % 4 * b * 3;
}

static wf_status exchange(wf_rank *rank, wf_comm *c, bool in_place)
{
    int64_t most = 64 * c->size;
    wf_collective what;
    buffers s;

    open_buffers(&s, most, c->size);
    for (int64_t b = 0; b < N_BUFFERS; b++) {
        int64_t *cuts = s.cuts + b * (c->size + 1), *out_cuts = s.out_cuts + b * (c->size + 1);

        cuts[0] = out_cuts[0] = 0;
        for (int i = 0; i < c->size; i++) {
            cuts[i + 1] = cuts[i] + block(c->rank, i, b);
            out_cuts[i + 1] = out_cuts[i] + block(i, c->rank, b);
            for (int64_t k = cuts[i]; k < cuts[i + 1]; k++)
                s.in[b][k] = number(c->rank * 64 + i, b, k - cuts[i]);
        }
        if (in_place)
            s.buffer[b].out = s.in[b];
    }
    what = all_of(&s, WF_ALL_TO_ALL);
    GOOD(run_buffers(c, &what, &rank->error));
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int m = 0; m < c->size; m++)
            for (int64_t k = 0; k < block(m, c->rank, b); k++)
                NEED(same_bits(((float *)s.buffer[b].out)[s.buffer[b].out_cuts[m] + k],
                               number(m * 64 + c->rank, b, k)));
    close_buffers(&s);
    return WF_OK;
}

static wf_status spread(wf_rank *rank, wf_comm *c, int root)
{
    wf_collective what;
    buffers s;

    open_buffers(&s, MOST, c->size);
    for (int64_t b = 0; b < N_BUFFERS; b++)
        for (int64_t i = 0; i < counts[b]; i++)
            s.in[b][i] = number(c->rank, b, i);
    what = all_of(&s, WF_BROADCAST);
    what.peer = root;
    GOOD(run_buffers(c, &what, &rank->error));
    for (int64_t b = 0; c->rank != root && b < N_BUFFERS; b++)
        for (int64_t i = 0; i < counts[b]; i++)
            NEED(same_bits(s.out[b][i], number(root, b, i)));
    close_buffers(&s);
    return WF_OK;
}

/* Twelve-byte elements around the ring, more messages than a channel holds, two buffers each.
 */
static wf_status pass_round(wf_rank *rank, wf_comm *c)
{
    enum { MESSAGES = 50 };
    int to = (c->rank + 1) % c->size, from = (c->rank + c->size - 1) % c->size;
    char out[2][12 * 7], in[2][12 * 7];
    wf_comm_buffer sent[2] = {{.in = out[0], .count = 7}, {.in = out[1], .count = 1}};
    wf_comm_buffer got[2] = {{.out = in[0], .count = 7}, {.out = in[1], .count = 1}};
    wf_collective send = {WF_SEND,        .element = 12,   .peer = to,
                          .n_buffers = 2, .buffers = sent, .device = test_device()};
    wf_collective recv = {WF_RECV,        .element = 12,  .peer = from,
                          .n_buffers = 2, .buffers = got, .device = test_device()};

    for (int i = 0; c->size > 1 && i < MESSAGES; i++) {
        wf_pending *p;

        memset(out, c->rank * 2 + i, sizeof out);
        GOOD(wf_collective_begin(c, &send, &p, &rank->error));
        GOOD(wf_collective_run(c, &recv, &rank->error));
        GOOD(wf_collective_end(p, &rank->error));
        test_device_settle();
        NEED(in[0][83] == (char)(from * 2 + i) && in[1][11] == (char)(from * 2 + i));
    }
    return WF_OK;
}

static wf_status everything(wf_rank *rank, void *arg)
{
    const world_case *w = arg;
    wf_reduce_ops ops = test_ops;
    wf_comm *c = rank->world;

    ops.chain = w->chain;
    wf_comm_set_reduce(c, &ops);
    if (w->transport)
        c->transport = w->transport;
    for (int how = APART; how <= IN_PLACE; how++) {
        GOOD(reduce_all(rank, c, false, w->chain, how != APART));
        GOOD(reduce_all(rank, c, true, w->chain, how != APART));
        if (!w->chain)
            GOOD(scatter(rank, c, how));
        GOOD(gather(rank, c, how));
        GOOD(exchange(rank, c, how != APART));
    }
    GOOD(spread(rank, c, 0));
    GOOD(spread(rank, c, c->size - 1));
    GOOD(pass_round(rank, c));
    return wf_barrier(c, &rank->error);
}

static void run_all_sizes(const wf_transport *transport)
{
    for (size_t i = UNDER_THREAD_SANITIZER ? 1 : 0; i < sizeof sizes / sizeof sizes[0];
         i += UNDER_THREAD_SANITIZER ? 2 : 1)
        run_ranks(sizes[i], everything, &(world_case){.transport = transport});
    run_ranks(7, everything, &(world_case){.transport = transport, .chain = true});
}

static void direct_path(void)
{
    run_all_sizes(NULL);
}

/* Over a transport that is asked for there is one path, which has been run. */
static void run_staged(void)
{
    if (!test_transport())
        run_all_sizes(staged_threads());
}

static void staged_path(void)
{
    run_staged();
}

static void one_by_one(void)
{
    alone = true;
    run_all_sizes(NULL);
    run_staged();
    alone = false;
}

/* Collectives of all kinds are begun, work is done, and then they are ended; round and round
   the group's ring. */
static wf_status in_flight(wf_rank *rank, void *arg)
{
    enum { FLIGHTS = 8, ROUNDS = 30 };
    wf_comm *c = rank->world;
    float in[FLIGHTS][40], out[FLIGHTS][40];
    const world_case *w = arg;

    wf_comm_set_reduce(c, &test_ops);
    if (w->transport)
        c->transport = w->transport;
    for (int round = 0; round < ROUNDS; round++) {
        wf_pending *p[FLIGHTS];

        for (int f = 0; f < FLIGHTS; f++) {
            wf_comm_buffer buffer = {.in = in[f], .out = out[f], .count = 40};
            wf_collective what = {.kind = f % 3 == 2 ? WF_BROADCAST : WF_ALL_REDUCE,
                                  .reduction = f % 2 ? WF_REDUCE_MAX : WF_REDUCE_SUM,
                                  .peer = f % c->size,
                                  .n_buffers = 1,
                                  .buffers = &buffer,
                                  .device = test_device()};

            for (int i = 0; i < 40; i++)
                in[f][i] = number(c->rank, round, f * 40 + i);
            GOOD(wf_collective_begin(c, &what, &p[f], &rank->error));
        }
        for (int f = 0; f < FLIGHTS; f++) {
            GOOD(wf_collective_end(p[f], &rank->error));
            test_device_settle();
            for (int i = 0; i < 40; i++) {
                int64_t at = f * 40 + i;
                float want = f % 3 == 2   ? number(f % c->size, round, at)
                             : f % 2 == 1 ? top_of(c->size, round, at)
                                          : tree_of(0, c->size, round, at);

                NEED((f % 3 == 2 && c->rank == f % c->size) || same_bits(out[f][i], want));
            }
        }
    }
    return WF_OK;
}

static void several_in_flight(void)
{
    run_ranks(5, in_flight, &(world_case){0});
    run_ranks(32, in_flight, &(world_case){0});
    if (staged_threads())
        run_ranks(5, in_flight, &(world_case){.transport = staged_threads()});
}

/* As many exchanges in flight as a program likes, ended in any order; and again, now that there
   is room for so many. */
static wf_status crowd(wf_rank *rank, void *arg)
{
    enum { CROWD = 150 };
    float in[CROWD], out[CROWD];
    wf_comm *c = rank->world;

    (void)arg;
    wf_comm_set_reduce(c, &test_ops);
    for (int round = 0; round < 3; round++) {
        wf_pending *p[CROWD];

        for (int f = 0; f < CROWD; f++) {
            wf_comm_buffer buffer = {.in = &in[f], .out = &out[f], .count = 1};
            wf_collective what = {.kind = WF_ALL_REDUCE,
                                  .n_buffers = 1,
                                  .buffers = &buffer,
                                  .device = test_device()};

            in[f] = number(c->rank, round, f);
            GOOD(wf_collective_begin(c, &what, &p[f], &rank->error));
        }
        for (int k = 0; k < CROWD; k++) {
            int f = round == 1 ? CROWD - 1 - k : (k * 7 + round) % CROWD;

            GOOD(wf_collective_end(p[f], &rank->error));
            test_device_settle();
            NEED(same_bits(out[f], tree_of(0, c->size, round, f)));
        }
    }
    return wf_barrier(c, &rank->error);
}

static void many_in_flight(void)
{
    run_ranks(4, crowd, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"peers' buffers read in place", direct_path},
        {"packed and moved", staged_path},
        {"one buffer at a time", one_by_one},
        {"several in flight", several_in_flight},
        {"many in flight", many_in_flight},
        {NULL, NULL},
    };

    return wf_test_main("comm", tests);
}
