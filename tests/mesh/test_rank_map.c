/*
 * tests/mesh/test_rank_map.c - which ranks run in which process: processes of several hosts are
 * emulated one by one, each with what the others would say. Their machine is this one.
 *
 * ctest: environment ASAN_OPTIONS=detect_leaks=0
 */
#include "mesh/cluster/rank_map_internal.h"
#include "tests/harness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 32, MOST_RANKS = 2048 };

typedef struct play {
    int n;          /* processes */
    int host[MOST]; /* each one's host, as the number of the first process there */
    int gathers;
} play;

/* All say what this one says, but for their hosts: first cards, which begin with that, then
   what lies between the cores of hosts, which their first processes know. */
static wf_status gather(void *world, const void *mine, size_t bytes, char **all, size_t *begin,
                        wf_error *error)
{
    static char kept[2][1 << 20];
    static size_t kept_bytes[2]; /* links: of a process that was first on its host */
    play *p = world;
    int round = p->gathers++ % 2;
    bool cards = round == 0;

    (void)error;
    CU_ASSERT_FATAL(bytes <= sizeof kept[0]);
    if (bytes)
        memcpy(kept[round], mine, kept_bytes[round] = bytes);
    *all = malloc(kept_bytes[round] * (size_t)p->n + 1);
    begin[0] = 0;
    for (int i = 0; i < p->n; i++) {
        size_t n = cards || p->host[i] == i ? kept_bytes[round] : 0;

        memcpy(*all + begin[i], kept[round], n);
        if (cards)
            memcpy(*all + begin[i], &(int32_t){p->host[i]}, sizeof(int32_t));
        begin[i + 1] = begin[i] + n;
    }
    return WF_OK;
}

static bool inside_one_host(const play *p, const wf_rank_map *s, int first, int n)
{
    for (int r = first; r < first + n; r++)
        if (p->host[s->process[r]] != p->host[s->process[first]])
            return false;
    return true;
}

/* "ABAB": which host each process is on. */
static play deal(const char *hosts)
{
    play p = {.n = (int)strlen(hosts)};

    for (int i = 0; i < p.n; i++)
        p.host[i] = (int)(strchr(hosts, hosts[i]) - hosts);
    return p;
}

/* Counts the tp groups inside one host; processes find the same, and share out all ranks. */
static int groups_inside(const char *hosts, int here, int tp, wf_rank_order order, bool *warned)
{
    play p = deal(hosts);
    int ranks = p.n * here, inside = 0, first[MOST_RANKS], runs[MOST] = {0};
    const wf_placement_axis axes[] = {{"dp", ranks / tp, 1e6}, {"tp", tp, 1e8}};
    const wf_rank_map_options options = {ranks, 1, 2, axes, order};

    for (int mine = 0; mine < p.n; mine += mine < 2 ? 1 : p.n - 3) { /* 0, 1, 2, the last */
        const wf_rank_map_peers all = {{p.n, mine, p.host[mine]}, gather, &p};
        wf_error error = {WF_OK, ""};
        wf_rank_map s;

        CU_ASSERT_EQUAL_FATAL(wf_rank_map_find(&options, &all, &s, &error), WF_OK);
        CU_ASSERT_EQUAL(s.n, here);
        for (int i = 0; i < s.n; i++) {
            CU_ASSERT_EQUAL(s.process[s.rank[i]], mine);
            CU_ASSERT(i == 0 || s.rank[i] > s.rank[i - 1]);
            CU_ASSERT(s.local_rank[i] >= 0 && s.local_rank[i] < s.local_processes * here);
        }
        if (mine == 0) {
            CU_ASSERT_EQUAL(s.rank[0], 0);
            memcpy(first, s.process, (size_t)ranks * sizeof *first);
            for (int r = 0; r < ranks; r++)
                runs[s.process[r]]++;
            for (int r = 0; r < ranks; r += tp)
                inside += inside_one_host(&p, &s, r, tp);
            *warned = s.warning != NULL;
        }
        CU_ASSERT(memcmp(first, s.process, (size_t)ranks * sizeof *first) == 0);
        wf_rank_map_free(&s);
    }
    for (int i = 0; i < p.n; i++)
        CU_ASSERT_EQUAL(runs[i], here);
    return inside;
}

static void tp_is_inside_hosts(void)
{
    static const struct {
        const char *hosts;
        int here, tp, inside;
    } cases[] = {
        {"AABB", 1, 2, 2},
        {"ABAB", 1, 2, 2},
        {"ABBA", 2, 4, 2},
        {"ABCDABCD", 1, 2, 4},
        {"ABABABAB", 1, 4, 2},
        {"AB", 4, 4, 2},
        {"ABBCABBC", 1, 4, 1}, /* two, four and two: the four are one group */
        {"ABABABABABABABAB", 2, 8, 4},
        {"AABB", 1, 4, 0},
        {"AAAAAABB", 1, 4, 1},
        {"ABCABC", 1, 2, 3},
        {"ABAB", 512, 8, 256}, /* beyond what is searched */
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int ranks = (int)strlen(cases[i].hosts) * cases[i].here;
        bool warned;

        CU_ASSERT_EQUAL(
            groups_inside(cases[i].hosts, cases[i].here, cases[i].tp, WF_ORDER_NEAR, &warned),
            cases[i].inside);
        CU_ASSERT_EQUAL(warned, cases[i].inside < ranks / cases[i].tp);
    }
}

static void other_orders(void)
{
    bool warned;

    CU_ASSERT_EQUAL(groups_inside("ABAB", 1, 2, WF_ORDER_STARTED, &warned), 0);
    CU_ASSERT(warned);
    CU_ASSERT_EQUAL(groups_inside("AABB", 1, 2, WF_ORDER_STARTED, &warned), 2);
    CU_ASSERT(!warned);
    CU_ASSERT_EQUAL(groups_inside("AABB", 1, 2, WF_ORDER_TRANSPOSED, &warned), 0);
    CU_ASSERT_EQUAL(groups_inside("AB", 4, 4, WF_ORDER_TRANSPOSED, &warned), 0);
}

/* No mesh: the launcher's order. */
static void without_axes(void)
{
    play p = deal("ABAB");
    const wf_rank_map_options options = {.ranks = 8};
    const wf_rank_map_peers all = {{p.n, 1, p.host[1]}, gather, &p};
    wf_error error = {WF_OK, ""};
    wf_rank_map s;

    CU_ASSERT_EQUAL_FATAL(wf_rank_map_find(&options, &all, &s, &error), WF_OK);
    CU_ASSERT(s.n == 2 && s.rank[0] == 2 && s.rank[1] == 3 && s.local_processes == 2 &&
              !s.warning);
    wf_rank_map_free(&s);
}

static void axes_that_do_not_fit(void)
{
    play p = deal("AB");
    const wf_placement_axis axes[] = {{"tp", 2, 1}};
    const wf_rank_map_options options = {8, 1, 1, axes, WF_ORDER_NEAR};
    const wf_rank_map_peers all = {{p.n, 0, 0}, gather, &p};
    wf_error error = {WF_OK, ""};
    wf_rank_map s;

    CU_ASSERT_EQUAL(wf_rank_map_find(&options, &all, &s, &error), WF_EINVAL);
    CU_ASSERT(strstr(error.text, "make 2 ranks, and the world has 8") != NULL);
}

static const wf_test tests[] = {{"tp is inside hosts", tp_is_inside_hosts},
                                {"other orders", other_orders},
                                {"without axes", without_axes},
                                {"axes that do not fit", axes_that_do_not_fit},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("rank map", tests);
}
