/*
 * tests/mesh/test_placement.c - hosts as placement sees them, and who sits where.
 *
 * CASES lists hosts and meshes with what must come out: how many groups of the innermost axis
 * have which worst link. Whatever has at most 8 devices is also compared with all placements,
 * by a count and a cost that are independent of the library's.
 *
 * ctest: builds plain, defines WEFT_TOPOLOGIES=tests/mesh/topologies
 * ctest: environment ASAN_OPTIONS=detect_leaks=0
 */
#include "tests/mesh/placement_hosts.h"

enum { MOST_HOSTS = 8 };

#define MIB (1024.0 * 1024.0)

typedef struct placement_case {
    const char *name;
    const char *host[MOST_HOSTS]; /* file below topologies/, or synthetic text */
    int replicate, shard, tp;
    int groups[WF_LINKS]; /* groups of tp, by worst link */
} placement_case;

static const placement_case cases[] = {
    {"one package", {ONE_PACKAGE}, 1, 2, 4, {[WF_LINK_CACHE] = 2}},
    {"two packages", {TWO_PACKAGES}, 1, 2, 4, {[WF_LINK_CACHE] = 2}},
    {"two packages, tp over both", {TWO_PACKAGES}, 1, 1, 8, {[WF_LINK_HOST] = 1}},
    {"two packages, tp 3", {TWO_PACKAGES}, 1, 2, 3, {[WF_LINK_CACHE] = 2}},
    {"two caches", {SMALL_CACHES}, 1, 2, 2, {[WF_LINK_CACHE] = 2}},
    {"four nodes", {TWO_NODES}, 1, 4, 4, {[WF_LINK_NUMA] = 4}},
    {"four nodes, tp 8", {TWO_NODES}, 1, 2, 8, {[WF_LINK_PACKAGE] = 2}},
    {"dgx, tp 8", {"dgx_8gpu_8nic.xml"}, 1, 1, 8, {[WF_LINK_NVLINK] = 1}},
    {"dgx, tp 2", {"dgx_8gpu_8nic.xml"}, 1, 4, 2, {[WF_LINK_NVLINK] = 4}},
    {"pcie, tp 2", {"pcie_8gpu_2nic.xml"}, 1, 4, 2, {[WF_LINK_SWITCH] = 4}},
    {"pcie, tp 4", {"pcie_8gpu_2nic.xml"}, 1, 2, 4, {[WF_LINK_NUMA] = 2}},
    {"nvlink pairs", {"pairs_4gpu.xml"}, 1, 2, 2, {[WF_LINK_NVLINK] = 2}},
    {"nvlink pairs across packages",
     {"crossed_pairs_4gpu.xml"},
     1,
     2,
     2,
     {[WF_LINK_NVLINK] = 2}},
    {"nvlink quads", {"quads_8gpu.xml"}, 1, 2, 4, {[WF_LINK_NVLINK] = 2}},
    {"nvlink quads, tp 3", {"quads_8gpu.xml"}, 1, 2, 3, {[WF_LINK_NVLINK] = 2}},
    {"3 GPUs, tp 2", {"odd_3gpu.xml"}, 1, 1, 2, {[WF_LINK_NUMA] = 1}},
    {"3 GPUs, tp 3", {"odd_3gpu.xml"}, 1, 1, 3, {[WF_LINK_HOST] = 1}},
    {"5 GPUs, tp 2", {"odd_5gpu.xml"}, 1, 2, 2, {[WF_LINK_SWITCH] = 2}},
    {"7 GPUs, tp 3", {"odd_7gpu.xml"}, 1, 2, 3, {[WF_LINK_NVLINK] = 2}},
    {"one package, 2 GPUs", {"one_package_2gpu.xml"}, 1, 1, 2, {[WF_LINK_NUMA] = 1}},
    {"no GPU but a display", {"display_only.xml"}, 1, 1, 2, {[WF_LINK_NUMA] = 1}},
    {"2 hosts x 4, tp 4", {"pairs_4gpu.xml", "pairs_4gpu.xml"}, 1, 2, 4, {[WF_LINK_HOST] = 2}},
    {"unequal hosts",
     {"odd_3gpu.xml", "one_package_2gpu.xml", "odd_3gpu.xml"},
     1,
     3,
     2,
     {[WF_LINK_NUMA] = 3}},
    {"unequal hosts, tp fits in one",
     {"one_package_2gpu.xml", "pairs_4gpu.xml"},
     1,
     1,
     4,
     {[WF_LINK_HOST] = 1}},
    {"unequal hosts, tp 4",
     {"odd_5gpu.xml", "dgx_8gpu_8nic.xml", "pairs_4gpu.xml"},
     1,
     4,
     4,
     {[WF_LINK_NVLINK] = 2, [WF_LINK_HOST] = 2}},
    {"hosts too small for tp",
     {"pairs_4gpu.xml", "pairs_4gpu.xml"},
     1,
     1,
     8,
     {[WF_LINK_NETWORK] = 1}},
    {"4 hosts x 8, tp 8",
     {"dgx_8gpu_8nic.xml", "dgx_8gpu_8nic.xml", "dgx_8gpu_8nic.xml", "dgx_8gpu_8nic.xml"},
     2,
     2,
     8,
     {[WF_LINK_NVLINK] = 4}},
    {"4 hosts x 8, tp 4",
     {"quads_8gpu.xml", "quads_8gpu.xml", "quads_8gpu.xml", "quads_8gpu.xml"},
     2,
     4,
     4,
     {[WF_LINK_NVLINK] = 8}},
    {"4 hosts x 8 by PCIe, tp 2",
     {"pcie_8gpu_2nic.xml", "pcie_8gpu_2nic.xml", "pcie_8gpu_2nic.xml", "pcie_8gpu_2nic.xml"},
     1,
     16,
     2,
     {[WF_LINK_SWITCH] = 16}},
    {"4 hosts of two packages, tp 4",
     {TWO_PACKAGES, TWO_PACKAGES, TWO_PACKAGES, TWO_PACKAGES},
     1,
     8,
     4,
     {[WF_LINK_CACHE] = 8}},
};

/* Both ways of finding it are as cheap as the cheapest of all. */
static void compare_all(wf_placement *p, const char *name)
{
    wf_seat seat[WF_PLACEMENT_EXHAUSTIVE];
    wf_error error = {WF_OK, ""};
    int n = list_seats(p, seat);
    int64_t seen = 0, all = 1;
    double least = least_cost(p, seat, n, 0, &seen);

    for (int i = 0; i < p->ranks; i++)
        all *= n - i;
    CU_ASSERT_EQUAL(seen, all);
    CU_ASSERT_EQUAL(p->cost, least);
    list_seats(p, seat);
    CU_ASSERT_EQUAL(wf_placement_pack(p, seat, n, p->n_axes - 1, &error), WF_OK);
    no_seat_twice(p);
    if (wf_placement_cost(p) != least)
        printf("\n    %s: packed %.0f, cheapest %.0f\n", name, wf_placement_cost(p), least);
    CU_ASSERT_EQUAL(wf_placement_cost(p), least);
}

static void one_case(const placement_case *c)
{
    const wf_placement_axis axes[] = {{"replicate", c->replicate, 10 * MIB},
                                      {"shard", c->shard, 40 * MIB},
                                      {"tp", c->tp, 160 * MIB}};
    wf_host *host[MOST_HOSTS] = {NULL};
    wf_placement_options o = {.n_axes = 3, .axis = axes, .host = (const wf_host *const *)host};
    wf_error error = {WF_OK, ""};
    int count[WF_LINKS], devices = 0;
    wf_placement p;

    for (; o.n_hosts < MOST_HOSTS && c->host[o.n_hosts]; o.n_hosts++) {
        host[o.n_hosts] = read_host(c->host[o.n_hosts]);
        devices += host[o.n_hosts]->n_devices;
    }
    CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
    no_seat_twice(&p);
    CU_ASSERT_EQUAL(p.cost, cost_of(&p, p.seat));
    CU_ASSERT_EQUAL(p.exhaustive, devices <= 8);
    wf_placement_groups(&p, 2, count);
    for (int l = 0; l < WF_LINKS; l++) {
        if (count[l] != c->groups[l])
            printf("\n    %s: %d groups over %s, not %d\n", c->name, count[l],
                   wf_link_name((wf_link)l), c->groups[l]);
        CU_ASSERT_EQUAL(count[l], c->groups[l]);
    }
    if (p.exhaustive)
        compare_all(&p, c->name);
    wf_placement_free(&p);
    for (int h = 0; h < o.n_hosts; h++)
        wf_host_free(host[h]);
}

static void all_cases(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        one_case(&cases[i]);
}

/* Hosts whose links follow no order at all: nothing but a search finds the cheapest. */
static void any_links(void)
{
    static const int sizes[][3] = {{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {1, 1, 5}, {2, 2, 1}};
    uint64_t x = 1;
    int packed_worse = 0;

    for (int round = 0; round < 60; round++) {
        uint8_t link[36] = {0};
        wf_host host = {.gpus = true, .packages = 1, .n_devices = 6, .link = link};
        const wf_host *hosts[] = {&host};
        wf_placement_axis axes[3] = {{"replicate", 1, 0}, {"shard", 1, 0}, {"tp", 1, 0}};
        wf_placement_options o = {.n_hosts = 1, .n_axes = 3, .host = hosts, .axis = axes};
        wf_error error = {WF_OK, ""};
        wf_seat seat[6];
        int64_t seen = 0;
        wf_placement p;

        for (int i = 0; i < 6; i++)
            for (int j = 0; j < i; j++) {
                x = x * 6364136223846793005u + 1442695040888963407u;
                link[i * 6 + j] = link[j * 6 + i] = (uint8_t)(x >> 33) % WF_LINK_NETWORK;
            }
        for (int a = 0; a < 3; a++) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            axes[a].size = sizes[round % 5][a];
            axes[a].bytes = (double)(x >> 33) * 0x1p-10;
        }
        CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
        list_seats(&p, seat);
        CU_ASSERT_DOUBLE_EQUAL(p.cost, least_cost(&p, seat, 6, 0, &seen), 1e-9 * p.cost);
        list_seats(&p, seat);
        wf_placement_pack(&p, seat, 6, 2, &error);
        packed_worse += wf_placement_cost(&p) > p.cost * (1 + 1e-9);
        wf_placement_free(&p);
    }
    CU_ASSERT(packed_worse > 0); /* or else these hosts show nothing */
}

/* Cost decides, not the order of axes: where data parallelism moves most, it sits inside. */
static void bytes_decide(void)
{
    wf_host *h = read_host("quads_8gpu.xml");
    const wf_host *hosts[] = {h, h, h, h};
    wf_placement_axis axes[] = {{"shard", 4, 100 * MIB}, {"tp", 8, MIB}};
    wf_placement_options o = {.n_hosts = 4, .n_axes = 2, .host = hosts, .axis = axes};
    wf_error error = {WF_OK, ""};
    int count[WF_LINKS];
    wf_placement p, transposed;
    char text[512];

    CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
    wf_placement_groups(&p, 0, count);
    CU_ASSERT_EQUAL(count[WF_LINK_NVLINK], 8);
    CU_ASSERT_FATAL(wf_placement_warning(&p, text, sizeof text) != NULL);
    CU_ASSERT(strstr(text, "4 of 4 tp groups of 8") != NULL);
    wf_placement_free(&p);
    axes[1].bytes = 400 * MIB;
    CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
    wf_placement_groups(&p, 1, count);
    CU_ASSERT_EQUAL(count[WF_LINK_HOST], 4);
    CU_ASSERT(wf_placement_warning(&p, text, sizeof text) == NULL);
    CU_ASSERT_EQUAL(wf_placement_transposed(&p, &transposed, &error), WF_OK);
    no_seat_twice(&transposed);
    CU_ASSERT(transposed.cost > p.cost);
    wf_placement_free(&transposed);
    wf_placement_free(&p);
    wf_host_free(h);
}

/* tp 2 x dp 2 on two hosts of two: bytes over the network, by hand. */
static void traffic(void)
{
    wf_host *h = read_host("one_package_2gpu.xml");
    const wf_host *hosts[] = {h, h};
    const wf_placement_axis axes[] = {{"shard", 2, 10}, {"tp", 2, 1000}};
    wf_placement_options o = {.n_hosts = 2, .n_axes = 2, .host = hosts, .axis = axes};
    double bytes[WF_LINKS], network[2];
    wf_error error = {WF_OK, ""};
    wf_placement p, transposed;

    CU_ASSERT_EQUAL_FATAL(wf_placement_find(&o, &p, &error), WF_OK);
    wf_placement_traffic(&p, bytes, network);
    CU_ASSERT(bytes[WF_LINK_NETWORK] == 40 && bytes[WF_LINK_NUMA] == 4000);
    CU_ASSERT(network[0] == 20 && network[1] == 20);
    CU_ASSERT_EQUAL_FATAL(wf_placement_transposed(&p, &transposed, &error), WF_OK);
    wf_placement_traffic(&transposed, bytes, network);
    CU_ASSERT(bytes[WF_LINK_NETWORK] == 4000 && bytes[WF_LINK_NUMA] == 40);
    CU_ASSERT(network[0] == 2000 && network[1] == 2000);
    wf_placement_free(&transposed);
    wf_placement_free(&p);
    wf_host_free(h);
}

static void nearest_nics(void)
{
    wf_host *dgx = read_host("dgx_8gpu_8nic.xml"), *pcie = read_host("pcie_8gpu_2nic.xml");
    wf_host *pairs = read_host("pairs_4gpu.xml"), *cores = read_host(ONE_PACKAGE);

    CU_ASSERT_EQUAL_FATAL(dgx->n_devices, 8);
    CU_ASSERT_EQUAL_FATAL(dgx->n_nics, 8);
    for (int i = 0; i < 8; i++) {
        CU_ASSERT_EQUAL(dgx->device[i].nic, i);
        CU_ASSERT_EQUAL(dgx->device[i].nic_link, WF_LINK_SWITCH);
        CU_ASSERT_EQUAL(dgx->device[i].package, i / 4);
    }
    CU_ASSERT_STRING_EQUAL(dgx->device[3].name, "nvml3");
    CU_ASSERT_STRING_EQUAL(dgx->nic[3].name, "mlx5_3");
    CU_ASSERT_EQUAL_FATAL(pcie->n_nics, 2);
    for (int i = 0; i < 8; i++)
        CU_ASSERT(pcie->device[i].nic == i / 4 && pcie->device[i].nic_link == WF_LINK_NUMA);
    CU_ASSERT_STRING_EQUAL(pairs->nic[0].name, "eth0");
    CU_ASSERT(pairs->device[0].nic_link == WF_LINK_NUMA);
    CU_ASSERT(pairs->device[3].nic == 0 && pairs->device[3].nic_link == WF_LINK_HOST);
    CU_ASSERT(cores->n_nics == 0 && cores->device[0].nic == -1);
    wf_host_free(dgx);
    wf_host_free(pcie);
    wf_host_free(pairs);
    wf_host_free(cores);
}

/* Impossible options are refused, with a reason. */
static void refusals(void)
{
    static const struct {
        wf_host_options options;
        const char *words;
    } bad[] = {{{.source = "two packages, please"}, "neither a file nor a synthetic"},
               {{.source = "core:100000 pu:10"}, "1e+06 hardware threads; 4096 at most"},
               {{.source = "cor[:100000 pu:10"}, "1e+06 hardware threads; 4096 at most"},
               {{.source = "core(:100000 pu:10"}, "1e+06 hardware threads; 4096 at most"},
               {{.source = "[numa] pack:99999999(memory=4) core:99999999 99999999"},
                "1e+24 hardware threads; 4096 at most"},
               {{.source = WEFT_TOPOLOGIES "/make.py"}, "not a topology in hwloc's XML"},
               {{.source = ONE_PACKAGE, .devices = WF_DEVICES_GPUS}, "has 0 GPUs"}};
    wf_host *host;
    wf_placement_axis axis = {"tp", 16, 1};
    wf_placement_options o = {.n_hosts = 1, .n_axes = 1, .axis = &axis};
    wf_placement p;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wf_error error = {WF_OK, ""};

        CU_ASSERT(wf_host_read(&bad[i].options, &host, &error) != WF_OK && !host);
        CU_ASSERT(strstr(error.text, bad[i].words) != NULL);
    }
    host = read_host(ONE_PACKAGE);
    o.host = (const wf_host *const *)&host;
    for (int size = 16; size >= 0; size -= 16) {
        wf_error error = {WF_OK, ""};

        axis.size = size;
        CU_ASSERT_EQUAL(wf_placement_find(&o, &p, &error), WF_EINVAL);
        CU_ASSERT(strstr(error.text, size ? "16 ranks do not fit on 1 host with 8 devices"
                                          : "axis tp of 0 ranks") != NULL);
    }
    wf_host_free(host);
}

/* NVLink that a description does not know of; and cores where there are GPUs. */
static void chosen_otherwise(void)
{
    wf_error error = {WF_OK, ""};
    wf_host_options o = {.source = WEFT_TOPOLOGIES "/pcie_8gpu_2nic.xml", .nvlink = true};
    wf_host *host;

    CU_ASSERT_EQUAL_FATAL(wf_host_read(&o, &host, &error), WF_OK);
    CU_ASSERT_EQUAL(wf_host_link(host, 0, 7), WF_LINK_NVLINK);
    wf_host_free(host);
    o.devices = WF_DEVICES_CORES;
    CU_ASSERT_EQUAL_FATAL(wf_host_read(&o, &host, &error), WF_OK);
    CU_ASSERT(!host->gpus && host->n_devices == 8 &&
              strcmp(host->device[7].name, "core7") == 0);
    CU_ASSERT_EQUAL(wf_host_link(host, 0, 7), WF_LINK_HOST);
    wf_host_free(host);
    CU_ASSERT_EQUAL(wf_host_read(&(wf_host_options){0}, &host, &error), WF_OK);
    wf_host_free(host);
}

static const wf_test tests[] = {{"hosts and meshes", all_cases},
                                {"hosts of any links", any_links},
                                {"bytes decide", bytes_decide},
                                {"traffic by link", traffic},
                                {"the nearest network card", nearest_nics},
                                {"refusals", refusals},
                                {"told otherwise", chosen_otherwise},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("placement", tests);
}
