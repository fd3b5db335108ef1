/*
 * tests/mesh/test_comm_groups.c - groups of ranks, which work at once, and groups of groups;
 * the seat of a rank among those of its host.
 *
 * ctest: builds plain address thread
 */
#include "tests/mesh/comm_buffers.h"

/* Over a group, of numbers that lie on a device where the test has one. */
static wf_status sum_of_world_ranks(wf_rank *rank, wf_comm *c)
{
    float mine = (float)rank->index, all = 0, sum = -1;
    wf_comm_buffer buffer = {.in = &mine, .out = &sum, .count = 1};
    wf_collective what = {
        .kind = WF_ALL_REDUCE, .n_buffers = 1, .buffers = &buffer, .device = test_device()};

    for (int i = 0; i < c->size; i++)
        all += (float)wf_comm_world_rank(c, i);
    GOOD(wf_collective_run(c, &what, &rank->error));
    test_device_settle();
    NEED(sum == all);
    return WF_OK;
}

/* A grid of 2 x 3: rows and columns work at once, a row's sum being of its own members. */
static wf_status grid(wf_rank *rank, void *arg)
{
    int r = rank->index, row[3] = {r / 3 * 3, r / 3 * 3 + 1, r / 3 * 3 + 2};
    int column[2] = {r % 3, r % 3 + 3}, pair[2] = {0, 2}, middle[1] = {1};
    wf_comm *x, *y, *z;

    (void)arg;
    wf_comm_set_reduce(rank->world, &test_ops);
    GOOD(wf_comm_split(rank->world, "row", row, 3, &x, &rank->error));
    GOOD(wf_comm_split(rank->world, "column", column, 2, &y, &rank->error));
    NEED(wf_comm_size(x) == 3 && wf_comm_rank(x) == r % 3 &&
         strcmp(wf_comm_name(x), "row") == 0);
    NEED(wf_comm_size(y) == 2 && wf_comm_rank(y) == r / 3 &&
         wf_comm_world_rank(y, 1) == r % 3 + 3);
    GOOD(sum_of_world_ranks(rank, x));
    GOOD(sum_of_world_ranks(rank, y));
    for (int i = 0; i < 50; i++) {
        float ones = (float)r, tens = 10 * (float)r;

        GOOD(wf_all_reduce(x, WF_REDUCE_SUM, &ones, &ones, 1, &rank->error));
        GOOD(wf_all_reduce(y, WF_REDUCE_SUM, &tens, &tens, 1, &rank->error));
        NEED(ones == (float)(r / 3 * 9 + 3) && tens == (float)(10 * (2 * (r % 3) + 3)));
    }
    /* groups of a group: ranks 0 and 2 of each row, and 1 by itself */
    GOOD(r % 3 == 1 ? wf_comm_split(x, "middle", middle, 1, &z, &rank->error)
                    : wf_comm_split(x, "pair", pair, 2, &z, &rank->error));
    NEED(r % 3 == 1 || wf_comm_world_rank(z, 1) == r / 3 * 3 + 2);
    GOOD(wf_barrier(z, &rank->error));
    GOOD(sum_of_world_ranks(rank, z));
    wf_comm_close(z);
    wf_comm_close(x);
    wf_comm_close(y);
    return WF_OK;
}

static void groups(void)
{
    run_ranks(6, grid, NULL);
}

/* All ranks of these tests are on one host: each has a seat of its own there, those of a
   process one after the other; under torchrun the one that it says. */
static wf_status seats(wf_rank *rank, void *arg)
{
    const char *local = getenv("LOCAL_RANK");
    int64_t *cuts = malloc((size_t)(rank->size + 1) * sizeof *cuts);
    int *seat = calloc((size_t)rank->size, sizeof *seat), seen = 0;
    wf_status status;

    (void)arg;
    for (int i = 0; i <= rank->size; i++)
        cuts[i] = i;
    status =
        wf_all_gather(rank->world, sizeof *seat, &rank->local_rank, seat, cuts, &rank->error);
    for (int i = 0; i < rank->size; i++)
        seen |= 1 << seat[i];
    free(seat);
    free(cuts);
    GOOD(status);
    NEED(seen == (1 << rank->size) - 1);
    NEED(!local || rank->local_rank == atoi(local));
    NEED(rank->local_size >= 1 && rank->size % rank->local_size == 0);
    return WF_OK;
}

static void seats_of_a_host(void)
{
    run_ranks(2, seats, NULL);
    run_ranks(6, seats, NULL);
}

int main(void)
{
    static const wf_test tests[] = {
        {"groups", groups},
        {"seats of a host", seats_of_a_host},
        {NULL, NULL},
    };

    return wf_test_main("comm groups", tests);
}
