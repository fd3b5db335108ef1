/*
 * tests/mesh/test_placement_packed.c - jobs on more devices than can be searched: what is
 * packed against every single step from there, against each host alone, and where the job is
 * small against all placements.
 *
 * ctest: builds plain, defines WEFT_TOPOLOGIES=tests/mesh/topologies
 * ctest: environment ASAN_OPTIONS=detect_leaks=0
 */
#include "tests/mesh/placement_hosts.h"
#include "tests/sanitizer.h"

static uint64_t drawn = 11;

static int draw(int n)
{
    drawn = drawn * 6364136223846793005u + 1442695040888963407u;
    return (int)((drawn >> 33) % (uint64_t)n);
}

/* Sizes that may leave devices over, and bytes of any proportions. */
static void draw_axes(wf_placement_axis axes[3], int devices, bool few)
{
    static const double usual[] = {10, 40, 160};
    bool as_usual = draw(2);
    int ranks = 1;

    for (int a = 2; a >= 0; a--) {
        int most = few ? (a ? 2 : 1) : devices / ranks < 8 ? devices / ranks : 8;

        axes[a].size = 1 + draw(most);
        axes[a].bytes = as_usual ? usual[a] : pow(10, draw(400) / 100.0);
        ranks *= axes[a].size;
    }
}

static bool cheaper(double a, double b)
{
    return a < b * (1 - 1e-9);
}

/* No two ranks that change seats, and no rank on a free one, make it cheaper. */
static bool no_step_is_cheaper(const wf_placement *p, wf_seat *seat, int n)
{
    wf_seat *at = malloc((size_t)p->ranks * sizeof *at);
    bool none = at != NULL;

    for (int r = 0; none && r < p->ranks; r++)
        for (int i = 0; none && i < n; i++) {
            memcpy(at, p->seat, (size_t)p->ranks * sizeof *at);
            for (int s = 0; s < p->ranks; s++)
                if (at[s].host == seat[i].host && at[s].device == seat[i].device)
                    at[s] = at[r];
            at[r] = seat[i];
            none = !cheaper(cost_of(p, at), p->cost);
        }
    free(at);
    return none;
}

static bool no_host_is_cheaper(const wf_placement *p, const wf_placement_options *o)
{
    bool none = true;

    for (int h = 0; h < o->n_hosts; h++) {
        wf_placement_options alone = *o;
        wf_error error = {WF_OK, ""};
        wf_placement q;

        alone.n_hosts = 1;
        alone.host = &o->host[h];
        if (o->host[h]->n_devices < p->ranks)
            continue;
        CU_ASSERT_EQUAL_FATAL(wf_placement_find(&alone, &q, &error), WF_OK);
        none = none && !cheaper(q.cost, p->cost);
        wf_placement_free(&q);
    }
    return none;
}

/* Jobs of any size on hosts of any kind, more than can be searched: what is packed is no dearer
   than what any one step, or any one host, would make of it; of a few ranks, than any
   placement. */
static void packed(void)
{
    static const char *const sources[] = {"crossed_pairs_4gpu.xml",
                                          "dgx_8gpu_8nic.xml",
                                          "odd_3gpu.xml",
                                          "odd_5gpu.xml",
                                          "odd_7gpu.xml",
                                          "pairs_4gpu.xml",
                                          "pcie_8gpu_2nic.xml",
                                          "quads_8gpu.xml",
                                          ONE_PACKAGE,
                                          TWO_PACKAGES,
                                          SMALL_CACHES};
    enum { SOURCES = sizeof sources / sizeof *sources, ROUNDS = UNDER_SANITIZER ? 15 : 36 };
    wf_host *all[SOURCES];
    int searched = 0;

    for (int i = 0; i < SOURCES; i++)
        all[i] = read_host(sources[i]);
    for (int round = 0; round < ROUNDS; round++) {
        wf_placement_axis axes[3] = {{"replicate", 1, 0}, {"shard", 1, 0}, {"tp", 1, 0}};
        const wf_host *host[4];
        bool few = round % 3 == 0; /* so few that all placements can be looked at */
        wf_placement_options o = {
            .n_hosts = few ? 2 : 2 + draw(3), .n_axes = 3, .host = host, .axis = axes};
        wf_seat seat[4 * 8];
        wf_error error = {WF_OK, ""};
        int devices = 0, kind = draw(SOURCES), alike = draw(2);
        int64_t seen = 0;
        wf_placement p;

        for (int h = 0; h < o.n_hosts; h++) {
            host[h] = all[alike ? kind : draw(SOURCES)];
            devices += host[h]->n_devices;
        }
        draw_axes(axes, devices, few);
        CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
        list_seats(&p, seat);
        CU_ASSERT(fabs(p.cost - cost_of(&p, p.seat)) <= 1e-9 * p.cost);
        no_seat_twice(&p);
        CU_ASSERT(no_step_is_cheaper(&p, seat, devices));
        CU_ASSERT(no_host_is_cheaper(&p, &o));
        if (few && !p.exhaustive) {
            CU_ASSERT(!cheaper(least_cost(&p, seat, devices, 0, &seen), p.cost));
            searched++;
        }
        wf_placement_free(&p);
    }
    CU_ASSERT(searched > 2);
    for (int i = 0; i < SOURCES; i++)
        wf_host_free(all[i]);
}

/* 2 x 2 ranks have room on one of two hosts of seven. */
static void smaller_than_the_machines(void)
{
    wf_host *h = read_host("odd_7gpu.xml");
    const wf_host *hosts[] = {h, h};
    const wf_placement_axis axes[] = {{"shard", 2, 40}, {"tp", 2, 160}};
    wf_placement_options o = {.n_hosts = 2, .n_axes = 2, .host = hosts, .axis = axes};
    wf_error error = {WF_OK, ""};
    wf_placement p;

    CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
    for (int r = 0; r < 4; r++)
        CU_ASSERT_EQUAL(p.seat[r].host, p.seat[0].host);
    CU_ASSERT_EQUAL(p.cost, 2 * 2 * (40 + 160) * p.weight[WF_LINK_NVLINK]);
    wf_placement_free(&p);
    wf_host_free(h);
}

int main(void)
{
    static const wf_test tests[] = {{"packed", packed},
                                    {"smaller than the machines", smaller_than_the_machines},
                                    {NULL, NULL}};

    return wf_test_main("placement_packed", tests);
}
