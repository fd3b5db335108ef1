/* tests/bench/world.c - a world of ranks in the background, whose ranks sleep between rounds:
   so worlds of different sizes can alternate in one process. */
#include "tests/bench/bench.h"
#include <pthread.h>
#include <stdlib.h>

struct bench_world {
    pthread_t launcher;
    int ranks, threads;
    pthread_mutex_t lock;
    pthread_cond_t begin, done;
    int64_t turn;
    int working;
    bool failed;      /* a rank has, and the world ends */
    bool over;        /* the launcher has returned: all ranks have */
    bench_part *part; /* NULL: the thread ends */
    void *arg;
    wf_error error;
};

/* After a failure the others, who may be waiting for their next turn, end as well. */
static void end_part(bench_world *world, wf_status status)
{
    pthread_mutex_lock(&world->lock);
    if (status != WF_OK) {
        world->failed = true;
        world->part = NULL;
        world->turn++;
        pthread_cond_broadcast(&world->begin);
    }
    if (--world->working == 0)
        pthread_cond_signal(&world->done);
    pthread_mutex_unlock(&world->lock);
}

static wf_status rank_main(wf_rank *rank, void *arg)
{
    bench_world *world = arg;
    wf_status status = WF_OK;
    void *own = NULL;

    for (int64_t seen = 0; status == WF_OK;) {
        bench_part *part;

        pthread_mutex_lock(&world->lock);
        while (world->turn == seen)
            pthread_cond_wait(&world->begin, &world->lock);
        seen = world->turn;
        part = world->part;
        pthread_mutex_unlock(&world->lock);
        if (!part)
            break;
        status = part(rank, &own, world->arg);
        end_part(world, status);
    }
    return status;
}

static void *launch(void *arg)
{
    bench_world *world = arg;

    wf_launch(&(wf_launch_options){.ranks = world->ranks, .threads = world->threads}, rank_main,
              world, &world->error);
    pthread_mutex_lock(&world->lock);
    world->over = true;
    pthread_cond_signal(&world->done);
    pthread_mutex_unlock(&world->lock);
    return NULL;
}

static void begin(bench_world *world, bench_part *part, void *arg)
{
    pthread_mutex_lock(&world->lock);
    world->part = part;
    world->arg = arg;
    world->working = world->ranks;
    world->turn++;
    pthread_cond_broadcast(&world->begin);
    pthread_mutex_unlock(&world->lock);
}

bench_world *bench_world_open(int ranks, int threads, wf_error *error)
{
    bench_world *world = calloc(1, sizeof *world);

    if (!world) {
        wf_error_set(error, WF_ENOMEM, "no memory for a world of %d ranks", ranks);
        return NULL;
    }
    world->ranks = ranks;
    world->threads = threads;
    pthread_mutex_init(&world->lock, NULL);
    pthread_cond_init(&world->begin, NULL);
    pthread_cond_init(&world->done, NULL);
    if (pthread_create(&world->launcher, NULL, launch, world) != 0) {
        wf_error_set(error, WF_ENOMEM, "no thread for a world of %d ranks", ranks);
        free(world);
        return NULL;
    }
    return world;
}

wf_status bench_world_run(bench_world *world, bench_part *part, void *arg, wf_error *error)
{
    bool over;

    begin(world, part, arg);
    pthread_mutex_lock(&world->lock);
    while ((world->working > 0 || world->failed) && !world->over)
        pthread_cond_wait(&world->done, &world->lock);
    over = world->over;
    pthread_mutex_unlock(&world->lock);
    return over ? wf_error_set(error, world->error.code, "%s", world->error.text) : WF_OK;
}

void bench_world_close(bench_world *world)
{
    if (!world)
        return;
    begin(world, NULL, NULL);
    pthread_join(world->launcher, NULL);
    pthread_cond_destroy(&world->done);
    pthread_cond_destroy(&world->begin);
    pthread_mutex_destroy(&world->lock);
    free(world);
}
