/*
 * tests/cuda/test_tile_schedule.c - kernels/cuda/tile_schedule_internal.h without a GPU: blocks
 * of a cluster are gone through step by step, each thread that fills stages, each worker and
 * each copy that is under way as an actor of its own, in many orders. A stage is never filled
 * while a worker needs it, nor read before all of it is there; one worker at a time has the
 * turn; every tile is made once; and all come to their end.
 *
 * ctest: builds plain
 */
#include "kernels/cuda/tile_schedule_internal.h"
#include "tests/harness.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MOST_JOBS = 64, MOST_CHUNKS = 8, COPIES = 64, PARTS = 1 + WF_CLUSTER, ORDERS = 12 };

/* The jobs of a launch. Where a worker has a job to itself, job j has the stages of chunk
   j % chunks; else every job has all chunks. */
typedef struct work {
    bool alone;
    int jobs, clusters, chunks, stages[MOST_CHUNKS];
} work;

typedef struct barrier {
    int arrivals, pending, expected, phase;
} barrier;

/* A stage of a block: what it is filled with, how much of it has come, who has yet to read. */
typedef struct stage {
    int job, number, parts, readers;
} stage;

typedef struct copy {
    int block, stage, job, number;
} copy;

typedef struct producer {
    int job, number;
    wf_ring at;
} producer;

/* The position of a worker: before a chunk, before a stage's turn, before its barrier, behind
   its products, behind a chunk. */
typedef enum step { CHUNK, TURN, FULL, ASKED, END, DONE } step;

typedef struct worker {
    step step;
    int job, count, chunk, number, in_chunk; /* count: jobs so far; number: stages of the job */
    int turn, done, left;
    bool has_turn;
    wf_ring at;
} worker;

typedef struct block {
    barrier full[WF_STAGES], empty[WF_STAGES], turn[WF_WORKERS];
    stage stage[WF_STAGES];
    producer producer;
    worker worker[WF_WORKERS];
} block;

static const work *plan;
static block blocks[WF_CLUSTER];
static copy copies[COPIES];
static int n_copies, made[MOST_JOBS][WF_CLUSTER];
static bool good;
static unsigned seed;

static unsigned draw(unsigned n)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % n;
}

static void must(bool holds)
{
    good = good && holds;
}

static void complete(barrier *b)
{
    if (b->pending || b->expected)
        return;
    b->phase ^= 1;
    b->pending = b->arrivals;
}

static void arrive(barrier *b, int count)
{
    must(b->pending >= count);
    b->pending -= count;
    complete(b);
}

static bool is_past(const barrier *b, int phase)
{
    return b->phase != phase;
}

static int stages_of_chunk(int job, int chunk)
{
    return plan->stages[plan->alone ? job % plan->chunks : chunk];
}

static int chunks_of(void)
{
    return plan->alone ? 1 : plan->chunks;
}

static int stages_of_job(int job)
{
    int n = 0;

    for (int c = 0; c < chunks_of(); c++)
        n += stages_of_chunk(job, c);
    return n;
}

/* A part of a stage goes to a block, which must have no use for what is there. */
static void send(int b, int index, int job, int number)
{
    stage *s = &blocks[b].stage[index];

    if (s->job != job || s->number != number) {
        must(s->readers == 0);
        *s = (stage){job, number, 0, plan->alone ? 1 : WF_WORKERS};
    }
    must(n_copies < COPIES);
    copies[n_copies++] = (copy){b, index, job, number};
}

static bool step_producer(int b)
{
    producer *p = &blocks[b].producer;
    barrier *full = &blocks[b].full[p->at.stage];

    while (p->job < plan->jobs && p->number == stages_of_job(p->job)) {
        p->job += plan->clusters;
        p->number = 0;
    }
    if (p->job >= plan->jobs || !is_past(&blocks[b].empty[p->at.stage], p->at.phase ^ 1))
        return false;
    full->expected += PARTS;
    arrive(full, 1);
    send(b, p->at.stage, p->job, p->number);
    for (int to = 0; to < WF_CLUSTER; to++)
        send(to, p->at.stage, p->job, p->number);
    p->number++;
    wf_ring_next(&p->at);
    return true;
}

static bool step_copy(void)
{
    copy c;
    stage *s;

    if (n_copies == 0)
        return false;
    c = copies[draw((unsigned)n_copies)];
    for (int i = 0; i < n_copies; i++)
        if (memcmp(&copies[i], &c, sizeof c) == 0) {
            copies[i] = copies[--n_copies];
            break;
        }
    s = &blocks[c.block].stage[c.stage];
    must(s->job == c.job && s->number == c.number);
    s->parts++;
    blocks[c.block].full[c.stage].expected--;
    complete(&blocks[c.block].full[c.stage]);
    return true;
}

static void release(int b, const worker *w)
{
    int index = wf_ring_before(w->at);

    must(blocks[b].stage[index].readers > 0);
    blocks[b].stage[index].readers--;
    for (int to = 0; to < WF_CLUSTER; to++)
        arrive(&blocks[to].empty[index], WF_WORKER_WARPS);
}

/* Goes to the next job, and over those that are the other worker's. */
static void begin_job(worker *w, int self)
{
    while (w->job < plan->jobs && plan->alone && w->count % WF_WORKERS != self) {
        wf_ring_skip(&w->at, stages_of_job(w->job));
        w->job += plan->clusters;
        w->count++;
    }
    w->chunk = w->number = 0;
    w->step = w->job < plan->jobs ? CHUNK : DONE;
}

static void end_turn(int b, int self)
{
    worker *w = &blocks[b].worker[self];
    int most = plan->alone ? WF_WHOLE_CHUNK : WF_TURN;

    w->done++;
    w->left--;
    if (w->done < most && w->left > 0)
        return;
    w->done = 0;
    w->turn++;
    w->has_turn = false;
    arrive(&blocks[b].turn[self ^ 1], WF_WORKER_WARPS);
}

static bool take_turn(int b, int self)
{
    worker *w = &blocks[b].worker[self];

    if (w->done > 0)
        return true;
    if (!is_past(&blocks[b].turn[self], wf_turn_phase(self, w->turn)))
        return false;
    must(!blocks[b].worker[self ^ 1].has_turn);
    w->has_turn = true;
    return true;
}

static bool ask_products(int b, int self)
{
    worker *w = &blocks[b].worker[self];
    const stage *s = &blocks[b].stage[w->at.stage];

    if (!is_past(&blocks[b].full[w->at.stage], w->at.phase))
        return false;
    must(s->job == w->job && s->number == w->number && s->parts == PARTS && s->readers > 0);
    w->step = ASKED;
    return true;
}

static void end_chunk(int b, int self)
{
    worker *w = &blocks[b].worker[self];

    if (w->in_chunk > 0)
        release(b, w);
    w->chunk++;
    w->step = CHUNK;
    if (w->chunk < chunks_of())
        return;
    made[w->job][b] += plan->alone ? 2 : 1; /* halves of its rows */
    w->job += plan->clusters;
    w->count++;
    begin_job(w, self);
}

/* One step of a worker; false: it waits. */
static bool step_worker(int b, int self)
{
    worker *w = &blocks[b].worker[self];

    switch (w->step) {
    case CHUNK:
        w->left = stages_of_chunk(w->job, w->chunk);
        w->done = w->in_chunk = 0;
        w->step = TURN;
        return true;
    case TURN:
        if (!take_turn(b, self))
            return false;
        w->step = w->left > 0 ? FULL : END;
        if (w->left == 0)
            end_turn(b, self);
        return true;
    case FULL:
        return ask_products(b, self);
    case ASKED:
        end_turn(b, self);
        if (w->in_chunk > 0)
            release(b, w);
        wf_ring_next(&w->at);
        w->number++;
        w->in_chunk++;
        w->step = w->left > 0 ? TURN : END;
        return true;
    case END:
        end_chunk(b, self);
        return true;
    default:
        return false;
    }
}

static barrier barrier_of(int arrivals)
{
    return (barrier){.arrivals = arrivals, .pending = arrivals};
}

static void begin_cluster(int cluster)
{
    memset(blocks, 0, sizeof blocks);
    n_copies = 0;
    for (int b = 0; b < WF_CLUSTER; b++) {
        for (int s = 0; s < WF_STAGES; s++) {
            blocks[b].full[s] = barrier_of(1);
            blocks[b].empty[s] = barrier_of(wf_readers_of(plan->alone ? 1 : WF_WORKERS));
            blocks[b].stage[s].job = -1;
        }
        blocks[b].producer.job = cluster;
        for (int w = 0; w < WF_WORKERS; w++) {
            blocks[b].turn[w] = barrier_of(WF_WORKER_WARPS);
            blocks[b].worker[w].job = cluster;
            begin_job(&blocks[b].worker[w], w);
        }
    }
}

static bool step_actor(unsigned actor)
{
    if (actor < WF_CLUSTER)
        return step_producer((int)actor);
    actor -= WF_CLUSTER;
    if (actor < WF_CLUSTER * WF_WORKERS)
        return step_worker((int)actor / WF_WORKERS, (int)actor % WF_WORKERS);
    return step_copy();
}

/* Lets actors act in an order that is drawn, until none can; one of them is drawn often, and so
   is ahead of the others, or seldom. */
static void run_cluster(int cluster, unsigned order)
{
    const unsigned actors = WF_CLUSTER + WF_CLUSTER * WF_WORKERS + 1;

    seed = order * 7919u + 1;
    begin_cluster(cluster);
    for (unsigned idle = 0; idle < actors && good;) {
        unsigned actor = draw(4) ? draw(actors) : order % actors;

        if (order >= actors && actor == order % actors && draw(8))
            continue;
        if (step_actor(actor)) {
            idle = 0;
            continue;
        }
        for (idle = 0; idle < actors && !step_actor((actor + idle) % actors); idle++)
            ;
    }
    for (int b = 0; b < WF_CLUSTER; b++)
        for (int w = 0; w < WF_WORKERS; w++)
            must(blocks[b].worker[w].step == DONE);
    must(n_copies == 0);
}

static void check_work(const work *w)
{
    plan = w;
    for (unsigned order = 0; order < ORDERS; order++) {
        good = true;
        memset(made, 0, sizeof made);
        for (int cluster = 0; cluster < w->clusters; cluster++)
            run_cluster(cluster, order);
        for (int job = 0; job < w->jobs; job++)
            for (int b = 0; b < WF_CLUSTER; b++)
                must(made[job][b] == 2);
        if (!good)
            printf("\n%s, %d jobs, %d clusters, %d chunks of %d stages and more, order %u\n",
                   w->alone ? "alone" : "shared", w->jobs, w->clusters, w->chunks, w->stages[0],
                   order);
        CU_ASSERT_FATAL(good);
    }
}

static void pipelines(void)
{
    static const work works[] = {
        {true, 1, 1, 1, {12}},
        {true, 7, 3, 1, {12}},
        {true, 40, 1, 1, {1}},
        {true, 41, 2, 1, {5}},
        {true, 23, 1, 3, {0, 1, 7}},
        {true, 64, 3, 8, {2, 0, 0, 5, 6, 13, 4, 1}},
        {true, 6, 1, 1, {0}},
        {false, 1, 1, 1, {12}},
        {false, 5, 2, 8, {2, 2, 2, 2, 2, 2, 2, 2}},
        {false, 33, 1, 2, {1, 1}},
        {false, 9, 2, 8, {6, 6, 6, 6, 6, 6, 6, 6}},
        {false, 12, 1, 5, {3, 0, 11, 1, 5}},
        {false, 7, 3, 3, {0, 0, 0}},
        {false, 2, 4, 1, {64}},
    };

    for (size_t i = 0; i < sizeof works / sizeof *works; i++)
        check_work(&works[i]);
}

int main(void)
{
    static const wf_test tests[] = {
        {"pipelines of a cluster", pipelines},
        {NULL, NULL},
    };

    return wf_test_main("the schedule of tiles", tests);
}
