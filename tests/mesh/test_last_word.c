/*
 * tests/mesh/test_last_word.c - a collective ends well on all ranks or on none: one that knows
 * its end may fail at once, and all others still have their results.
 *
 * ctest: builds address thread
 */
#include "mesh/comm/collective.h"
#include "tests/mesh/ranks.h"
#include <stdatomic.h>

enum { RANKS = 4, WORLDS = 2000 };

typedef struct talk {
    _Atomic int good, bad;
} talk;

static wf_status hear_and_fail(wf_rank *rank, void *arg)
{
    talk *t = arg;
    int64_t word[64] = {rank->index};

    if (wf_broadcast(rank->world, sizeof *word, 0, word, 64, &rank->error) == WF_OK)
        atomic_fetch_add(&t->good, 1);
    else
        atomic_fetch_add(&t->bad, 1);
    rank->error = (wf_error){WF_OK, ""};
    return wf_error_set(&rank->error, WF_EINVAL, "all know it");
}

static void all_or_none(void)
{
    talk t = {0};

    for (int i = 0; i < WORLDS; i++) {
        wf_error error = {WF_OK, ""};

        CU_ASSERT_EQUAL(
            wf_launch(&(wf_launch_options){.ranks = RANKS}, hear_and_fail, &t, &error),
            WF_EINVAL);
    }
    CU_ASSERT_EQUAL(t.bad, 0);
    CU_ASSERT_EQUAL(t.good, RANKS * WORLDS);
}

int main(void)
{
    static const wf_test tests[] = {{"on all or on none", all_or_none}, {NULL, NULL}};

    return wf_test_main("last_word", tests);
}
