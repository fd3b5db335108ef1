/* mesh/cluster/affinity.c - cores for ranks, found and bound through hwloc: see the header. */
#include "mesh/cluster/affinity_internal.h"
#include <hwloc.h>
#include <stdlib.h>

struct wf_places {
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

int wf_places_allowed(unsigned char *set, int most)
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

wf_places *wf_places_open(const char *xml, int ranks, int threads)
{
    wf_places *places = calloc(1, sizeof *places);
    int cores;

    if (!places)
        return NULL;
    places->threads = threads;
    if (hwloc_topology_init(&places->machine) != 0) {
        free(places);
        return NULL;
    }
    if ((xml && hwloc_topology_set_xml(places->machine, xml) != 0) ||
        hwloc_topology_load(places->machine) != 0) {
        wf_places_close(places);
        return NULL;
    }
    if (!xml)
        restrict_to_mask(places->machine);
    cores = hwloc_get_nbobjs_by_type(places->machine, HWLOC_OBJ_CORE);
    if (threads < 1 || ranks < 2 || ranks > cores / threads) {
        wf_places_close(places);
        return NULL;
    }
    return places;
}

void wf_places_close(wf_places *places)
{
    if (!places)
        return;
    hwloc_topology_destroy(places->machine);
    free(places);
}

bool wf_places_core(const wf_places *places, int rank, int core)
{
    return core / places->threads == rank;
}

void wf_places_bind(const wf_places *places, int rank)
{
    hwloc_bitmap_t mine = hwloc_bitmap_alloc();
    bool nodes = hwloc_get_nbobjs_by_type(places->machine, HWLOC_OBJ_NUMANODE) > 1;

    for (int i = 0; mine && i < places->threads; i++)
        hwloc_bitmap_or(mine, mine,
                        hwloc_get_obj_by_type(places->machine, HWLOC_OBJ_CORE,
                                              (unsigned)(rank * places->threads + i))
                            ->cpuset);
    if (mine)
        hwloc_set_cpubind(places->machine, mine, HWLOC_CPUBIND_THREAD);
    if (mine && nodes) /* not strictly: a node that is full is no reason to fail */
        hwloc_set_membind(places->machine, mine, HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_THREAD);
    hwloc_bitmap_free(mine);
}
