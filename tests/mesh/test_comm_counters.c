/*
 * tests/mesh/test_comm_counters.c - what collectives count: every byte once, where it arrives,
 * and the same on both paths and on the fake transport.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/ranks.h"

typedef struct counted {
    wf_comm_counters of[4];
    const wf_transport *transport;
} counted;

/* Fixed traffic, of sizes that differ by rank. */
static wf_status traffic(wf_rank *rank, void *arg)
{
    static float in[4][3000], out[4][3000];
    const int64_t cuts[5] = {0, 10, 10, 500, 1000}, a[5] = {0, 1, 3, 6, 10};
    int64_t to_me[5] = {0}, from_me[5] = {0};
    wf_comm *c = rank->world;
    counted *n = arg;
    int r = rank->index;

    for (int i = 0; i < 4; i++) {
        to_me[i + 1] = to_me[i] + a[r + 1] - a[r] + i;
        from_me[i + 1] = from_me[i] + a[i + 1] - a[i] + r;
    }
    wf_comm_set_reduce(c, &test_ops);
    if (n->transport)
        c->transport = n->transport;
    GOOD(wf_barrier(c, &rank->error));
    wf_comm_counters_reset(c);
    GOOD(wf_all_reduce(c, WF_REDUCE_SUM, in[r], out[r], 1003, &rank->error));
    GOOD(wf_all_reduce(c, WF_REDUCE_SUM, in[r], out[r], 1, &rank->error));
    GOOD(wf_reduce_scatter(c, WF_REDUCE_MAX, in[r], out[r], cuts, &rank->error));
    GOOD(wf_all_gather(c, 2, in[r], out[r], cuts, &rank->error));
    GOOD(wf_all_to_all(c, 8, in[r], from_me, out[r], to_me, &rank->error));
    GOOD(wf_broadcast(c, 1, 2, in[r], 77, &rank->error));
    if (r == 0)
        GOOD(wf_send(c, 4, 3, in[r], 5, &rank->error));
    if (r == 3)
        GOOD(wf_recv(c, 4, 0, in[r], 5, &rank->error));
    n->of[r] = *wf_comm_counters_of(c);
    return WF_OK;
}

static int64_t sum_over_ranks(const counted *n, wf_collective_kind kind)
{
    int64_t sum = 0;

    for (int r = 0; r < 4; r++)
        sum += n->of[r].of[kind].bytes;
    return sum;
}

/* Every byte is counted once, where it arrives; the path and the fake transport count alike. */
static void counters(void)
{
    counted real = {.transport = NULL}, packed = {.transport = staged_threads()}, fake = {0};

    run_ranks(4, traffic, &real);
    run_ranks(4, traffic, &packed);
    for (int r = 0; r < 4; r++) {
        wf_launch_options o = {.ranks = 4, .transport = "fake", .rank = r};
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(wf_launch(&o, traffic, &fake, &error), WF_OK);
    }
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_ALL_REDUCE), 2 * 3 * 4 * 1004);
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_REDUCE_SCATTER), 3 * 4 * 1000);
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_ALL_GATHER), 3 * 2 * 1000);
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_ALL_TO_ALL), 8 * (4 * 10 + 4 * 6 - 10 - 6));
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_BROADCAST), 3 * 77);
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_SEND), 0);
    CU_ASSERT_EQUAL(sum_over_ranks(&real, WF_RECV), 20);
    CU_ASSERT_EQUAL(real.of[1].of[WF_ALL_REDUCE].calls, 2);
    CU_ASSERT_EQUAL(real.of[1].of[WF_BARRIER].calls, 0);
    CU_ASSERT_EQUAL(memcmp(&real.of, &packed.of, sizeof real.of), 0);
    CU_ASSERT_EQUAL(memcmp(&real.of, &fake.of, sizeof real.of), 0);
}

int main(void)
{
    static const wf_test tests[] = {
        {"counters", counters},
        {NULL, NULL},
    };

    return wf_test_main("comm_counters", tests);
}
