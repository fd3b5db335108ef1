/* mesh/cluster/affinity.c - cores for ranks, found and bound through hwloc: see the header. */
#include "mesh/cluster/affinity_internal.h"
#include <hwloc.h>
#include <stdlib.h>

struct wf_affinity {
    hwloc_topology_t machine;
    int threads;
};

/* Only what an affinity mask leaves to this process. */
static void restrict_to_mask(hwloc_topology_t machine)
{
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();

    if (mask && hwloc_get_cpubind(machine, mask, 0) == 0)
        hwloc_topology_restrict(machine, mask, 0);
    hwloc_bitmap_free(mask);
}

int wf_affinity_allowed(unsigned char *set, int most)
{
    hwloc_topology_t machine;
    hwloc_bitmap_t mask = hwloc_bitmap_alloc();
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int allowed = 0;

    if (!mask || hwloc_topology_init(&machine) != 0) {
        hwloc_bitmap_free(mask);
        return -1;
    }
    if (hwloc_topology_load(machine) != 0 || hwloc_get_cpubind(machine, mask, 0) != 0)
        allowed = -1;
    if (hwloc_get_nbobjs_by_type(machine, type) <= 0)
        type = HWLOC_OBJ_PU;
    for (int i = 0; allowed >= 0 && i < most; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(machine, type, (unsigned)i);

        if (core && hwloc_bitmap_intersects(core->cpuset, mask)) {
            set[i / 8] |= (unsigned char)(1 << i % 8);
            allowed++;
        }
    }
    hwloc_topology_destroy(machine);
    hwloc_bitmap_free(mask);
    return allowed;
}

wf_affinity *wf_affinity_open(const char *xml, int ranks, int threads)
{
    wf_affinity *affinity = calloc(1, sizeof *affinity);
    int cores;

    if (!affinity)
        return NULL;
    affinity->threads = threads;
    if (hwloc_topology_init(&affinity->machine) != 0) {
        free(affinity);
        return NULL;
    }
    if ((xml && hwloc_topology_set_xml(affinity->machine, xml) != 0) ||
        hwloc_topology_load(affinity->machine) != 0) {
        wf_affinity_close(affinity);
        return NULL;
    }
    if (!xml)
        restrict_to_mask(affinity->machine);
    cores = hwloc_get_nbobjs_by_type(affinity->machine, HWLOC_OBJ_CORE);
    if (threads < 1 || ranks < 2 || ranks > cores / threads) {
        wf_affinity_close(affinity);
        return NULL;
    }
    return affinity;
}

void wf_affinity_close(wf_affinity *affinity)
{
    if (!affinity)
        return;
    hwloc_topology_destroy(affinity->machine);
    free(affinity);
}

bool wf_affinity_core(const wf_affinity *affinity, int rank, int core)
{
    return core / affinity->threads == rank;
}

void wf_affinity_bind(const wf_affinity *affinity, int rank)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    bool nodes = hwloc_get_nbobjs_by_type(affinity->machine, HWLOC_OBJ_NUMANODE) > 1;

    for (int i = 0; mine && i < affinity->threads; i++)
        hwloc_bitmap_or(mine, mine,
                        hwloc_get_obj_by_type(affinity->machine, HWLOC_OBJ_CORE,
                                              (unsigned)(rank * affinity->threads + i))
                            ->cpuset);
    if (mine)
        hwloc_set_cpubind(affinity->machine, mine, HWLOC_CPUBIND_THREAD);
    if (mine && nodes) /* not strictly: a node that is full is no reason to fail */
        hwloc_set_membind(affinity->machine, mine, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD);
    hwloc_bitmap_free(mine);
}
