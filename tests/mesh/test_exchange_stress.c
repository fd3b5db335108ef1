/*
 * tests/mesh/test_exchange_stress.c - a rank that gets WF_OK has what all members sent it,
 * whatever fails meanwhile: pieces of work that fail, pieces that are left out because the
 * world has ended, in every order that many worlds meet, and once in the order that matters. An
 * abort returns when no rank reads any more, and what looks like a deadlock is looked at twice.
 *
 *     test_exchange_stress [WORLDS]      by hand: 20000
 *
 * ctest: builds address thread
 */
#include "mesh/transport/threads/exchange_internal.h"
#include "tests/mesh/ranks.h"
#include <time.h>
#include <unistd.h>

enum { MEMBERS = 4, CALLS = 8, FLOATS = 4 << 10 };

static int64_t worlds = UNDER_SANITIZER ? 40 : 150;

/* The counts of all ranks of all worlds. */
typedef struct tally {
    int world;
    _Atomic int64_t calls, good, wrong;
} tally;

static uint64_t any(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

/* Returns true where the parts of all members are there, as they sent them in this call. */
static bool complete(const float *all, int size, int64_t call)
{
    for (int m = 0; m < size; m++)
        for (int i = 0; i < FLOATS; i++)
            if (!same_bits(all[m * FLOATS + i], number(m, call, i)))
                return false;
    return true;
}

static void reported(tally *t, wf_status status, bool right)
{
    atomic_fetch_add(&t->calls, 1);
    if (status != WF_OK)
        return;
    atomic_fetch_add(&t->good, 1);
    if (!right)
        atomic_fetch_add(&t->wrong, 1);
}

/* The buffers that a member shows to the others. */
typedef struct parts {
    float in[FLOATS], out[MEMBERS * FLOATS];
    uint64_t random[MEMBERS]; /* for the work on each member's share, whoever does it */
} parts;

static wf_status gather_share(const wf_exchange *x, int share, int64_t piece, wf_error *error)
{
    parts *from = wf_threads_direct.owner(x, share);

    (void)piece, (void)error;
    if (any(&from->random[share]) % 2)
        usleep((useconds_t)(any(&from->random[share]) % 300));
    for (int m = 0; m < x->comm->size; m++) {
        parts *to = wf_threads_direct.owner(x, m);

        memcpy(to->out + share * FLOATS, from->in, sizeof from->in);
    }
    return WF_OK;
}

/* Gathers whose pieces take their time, over links of some microseconds; one rank gives up in
   the middle of one. */
static wf_status gather_and_abort(wf_rank *rank, void *arg)
{
    tally *t = arg;
    uint64_t common = (uint64_t)t->world, mine = common * MEMBERS + (uint64_t)rank->index;
    int last = (int)(any(&common) % CALLS), quitter = (int)(any(&common) % MEMBERS);
    parts *p = calloc(1, sizeof *p);
    wf_status status = WF_OK;

    if (rank->index == 0 && any(&common) % 2)
        wf_threads_limit(rank->world, (uint64_t)(64 + any(&common) % 1024) << 20);
    status = wf_barrier(rank->world, &rank->error);
    for (int call = 0; status == WF_OK && call <= last; call++) {
        bool quits = call == last && rank->index == quitter;
        wf_exchange x = {.print = {.op = "gather", .detail = "", .bytes = 64 << 10},
                         .work = gather_share,
                         .owner = p,
                         .background = any(&common) % 2};

        p->random[rank->index] = any(&mine);
        for (int i = 0; i < FLOATS; i++)
            p->in[i] = number(rank->index, call, i);
        memset(p->out, 0, sizeof p->out);
        status = wf_threads_direct.begin(rank->world, &x, &rank->error);
        if (status == WF_OK && any(&mine) % 2)
            usleep((useconds_t)(any(&mine) % 200));
        if (quits) {
            wf_error_set(&rank->error, WF_EIO, "the disk is gone");
            wf_comm_abort(rank->world, &rank->error);
        }
        if (status == WF_OK)
            status = wf_threads_finish_exchange(rank->world, &x, quits ? NULL : &rank->error);
        reported(t, status, complete(p->out, rank->size, call));
    }
    memset(p, 0xff, sizeof *p); /* nobody looks at it any more */
    free(p);
    return rank->error.code;
}

/* Rank 1 of four expects more from the last one than that has for it. */
static wf_status disagree(wf_rank *rank, void *arg)
{
    int64_t cuts[MEMBERS + 1] = {0, 4, 8, 12, 16}, more[MEMBERS + 1] = {0, 4, 8, 12, 17};
    float in[17] = {0}, out[17];
    wf_status status = wf_all_to_all(rank->world, sizeof *in, in, cuts, out,
                                     rank->index == 1 ? more : cuts, &rank->error);

    reported(arg, status, false);
    return status;
}

static void in_many_worlds(const char *what, wf_status (*work)(wf_rank *, void *))
{
    tally t = {0};

    for (; t.world < worlds; t.world++) {
        wf_error error = {WF_OK, ""};

        wf_launch(&(wf_launch_options){.ranks = MEMBERS}, work, &t, &error);
        CU_ASSERT(error.code != WF_OK);
    }
    printf("(%lld %s: %lld ended well, %lld of them wrongly) ", (long long)t.calls, what,
           (long long)t.good, (long long)t.wrong);
    CU_ASSERT(t.calls >= t.world);
    CU_ASSERT_EQUAL(t.wrong, 0);
}

static void aborts(void)
{
    in_many_worlds("gathers", gather_and_abort);
}

static void mismatches(void)
{
    in_many_worlds("exchanges of sizes that disagree", disagree);
}

static void sleep_ms(int ms)
{
    nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL);
}

/* An exchange of two shares. That of rank 0 is not done: it fails, or is left out because the
   world ends meanwhile. Rank 1 is at its own until then, and ends that well. */
typedef struct shares {
    bool fails;
    _Atomic bool begun, done[2];
    wf_status came_to[2];
} shares;

static wf_status share_of_two(const wf_exchange *x, int share, int64_t piece, wf_error *error)
{
    shares *s = x->owner;
    const group *g = wf_threads_of(x->comm)->group;
    const slot *p = x->slot;

    (void)piece;
    if (share == 0 && s->fails)
        return wf_error_set(error, WF_EIO, "share 0 fails");
    atomic_store(&s->begun, true);
    while (share == 1 && !atomic_load(&p->taken[0]))
        sleep_ms(1);
    if (share == 1 && !s->fails)
        wf_threads_abort(g->world, 0, &(wf_error){WF_EIO, "the disk is gone"});
    while (share == 1 && s->fails && !atomic_load(&g->broken))
        sleep_ms(1);
    if (share == 1)
        sleep_ms(50); /* rank 0 comes to know of it */
    atomic_store(&s->done[share], true);
    return WF_OK;
}

static wf_status two_shares(wf_rank *rank, void *arg)
{
    shares *s = arg;
    wf_exchange x = {.print = {.op = "two shares", .detail = "", .bytes = 1 << 20},
                     .work = share_of_two,
                     .owner = s};

    GOOD(wf_threads_direct.begin(rank->world, &x, &rank->error));
    while (rank->index == 0 && !atomic_load(&s->begun))
        sleep_ms(1);
    if (rank->index == 0 && !s->fails)
        wf_threads_limit(rank->world, 1 << 10); /* its share is on the link for minutes */
    s->came_to[rank->index] = wf_threads_finish_exchange(rank->world, &x, &rank->error);
    return s->came_to[rank->index];
}

static void pieces_that_count(void)
{
    for (int fails = 0; fails < 2; fails++) {
        shares s = {.fails = fails};
        wf_error error = {WF_OK, ""};

        wf_launch(&(wf_launch_options){.ranks = 2}, two_shares, &s, &error);
        CU_ASSERT(s.done[1] && !s.done[0]);
        CU_ASSERT(s.came_to[0] != WF_OK && s.came_to[1] != WF_OK);
    }
}

/* Rank 1 is in the middle of a piece, which reads what rank 0 has posted, when that gives
   up. */
typedef struct reader {
    _Atomic bool reading;
    bool in_peace; /* nobody was reading when the abort had returned */
} reader;

static wf_status slow_share(const wf_exchange *x, int share, int64_t piece, wf_error *error)
{
    reader *r = x->owner;

    (void)share, (void)piece, (void)error;
    atomic_store(&r->reading, true);
    sleep_ms(50);
    atomic_store(&r->reading, false);
    return WF_OK;
}

static wf_status abort_in_a_piece(wf_rank *rank, void *arg)
{
    reader *r = arg;
    wf_exchange x = {.print = {.op = "slow", .detail = ""}, .work = slow_share, .owner = r};

    GOOD(wf_threads_direct.begin(rank->world, &x, &rank->error));
    if (rank->index == 1)
        return wf_threads_finish_exchange(rank->world, &x, &rank->error);
    while (!atomic_load(&r->reading))
        sleep_ms(1);
    wf_error_set(&rank->error, WF_EIO, "the disk is gone");
    wf_comm_abort(rank->world, &rank->error);
    r->in_peace = !atomic_load(&r->reading);
    wf_threads_finish_exchange(rank->world, &x, NULL);
    return rank->error.code;
}

static void readers_are_waited_for(void)
{
    reader r = {.in_peace = false};
    wf_error error = {WF_OK, ""};

    wf_launch(&(wf_launch_options){.ranks = 2}, abort_in_a_piece, &r, &error);
    CU_ASSERT(r.in_peace);
    CU_ASSERT(says(&error, WF_EIO, "rank 0", "the disk is gone"));
}

/* Words that two ranks wait for, and who sets them. */
typedef struct stage {
    world *w;
    group *g;
    _Atomic uint64_t first, second, other;
} stage;

/* While the detector is between rank 0, which it has found waiting, and rank 1, rank 0 goes
   on. */
static void *let_go_between(void *arg)
{
    stage *s = arg;

    while (atomic_load(&s->w->waiting) < 2)
        sleep_ms(1);
    pthread_mutex_lock(&s->w->rank[1].lock);
    while (pthread_mutex_trylock(&s->w->lock) == 0) {
        pthread_mutex_unlock(&s->w->lock);
        sleep_ms(1);
    }
    sleep_ms(30);
    atomic_store(&s->first, 1);
    wf_threads_wake(s->g);
    sleep_ms(30);
    pthread_mutex_unlock(&s->w->rank[1].lock);
    sleep_ms(50);
    atomic_store(&s->second, 1);
    wf_threads_wake(s->g);
    return NULL;
}

static wf_status wait_for(wf_rank *rank, const _Atomic uint64_t *word, const char *op)
{
    const threads_comm *c = wf_threads_of(rank->world);
    need n = {.group = c->group, .word = word, .target = 1, .peer = !rank->index, .op = op};

    return wf_threads_wait(c, &n, &rank->error);
}

static wf_status hardly_a_deadlock(wf_rank *rank, void *arg)
{
    stage *s = arg;
    pthread_t helper;
    wf_status status;

    if (rank->index == 1)
        return wait_for(rank, &s->other, "the other");
    s->g = wf_threads_of(rank->world)->group;
    s->w = s->g->world;
    NEED(pthread_create(&helper, NULL, let_go_between, s) == 0);
    sleep_ms(100); /* so that rank 1 has waited longer, and looks first */
    status = wait_for(rank, &s->first, "the first");
    if (status == WF_OK)
        status = wait_for(rank, &s->second, "the second");
    atomic_store(&s->other, 1);
    wf_threads_wake(s->g);
    pthread_join(helper, NULL);
    return status;
}

static void deadlocks_are_looked_at_twice(void)
{
    stage s = {.w = NULL};
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_launch(&(wf_launch_options){.ranks = 2}, hardly_a_deadlock, &s, &error),
                    WF_OK);
    CU_ASSERT_STRING_EQUAL(error.text, "");
}

int main(int argc, char **argv)
{
    static const wf_test tests[] = {
        {"only pieces that are done count", pieces_that_count},
        {"an abort waits for readers", readers_are_waited_for},
        {"what looks like a deadlock", deadlocks_are_looked_at_twice},
        {"ranks that give up", aborts},
        {"sizes that disagree", mismatches},
        {NULL, NULL}};

    if (argc > 1)
        worlds = atoll(argv[1]);
    return wf_test_main("exchange_stress", tests);
}
