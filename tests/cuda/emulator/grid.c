/*
 * tests/cuda/emulator/grid.c - runs the blocks of a grid one after another, those of a cluster
 * at once.
 *
 * A fiber runs thread after thread until one of them waits; then another fiber takes the
 * threads that follow, and when there are none left the waiting ones continue. So what meets no
 * barrier costs a call per thread, and a block of n threads that do costs n fibers. Threads are
 * taken in ascending order and in descending order alternately, from block to block and from
 * grid to grid, and a warp runs for as long as it can: what depends on the order has other bits
 * when it is run a second time.
 */
#include "emulator.h"
#include "fiber.h"
#include <stdlib.h>
#include <string.h>

enum { STACK = 256 << 10, MOST_SHARED = 64, WARPS = EMULATOR_THREADS / EMULATOR_WARP };

typedef struct meeting {
    unsigned arrived, round;
} meeting;

typedef struct worker {
    fiber *fiber;
    unsigned thread; /* its index in the cluster */
    unsigned block;  /* its block's in the cluster */
    uint3 index;
    bool busy; /* in the middle of a thread */
} worker;

/* The one grid that runs: emulator_lock is held. */
static struct {
    worker worker[EMULATOR_THREADS];
    unsigned workers, current;
    fiber host;
    void (*body)(void *arg);
    void *arg;
    unsigned cluster, block_threads; /* blocks of a cluster, threads of each */
    unsigned threads, next, done, progress, at_last_turn, at_warps_turn;
    unsigned grids; /* so far */
    bool descending;
    uint3 first_block;
    meeting block[EMULATOR_CLUSTER], all_blocks, named[EMULATOR_CLUSTER][EMULATOR_NAMED];
    struct warp {
        meeting meeting;
        uint64_t slot[2][EMULATOR_WARP];
    } warp[WARPS];
    _Alignas(1024) char dynamic[EMULATOR_CLUSTER][EMULATOR_SHARED];
    size_t dynamic_bytes;
    struct {
        void *at;
        size_t bytes;
    } shared[MOST_SHARED];
    unsigned n_shared;
} now;

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
/* Declared in kernel_language.h for C++. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
unsigned emulator_lane(void);
void emulator_sync_block(void);
void emulator_sync_cluster(void);
void emulator_sync_named(unsigned id, unsigned threads);
void emulator_sync_warp(unsigned mask);
uint64_t emulator_shuffle(unsigned mask, uint64_t value, unsigned from);
unsigned emulator_ballot(unsigned mask, bool vote);
void *emulator_dynamic_shared(void);
void emulator_register_shared(void *at, size_t bytes);

static void set_indices(const worker *w)
{
    threadIdx = w->index;
    blockIdx = now.first_block;
    blockIdx.x += w->block;
}

static void set_thread(worker *w)
{
    unsigned i = now.next++, x = blockDim.x, y = blockDim.y, t;

    w->thread = now.descending ? now.threads - 1 - i : i;
    w->block = w->thread / now.block_threads;
    t = w->thread % now.block_threads;
    w->index = (uint3){t % x, t / x % y, t / x / y};
    set_indices(w);
}

/* A fiber's whole life: in every block, threads as long as there are some. */
static void work(void)
{
    worker *w = &now.worker[now.current];

    fiber_begins();
    for (;;) {
        while (now.next < now.threads) {
            set_thread(w);
            w->busy = true;
            now.body(now.arg);
            w->busy = false;
            now.done++;
            now.progress++;
        }
        fiber_switch(w->fiber, &now.host);
    }
}

static void go_on(unsigned i)
{
    now.current = i;
    set_indices(&now.worker[i]);
    fiber_switch(&now.host, now.worker[i].fiber);
}

static void begin_worker(void)
{
    worker *w;

    if (now.workers == EMULATOR_THREADS)
        emulator_die("more fibers than a block has threads");
    w = &now.worker[now.workers];
    if (!w->fiber)
        w->fiber = fiber_open(STACK, work);
    if (!w->fiber)
        emulator_die("no memory for the stack of a thread");
    go_on(now.workers++);
}

static void prepare_block(unsigned index)
{
    now.workers = now.next = now.done = 0;
    now.at_last_turn = now.at_warps_turn = now.progress - 1;
    now.current = 0;
    now.descending = (index + now.grids) % 2 != 0;
    memset(now.block, 0, sizeof now.block);
    memset(now.named, 0, sizeof now.named);
    memset(&now.all_blocks, 0, sizeof now.all_blocks);
    memset(now.warp, 0, sizeof now.warp);
    for (unsigned b = 0; b < now.cluster; b++)
        memset(now.dynamic[b], 0xff, now.dynamic_bytes);
    emulator_copies_begin();
    for (unsigned i = 0; i < now.n_shared; i++)
        memset(now.shared[i].at, 0xff, now.shared[i].bytes);
}

/* Every thread waits, and nobody has moved since all were asked last. */
static void check_turn(void)
{
    if (now.progress == now.at_last_turn)
        emulator_die("%u of %u threads of a block wait for others that ended, or that wait "
                     "elsewhere",
                     now.threads - now.done, now.threads);
    now.at_last_turn = now.progress;
}

/* The next fiber that is in the middle of a thread: of the same warp while that moves, so that
   a warp gets as far ahead of the others as it can. */
static unsigned next_busy(void)
{
    unsigned i = now.current;

    do {
        unsigned first = i / EMULATOR_WARP * EMULATOR_WARP, end = first + EMULATOR_WARP;

        if (++i < end && i < now.workers)
            continue;
        if (now.progress != now.at_warps_turn) {
            i = first;
        } else {
            i = i < now.workers ? i : 0;
            if (i == 0)
                check_turn();
        }
        now.at_warps_turn = now.progress;
    } while (!now.worker[i].busy);
    return i;
}

/* Come back when threads are left to begin, or a fiber has no more of them. */
static void run_block(unsigned index)
{
    prepare_block(index);
    while (now.done < now.threads) {
        if (now.next < now.threads)
            begin_worker();
        else
            go_on(next_busy());
    }
    emulator_copies_end();
}

void emulator_run_grid(const cudaLaunchConfig_t *config, void (*body)(void *arg), void *arg)
{
    unsigned index = 0;

    blockDim = config->blockDim;
    gridDim = config->gridDim;
    now.grids++;
    now.body = body;
    now.arg = arg;
    now.block_threads = config->blockDim.x * config->blockDim.y * config->blockDim.z;
    now.cluster = config->cluster ? config->cluster : 1;
    now.threads = now.cluster * now.block_threads;
    now.dynamic_bytes = config->dynamicSmemBytes;
    memset(&now.host, 0, sizeof now.host);
    for (unsigned z = 0; z < config->gridDim.z; z++)
        for (unsigned y = 0; y < config->gridDim.y; y++)
            for (unsigned x = 0; x < config->gridDim.x; x += now.cluster) {
                now.first_block = (uint3){x, y, z};
                run_block(index++);
            }
}

/* Let others run: threads that have not begun, by way of run_block, else fiber by fiber. */
void emulator_pass_on(void)
{
    unsigned self = now.current, other;

    if (now.next < now.threads) {
        fiber_switch(now.worker[self].fiber, &now.host);
        return;
    }
    other = next_busy();
    if (other != self) {
        now.current = other;
        set_indices(&now.worker[other]);
        fiber_switch(now.worker[self].fiber, now.worker[other].fiber);
    }
}

/* Wait until `expected` threads have come to this meeting as often as this one. */
static void meet(meeting *m, unsigned expected)
{
    unsigned round = m->round;

    if (++m->arrived == expected) {
        m->arrived = 0;
        m->round++;
        now.progress++;
        return;
    }
    while (m->round == round)
        emulator_pass_on();
}

void emulator_moved(void)
{
    now.progress++;
}

unsigned emulator_thread(void)
{
    return now.worker[now.current].thread;
}

unsigned emulator_block_in_cluster(void)
{
    return now.worker[now.current].block;
}

char *emulator_shared_of(unsigned block)
{
    return now.dynamic[block];
}

void emulator_sync_block(void)
{
    meet(&now.block[emulator_block_in_cluster()], now.block_threads);
}

void emulator_sync_cluster(void)
{
    meet(&now.all_blocks, now.threads);
}

void emulator_sync_named(unsigned id, unsigned threads)
{
    if (id >= EMULATOR_NAMED)
        emulator_die("barrier %u of a block, which has %d", id, EMULATOR_NAMED);
    meet(&now.named[emulator_block_in_cluster()][id], threads);
}

unsigned emulator_lane(void)
{
    return emulator_thread() % EMULATOR_WARP;
}

static struct warp *this_warp(void)
{
    return &now.warp[emulator_thread() / EMULATOR_WARP];
}

/* Returns how many threads of this warp are in the mask; all of them must come. */
static unsigned expected(unsigned mask)
{
    unsigned first = emulator_thread() / EMULATOR_WARP * EMULATOR_WARP,
             rest = now.threads - first;

    if (mask == 0xffffffffu && rest >= EMULATOR_WARP)
        return EMULATOR_WARP;
    if (rest < EMULATOR_WARP)
        mask &= (1u << rest) - 1;
    if (!(mask >> emulator_lane() & 1))
        emulator_die("lane %u is not in its own mask %08x", emulator_lane(), mask);
    return (unsigned)__builtin_popcount(mask);
}

void emulator_sync_warp(unsigned mask)
{
    meet(&this_warp()->meeting, expected(mask));
}

/* Every other meeting has slots of its own: who is late still finds what it came for. */
uint64_t emulator_shuffle(unsigned mask, uint64_t value, unsigned from)
{
    struct warp *warp = this_warp();
    uint64_t *slot = warp->slot[warp->meeting.round % 2];

    if (!(mask >> from & 1))
        emulator_die("lane %u reads lane %u, which is not in the mask %08x", emulator_lane(),
                     from, mask);
    slot[emulator_lane()] = value;
    meet(&warp->meeting, expected(mask));
    return slot[from];
}

unsigned emulator_ballot(unsigned mask, bool vote)
{
    struct warp *warp = this_warp();
    uint64_t *slot = warp->slot[warp->meeting.round % 2];
    unsigned all = 0;

    slot[emulator_lane()] = vote;
    meet(&warp->meeting, expected(mask));
    for (unsigned i = 0; i < EMULATOR_WARP; i++)
        if (mask >> i & 1)
            all |= (unsigned)(slot[i] & 1) << i;
    return all;
}

void *emulator_dynamic_shared(void)
{
    return now.dynamic[emulator_block_in_cluster()];
}

void emulator_register_shared(void *at, size_t bytes)
{
    if (now.n_shared == MOST_SHARED)
        emulator_die("more than %d shared variables", MOST_SHARED);
    memset(at, 0xff, bytes);
    now.shared[now.n_shared].at = at;
    now.shared[now.n_shared++].bytes = bytes;
}
