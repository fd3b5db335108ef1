/*
 * mesh/cluster/host.c - reading a host through hwloc.
 *
 * A GPU is a PCI device of a class for computing (3D controller, accelerator), or a display of
 * NVIDIA's or AMD's; it is known by its bus number, because hwloc names GPUs only where it was
 * built with their vendor's library.
 */
#include "mesh/cluster/host.h"
#include "mesh/cluster/topology_internal.h"
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    PCI_NETWORK = 0x02,
    PCI_INFINIBAND = 0x0207,
    PCI_DISPLAY = 0x0300,
    PCI_3D = 0x0302,
    PCI_OTHER_DISPLAY = 0x0380,
    PCI_ACCELERATOR = 0x1200,
    NVIDIA = 0x10de,
    AMD = 0x1002
};

typedef struct reader {
    const wf_host_options *options;
    hwloc_topology_t machine;
    wf_host *host;
    hwloc_obj_t *device, *nic; /* as in the host */
} reader;

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

static const char *source_name(const reader *r)
{
    return r->options->source ? r->options->source : "this machine";
}

static wf_status load(reader *r, wf_error *error)
{
    const char *source = r->options->source;
    bool file = source && access(source, F_OK) == 0;

    hwloc_topology_set_io_types_filter(r->machine, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (file && wf_topology_file(source, error) != WF_OK)
        return error->code;
    if (file && hwloc_topology_set_xml(r->machine, source) != 0)
        return wf_error_set(error, WF_EIO,
                            "%s is not a topology in hwloc's XML (make one with: lstopo %s; "
                            "hwloc 3 writes one that hwloc 2 reads with --export-xml-flags v2)",
                            source, source);
    if (source && !file && hwloc_topology_set_synthetic(r->machine, source) != 0)
        return wf_error_set(error, WF_EIO,
                            "%s is neither a file nor a synthetic topology such as "
                            "\"pack:2 l3:1 core:8 pu:1\"",
                            source);
    if (hwloc_topology_load(r->machine) != 0)
        return wf_error_set(error, WF_EIO, "hwloc cannot describe %s", source_name(r));
    return WF_OK;
}

static bool is_gpu(hwloc_obj_t pci)
{
    unsigned class = pci->attr->pcidev.class_id, vendor = pci->attr->pcidev.vendor_id;

    if (class == PCI_3D || class == PCI_ACCELERATOR)
        return true;
    return (class == PCI_DISPLAY || class == PCI_OTHER_DISPLAY) &&
           (vendor == NVIDIA || vendor == AMD);
}

static bool is_nic(hwloc_obj_t pci)
{
    return pci->attr->pcidev.class_id >> 8 == PCI_NETWORK;
}

static bool is_infiniband(hwloc_obj_t pci)
{
    if (pci->attr->pcidev.class_id == PCI_INFINIBAND)
        return true;
    for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling)
        if (os->type == HWLOC_OBJ_OS_DEVICE &&
            os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
            return true;
    return false;
}

/* The objects that match, in hwloc's order; returns how many, -1 without memory. */
static int collect_pci(hwloc_topology_t machine, bool (*match)(hwloc_obj_t), hwloc_obj_t **out)
{
    hwloc_obj_t pci = NULL;
    int n = 0;

    while ((pci = hwloc_get_next_pcidev(machine, pci)) != NULL)
        n += match(pci);
    *out = calloc((size_t)n + 1, sizeof **out);
    if (!*out)
        return -1;
    n = 0;
    while ((pci = hwloc_get_next_pcidev(machine, pci)) != NULL)
        if (match(pci))
            (*out)[n++] = pci;
    return n;
}

static int collect_cores(hwloc_topology_t machine, hwloc_obj_t **out)
{
    hwloc_obj_type_t type = HWLOC_OBJ_CORE;
    int n = hwloc_get_nbobjs_by_type(machine, type);

    if (n <= 0) {
        type = HWLOC_OBJ_PU;
        n = hwloc_get_nbobjs_by_type(machine, type);
    }
    *out = calloc((size_t)n + 1, sizeof **out);
    for (int i = 0; *out && i < n; i++)
        (*out)[i] = hwloc_get_obj_by_type(machine, type, (unsigned)i);
    return *out ? n : -1;
}

/* Where an object is: itself, or what of the machine its bus hangs on. */
static hwloc_obj_t place_of(const reader *r, hwloc_obj_t object)
{
    return hwloc_obj_type_is_io(object->type)
               ? hwloc_get_non_io_ancestor_obj(r->machine, object)
               : object;
}

static int package_of(const reader *r, hwloc_obj_t object)
{
    hwloc_obj_t place = place_of(r, object);

    while (place && place->type != HWLOC_OBJ_PACKAGE)
        place = place->parent;
    return place ? (int)place->logical_index : 0;
}

/* A bus that hangs on the whole machine is near every package, and near no node. */
static bool same_package(const reader *r, hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t root = hwloc_get_root_obj(r->machine);

    if (r->host->packages > 1 && (place_of(r, a) == root || place_of(r, b) == root))
        return false;
    return package_of(r, a) == package_of(r, b);
}

static int generation(hwloc_obj_t object)
{
    int n = 0;

    for (; object->parent; object = object->parent)
        n++;
    return n;
}

/* hwloc's own function goes by depth, which devices do not share with the rest. */
static hwloc_obj_t common_ancestor(hwloc_obj_t a, hwloc_obj_t b)
{
    while (a != b)
        if (generation(a) > generation(b))
            a = a->parent;
        else
            b = b->parent;
    return a;
}

static wf_link link_of(const reader *r, hwloc_obj_t a, hwloc_obj_t b)
{
    hwloc_obj_t place_a = place_of(r, a), place_b = place_of(r, b);
    hwloc_obj_t common = common_ancestor(a, b);

    if (common->type == HWLOC_OBJ_PCI_DEVICE ||
        (common->type == HWLOC_OBJ_BRIDGE &&
         common->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI))
        return WF_LINK_SWITCH;
    if (hwloc_obj_type_is_cache(common->type) && place_a == a && place_b == b)
        return WF_LINK_CACHE;
    if (!same_package(r, a, b))
        return WF_LINK_HOST;
    return hwloc_bitmap_isequal(place_a->nodeset, place_b->nodeset) ? WF_LINK_NUMA
                                                                    : WF_LINK_PACKAGE;
}

/* The name of the first OS device below that begins like one of `prefixes`, else NULL. */
static const char *os_name(hwloc_obj_t pci, const char *const *prefixes)
{
    for (; *prefixes; prefixes++)
        for (hwloc_obj_t os = pci->io_first_child; os; os = os->next_sibling)
            if (os->name && strncmp(os->name, *prefixes, strlen(*prefixes)) == 0)
                return os->name;
    return NULL;
}

static void bus_of(hwloc_obj_t pci, char *text, size_t size)
{
    const struct hwloc_pcidev_attr_s *p = &pci->attr->pcidev;

    snprintf(text, size, "%04x:%02x:%02x.%x", p->domain & 0xffffu, p->bus, p->dev, p->func);
}

static void describe_device(reader *r, int i)
{
    static const char *const gpus[] = {"nvml", "rsmi", "cuda", "ze", NULL};
    wf_host_device *d = &r->host->device[i];
    const char *name = NULL;
    hwloc_obj_t place = place_of(r, r->device[i]);

    if (r->host->gpus) {
        name = os_name(r->device[i], gpus);
        bus_of(r->device[i], d->bus, sizeof d->bus);
    }
    if (name)
        snprintf(d->name, sizeof d->name, "%s", name);
    else
        snprintf(d->name, sizeof d->name, "%s%d", r->host->gpus ? "gpu" : "core", i);
    d->package = package_of(r, r->device[i]);
    d->numa_node = place->nodeset ? hwloc_bitmap_first(place->nodeset) : 0;
}

static void describe_nic(reader *r, int i)
{
    static const char *const any[] = {"mlx", "hfi", "ib", "", NULL};
    wf_host_nic *nic = &r->host->nic[i];
    const char *name = os_name(r->nic[i], any);
    char bus[16];

    bus_of(r->nic[i], bus, sizeof bus);
    snprintf(nic->name, sizeof nic->name, "%s", name ? name : bus);
    nic->package = package_of(r, r->nic[i]);
}

/* The nearest; of several the one that the fewest devices have got. */
static wf_status choose_nics(reader *r, wf_error *error)
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

static int device_number(const reader *r, hwloc_obj_t object)
{
    while (object && object->type != HWLOC_OBJ_PCI_DEVICE)
        object = object->parent;
    for (int i = 0; object && i < r->host->n_devices; i++)
        if (r->device[i] == object)
            return i;
    return -1;
}

static void mark_nvlink(reader *r, const struct hwloc_distances_s *d)
{
    for (unsigned i = 0; i < d->nbobjs; i++)
        for (unsigned j = 0; j < d->nbobjs; j++) {
            int a = device_number(r, d->objs[i]), b = device_number(r, d->objs[j]);

            if (a >= 0 && b >= 0 && d->values[i * d->nbobjs + j] > 0)
                r->host->link[a * r->host->n_devices + b] = WF_LINK_NVLINK;
        }
}

/* GPUs that a matrix of NVLink bandwidths joins, directly or by switches. */
static void read_nvlink(reader *r)
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

static wf_status describe(reader *r, wf_error *error)
{
    wf_host *h = r->host;
    size_t n = (size_t)h->n_devices;

    h->packages = hwloc_get_nbobjs_by_type(r->machine, HWLOC_OBJ_PACKAGE);
    h->packages = h->packages > 0 ? h->packages : 1;
    h->numa_nodes = hwloc_get_nbobjs_by_type(r->machine, HWLOC_OBJ_NUMANODE);
    h->device = calloc(n, sizeof *h->device);
    h->nic = calloc((size_t)h->n_nics + 1, sizeof *h->nic);
    h->link = calloc(n * n, sizeof *h->link);
    if (!h->device || !h->nic || !h->link)
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    for (int i = 0; i < h->n_devices; i++)
        describe_device(r, i);
    for (int i = 0; i < h->n_nics; i++)
        describe_nic(r, i);
    for (size_t i = 0; i < n * n; i++)
        h->link[i] = (uint8_t)(r->options->nvlink && h->gpus
                                   ? WF_LINK_NVLINK
                                   : link_of(r, r->device[i / n], r->device[i % n]));
    if (h->gpus)
        read_nvlink(r);
    return choose_nics(r, error);
}

static wf_status collect(reader *r, wf_error *error)
{
    wf_host *h = r->host;
    int n = 0;

    if (r->options->devices != WF_DEVICES_CORES)
        n = collect_pci(r->machine, is_gpu, &r->device);
    h->gpus = n > 0;
    if (n == 0 && r->options->devices != WF_DEVICES_GPUS) {
        free(r->device);
        n = collect_cores(r->machine, &r->device);
    }
    h->n_devices = n;
    h->n_nics = n < 0 ? -1 : collect_pci(r->machine, is_infiniband, &r->nic);
    if (h->n_nics == 0) {
        free(r->nic);
        h->n_nics = collect_pci(r->machine, is_nic, &r->nic);
    }
    if (h->n_nics < 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    if (n < 1 || n > WF_HOST_MOST_DEVICES)
        return wf_error_set(
            error, WF_EINVAL, "%s has %d %s; a host has 1 to %d devices", source_name(r), n,
            r->options->devices == WF_DEVICES_GPUS ? "GPUs" : "devices", WF_HOST_MOST_DEVICES);
    return WF_OK;
}

wf_status wf_host_read(const wf_host_options *options, wf_host **out, wf_error *error)
{
    reader r = {.options = options, .host = calloc(1, sizeof *r.host)};
    wf_status status;

    *out = NULL;
    if (!r.host || hwloc_topology_init(&r.machine) != 0) {
        free(r.host);
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    }
    status = load(&r, error);
    if (status == WF_OK)
        status = collect(&r, error);
    if (status == WF_OK)
        status = describe(&r, error);
    hwloc_topology_destroy(r.machine);
    free(r.device);
    free(r.nic);
    if (status == WF_OK)
        *out = r.host;
    else
        wf_host_free(r.host);
    return status;
}

void wf_host_free(wf_host *host)
{
    if (!host)
        return;
    free(host->device);
    free(host->nic);
    free(host->link);
    free(host);
}
