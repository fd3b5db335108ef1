/* mesh/cluster/host_links.c - what lies between two devices of a host, and which network card
   is near. */
#include "mesh/cluster/host_internal.h"
#include <stdlib.h>

static const struct {
    const char *word;
    double weight;
} links[] = {
#define LINK(name, word, weight) {word, weight},
#include "mesh/cluster/links.def"
#undef LINK
};

const char *wf_link_name(wf_link link)
{
    return (unsigned)link < WF_LINKS ? links[link].word : "unknown link";
}

double wf_link_weight(wf_link link)
{
    return (unsigned)link < WF_LINKS ? links[link].weight : 0;
}

wf_link wf_host_link(const wf_host *host, int a, int b)
{
    return (wf_link)host->link[(size_t)a * (size_t)host->n_devices + (size_t)b];
}

hwloc_obj_t wf_host_ancestor(const wf_host_reader *r, hwloc_obj_t object)
{
    return hwloc_obj_type_is_io(object->type)
               ? hwloc_get_non_io_ancestor_obj(r->machine, object)
               : object;
}

int wf_host_package(const wf_host_reader *r, hwloc_obj_t object)
{
    hwloc_obj_t ancestor = wf_host_ancestor(r, object);

    while (ancestor && ancestor->type != HWLOC_OBJ_PACKAGE)
        ancestor = ancestor->parent;
    return ancestor ? (int)ancestor->logical_index : 0;
}

/* Returns whether two objects are in one package: a bus of the whole machine is near every
   package, and near no node. */
static bool same_package(const wf_host_reader *r, hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t root = hwloc_get_root_obj(r->machine);

    if (r->host->packages > 1 &&
        (wf_host_ancestor(r, a) == root || wf_host_ancestor(r, b) == root))
        return false;
    return wf_host_package(r, a) == wf_host_package(r, b);
}

static int generation(hwloc_obj_t object)
{
    int n = 0;

    for (; object->parent; object = object->parent)
        n++;
    return n;
}

/* hwloc's own function goes by depth, which devices do not share with other objects. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    while (a != b)
        if (generation(a) > generation(b))
            a = a->parent;
        else
            b = b->parent;
    return a;
}

static wf_link link_of(const wf_host_reader *r, hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t ancestor_a = wf_host_ancestor(r, a), ancestor_b = wf_host_ancestor(r, b);
    hwloc_obj_t common = common_ancestor(a, b);

    if (common->type == HWLOC_OBJ_PCI_DEVICE ||
        (common->type == HWLOC_OBJ_BRIDGE &&
         common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI))
        return WF_LINK_SWITCH;
    if (hwloc_obj_type_is_cache(common->type) && ancestor_a == a && ancestor_b == b)
        return WF_LINK_CACHE;
    if (!same_package(r, a, b))
        return WF_LINK_HOST;
    return hwloc_bitmap_isequal(ancestor_a->nodeset, ancestor_b->nodeset) ? WF_LINK_NUMA
                                                                          : WF_LINK_PACKAGE;
}

static int device_number(const wf_host_reader *r, hwloc_obj_t object)
{
    while (object && object->type != HWLOC_OBJ_PCI_DEVICE)
        object = object->parent;
    for (int i = 0; object && i < r->host->n_devices; i++)
        if (r->device[i] == object)
            return i;
    return -1;
}

static void mark_nvlink(wf_host_reader *r, const struct hwloc_distances_s *d)
{
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned j = 0; j < d->nbobjs; j++) {
            int a = device_number(r, d->objs[i]), b = device_number(r, d->objs[j]);

            if (a >= 0 && b >= 0 && d->values[i * d->nbobjs + j] > 0)
                r->host->link[a * r->host->n_devices + b] = WF_LINK_NVLINK;
        }
}

/* GPUs that a matrix of NVLink bandwidths joins, directly or by switches. */
static void read_nvlink(wf_host_reader *r)
{
    struct hwloc_distances_s *d;
    unsigned n = 1;

    if (hwloc_distances_get_by_name(r->machine, "NVLinkBandwidth", &n, &d, 0) != 0 || n == 0)
        return;
    mark_nvlink(r, d);
    /* The second transform forgets direct links where there is no switch. */
    if (hwloc_distances_transform(r->machine, d, HWLOC_DISTANCES_TRANSFORM_MERGE_SWITCH_PORTS,
                                  NULL, 0) == 0 &&
        hwloc_distances_transform(r->machine, d, HWLOC_DISTANCES_TRANSFORM_TRANSITIVE_CLOSURE,
                                  NULL, 0) == 0)
        mark_nvlink(r, d);
    hwloc_distances_release(r->machine, d);
}

void wf_host_read_links(wf_host_reader *r)
{
    wf_host *h = r->host;
    size_t n = (size_t)h->n_devices;

    for (size_t i = 0; i < n * n; i++)
        h->link[i] = (uint8_t)(r->options->nvlink && h->gpus
                                   ? WF_LINK_NVLINK
                                   : link_of(r, r->device[i / n], r->device[i % n]));
    if (h->gpus)
        read_nvlink(r);
}

/* Chooses for each device the nearest NIC; of several the one that the fewest devices have
   got. */
wf_status wf_host_choose_nics(wf_host_reader *r, wf_error *error)
{
    wf_host *h = r->host;
    int *users = calloc((size_t)h->n_nics + 1, sizeof *users);

    if (!users)
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    for (int i = 0; i < h->n_devices; i++) {
        wf_host_device *d = &h->device[i];

        d->nic = -1;
        for (int k = 0; k < h->n_nics; k++) {
            wf_link link = link_of(r, r->device[i], r->nic[k]);

            if (d->nic >= 0 &&
                (link > d->nic_link || (link == d->nic_link && users[k] >= users[d->nic])))
                continue;
            d->nic = k;
            d->nic_link = link;
        }
        if (d->nic >= 0)
            users[d->nic]++;
    }
    free(users);
    return WF_OK;
}
