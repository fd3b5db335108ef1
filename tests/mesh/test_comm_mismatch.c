/*
 * tests/mesh/test_comm_mismatch.c - ranks that disagree, on a collective, a message or a group,
 * get an error, each with what it and the other one called.
 *
 * ctest: builds address thread
 */
#include "tests/mesh/comm_outcome.h"

/* Rank 1 of 4 differs from the others, in one way after another. */
static wf_status differ(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    bool odd = rank->index == 1;
    float in[64] = {0}, out[64];
    int64_t cuts[5] = {0, 4, 8, 12, 16}, other[5] = {0, 4, 8, 13, 16};
    wf_comm *c = enter(rank, o);
    wf_error *e = &rank->error;
    wf_status status = wf_barrier(c, e);

    switch (status == WF_OK ? o->variant : -1) {
    case 0:
        status = wf_all_reduce(c, WF_REDUCE_SUM, in, out, odd ? 20 : 10, e);
        break;
    case 1:
        status = wf_all_reduce(c, odd ? WF_REDUCE_MAX : WF_REDUCE_SUM, in, out, 10, e);
        break;
    case 2:
        status = odd ? wf_barrier(c, e) : wf_all_reduce(c, WF_REDUCE_SUM, in, out, 10, e);
        break;
    case 3:
        status = wf_all_gather(c, 4, in, out, odd ? other : cuts, e);
        break;
    case 4:
        status = wf_all_gather(c, odd ? 2 : 4, in, out, cuts, e);
        break;
    case 5:
        status = wf_broadcast(c, 4, odd, in, 10, e);
        break;
    case 6:
        status = wf_all_to_all(c, 4, in, odd ? other : cuts, out, cuts, e);
        break;
    default:
        break;
    }
    return leave(rank, o, status);
}

static void mismatch(void)
{
    static const char *const words[][2] = {
        {"all_reduce(sum) of 40 bytes", "all_reduce(sum) of 80 bytes"},
        {"all_reduce(sum)", "all_reduce(max)"},
        {"all_reduce(sum)", "barrier"},
        {"all_gather of 64 bytes", "cut differently"},
        {"4-byte elements", "2-byte elements"},
        {"broadcast of 40 bytes from 0", "broadcast of 40 bytes from 1"},
        {"rank 1 sends", "which expects"},
    };

    for (int path = 0; path < 2; path++)
        for (int v = 0; v < 7; v++) {
            outcome o = {.transport = path ? staged_threads() : NULL, .variant = v};

            run(&o, 4, differ);
            for (int r = 0; r < 4; r++) {
                /* Packed reductions travel by all_to_all and tell both alike. */
                CU_ASSERT(says(&o.of[r], WF_EMISMATCH, words[v][0], words[v][1]));
                CU_ASSERT(says(&o.of[r], WF_EMISMATCH, "over world", "rank 1"));
            }
            CU_ASSERT(says(&o.launch, WF_EMISMATCH, words[v][0], words[v][1]));
            CU_ASSERT(o.seconds < 5);
        }
}

static wf_status message_differs(wf_rank *rank, void *arg)
{
    outcome *o = arg;
    char text[16] = "";
    wf_comm *c = enter(rank, o);
    wf_status status = rank->index == 0 ? wf_send(c, 1, 1, text, 8, &rank->error)
                                        : wf_recv(c, 1, 0, text, 16, &rank->error);

    return leave(rank, o, status);
}

static void message_mismatch(void)
{
    outcome o = {0};

    run(&o, 2, message_differs);
    for (int r = 0; r < 2; r++)
        CU_ASSERT(says(&o.of[r], WF_EMISMATCH, "recv of 16 bytes", "send of 8 bytes"));
}

/* Ranks 0 and 1 are a pair to rank 0, and 1 and 2 to the others. */
static wf_status split_differs(wf_rank *rank, void *arg)
{
    int mine[2] = {rank->index ? 1 : 0, rank->index ? 2 : 1};
    wf_comm *group;
    outcome *o = arg;
    wf_comm *c = enter(rank, o);
    wf_status status = wf_comm_split(c, "pair", mine, 2, &group, &rank->error);

    if (status == WF_OK) {
        status = wf_barrier(group, &rank->error);
        wf_comm_close(group);
    }
    return leave(rank, o, status);
}

static void split_mismatch(void)
{
    for (int round = 0; round < 20; round++) {
        outcome o = {0};

        run(&o, 3, split_differs);
        CU_ASSERT(says(&o.launch, WF_EMISMATCH, "members for group pair", "list the same"));
    }
}

int main(void)
{
    static const wf_test tests[] = {
        {"collectives that disagree", mismatch},
        {"messages that disagree", message_mismatch},
        {"groups that disagree", split_mismatch},
        {NULL, NULL},
    };

    return wf_test_main("comm mismatch", tests);
}
