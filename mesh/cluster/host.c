/*
 * mesh/cluster/host.c - reading a host through hwloc: this machine here, and what others
 * describe in a child process (in_child_internal.h), whose answer is checked.
 *
 * A GPU is a PCI device of a class for computing (3D controller, accelerator), or a display of
 * NVIDIA's or AMD's; it is known by its bus number, because hwloc names GPUs only where it was
 * built with their vendor's library.
 */
#include "mesh/cluster/host_internal.h"
#include "mesh/cluster/in_child_internal.h"
#include "mesh/cluster/topology_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* more than these are refused: hwloc takes seconds for them, and its time grows with the
       square */
    SYNTHETIC_THREADS = 4096,
    MOST_NICS = 4096,
    PCI_NETWORK = 0x02,
    PCI_INFINIBAND = 0x0207,
    PCI_DISPLAY = 0x0300,
    PCI_3D = 0x0302,
    PCI_OTHER_DISPLAY = 0x0380,
    PCI_ACCELERATOR = 0x1200,
    NVIDIA = 0x10de,
    AMD = 0x1002
};

static const char *source_name(const wf_host_reader *r)
{
    return r->options->source ? r->options->source : "this machine";
}

/* Returns true for a bracket after which hwloc reads attributes of a level, which follow its
   count, or memory that is attached: elsewhere it takes one for a part of a name. */
static bool opens(const char *text, const char *c, int inside)
{
    if (inside > 0)
        return *c == '(' || *c == '[';
    return (*c == '(' && c > text && c[-1] >= '0' && c[-1] <= '9') ||
           (*c == '[' && (c == text || c[-1] == ' '));
}

/* Multiplies the counts of hwloc's synthetic text: "pack:2 core:8(attributes) 2". What else is
   wrong with it hwloc says. */
static wf_status check_synthetic(const char *text, wf_error *error)
{
    double threads = 1;
    int inside = 0;

    for (const char *c = text; *c; c++) {
        char *end = NULL;

        inside += opens(text, c, inside);
        inside -= inside > 0 && (*c == ')' || *c == ']');
        if (inside == 0 && *c >= '0' && *c <= '9' &&
            (c == text || c[-1] == ':' || c[-1] == ' ')) {
            threads *= strtod(c, &end);
            c = end - 1;
        }
    }
    if (threads > SYNTHETIC_THREADS)
        return wf_error_set(error, WF_EINVAL,
                            "topology %.80s: a machine of %.4g hardware threads; %d at most",
                            text, threads, SYNTHETIC_THREADS);
    return WF_OK;
}

static wf_status load(wf_host_reader *r, wf_error *error)
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
    if (source && !file && check_synthetic(source, error) != WF_OK)
        return error->code;
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

/* Collects the objects that match, in hwloc's order; returns how many, -1 without memory. */
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

/* Returns the name of the first OS device below that begins like one of `prefixes`, else
   NULL. */
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

static void describe_device(wf_host_reader *r, int i)
{
    static const char *const gpus[] = {"nvml", "rsmi", "cuda", "ze", NULL};
    wf_host_device *d = &r->host->device[i];
    const char *name = NULL;
    hwloc_obj_t ancestor = wf_host_ancestor(r, r->device[i]);

    if (r->host->gpus) {
        name = os_name(r->device[i], gpus);
        bus_of(r->device[i], d->bus, sizeof d->bus);
    }
    if (name)
        snprintf(d->name, sizeof d->name, "%s", name);
    else
        snprintf(d->name, sizeof d->name, "%s%d", r->host->gpus ? "gpu" : "core", i);
    d->package = wf_host_package(r, r->device[i]);
    d->numa_node = ancestor->nodeset ? hwloc_bitmap_first(ancestor->nodeset) : 0;
}

static void describe_nic(wf_host_reader *r, int i)
{
    static const char *const any[] = {"mlx", "hfi", "ib", "", NULL};
    wf_host_nic *nic = &r->host->nic[i];
    const char *name = os_name(r->nic[i], any);
    char bus[16];

    bus_of(r->nic[i], bus, sizeof bus);
    snprintf(nic->name, sizeof nic->name, "%s", name ? name : bus);
    nic->package = wf_host_package(r, r->nic[i]);
}

static wf_status describe(wf_host_reader *r, wf_error *error)
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
    wf_host_read_links(r);
    return wf_host_choose_nics(r, error);
}

static wf_status collect(wf_host_reader *r, wf_error *error)
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
    if (h->n_nics > MOST_NICS)
        return wf_error_set(error, WF_EINVAL, "%s has %d network cards; %d at most",
                            source_name(r), h->n_nics, MOST_NICS);
    if (n < 1 || n > WF_HOST_MOST_DEVICES)
        return wf_error_set(
            error, WF_EINVAL, "%s has %d %s; a host has 1 to %d devices", source_name(r), n,
            r->options->devices == WF_DEVICES_GPUS ? "GPUs" : "devices", WF_HOST_MOST_DEVICES);
    return WF_OK;
}

static wf_status read_here(const wf_host_options *options, wf_host **out, wf_error *error)
{
    wf_host_reader r = {.options = options, .host = calloc(1, sizeof *r.host)};
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

/* ---- what others describe ---- */

static wf_status read_in_child(void *options, FILE *out, wf_error *error)
{
    wf_host *h;
    wf_status status = read_here(options, &h, error);
    size_t n = status == WF_OK ? (size_t)h->n_devices : 0;

    if (status != WF_OK)
        return status;
    fwrite(h, sizeof *h, 1, out);
    fwrite(h->device, sizeof *h->device, n, out);
    fwrite(h->nic, sizeof *h->nic, (size_t)h->n_nics, out);
    fwrite(h->link, 1, n * n, out);
    return WF_OK;
}

/* Copies a part of the answer; NULL: no memory. */
static void *part_of(const char **at, size_t n, size_t size)
{
    void *copy = calloc(n + 1, size);

    if (copy)
        memcpy(copy, *at, n * size);
    *at += n * size;
    return copy;
}

static bool is_good(const wf_host *h)
{
    bool good = true;

    for (int i = 0; i < h->n_devices; i++) {
        wf_host_device *d = &h->device[i];

        d->name[sizeof d->name - 1] = '\0';
        d->bus[sizeof d->bus - 1] = '\0';
        wf_text_visible(d->name);
        wf_text_visible(d->bus);
        good = good && d->nic >= -1 && d->nic < h->n_nics &&
               (d->nic < 0 || (unsigned)d->nic_link < WF_LINKS);
    }
    for (int i = 0; i < h->n_nics; i++) {
        h->nic[i].name[sizeof h->nic[i].name - 1] = '\0';
        wf_text_visible(h->nic[i].name);
    }
    for (size_t i = 0; i < (size_t)h->n_devices * (size_t)h->n_devices; i++)
        good = good && h->link[i] < WF_LINKS;
    return good;
}

/* Makes a host of the child's answer, which may be anything. */
static wf_status take_answer(const char *source, const char *all, size_t bytes, wf_host **out,
                             wf_error *error)
{
    wf_host *h = calloc(1, sizeof *h);
    const char *at = all + sizeof *h;
    size_t n, nics, wanted = sizeof *h;

    if (!h)
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    if (bytes >= sizeof *h)
        memcpy(h, all, sizeof *h);
    h->device = NULL;
    h->nic = NULL;
    h->link = NULL;
    n = (size_t)h->n_devices;
    nics = (size_t)h->n_nics;
    if (h->n_devices >= 1 && h->n_devices <= WF_HOST_MOST_DEVICES && h->n_nics >= 0 &&
        h->n_nics <= MOST_NICS)
        wanted += n * sizeof *h->device + nics * sizeof *h->nic + n * n;
    if (wanted == sizeof *h || bytes != wanted) {
        wf_host_free(h);
        return wf_error_set(error, WF_EIO, "%s: hwloc gives up on it: it is damaged", source);
    }
    h->device = part_of(&at, n, sizeof *h->device);
    h->nic = part_of(&at, nics, sizeof *h->nic);
    h->link = part_of(&at, n * n, 1);
    if (!h->device || !h->nic || !h->link || !is_good(h)) {
        bool memory = h->device && h->nic && h->link;

        wf_host_free(h);
        return memory ? wf_error_set(error, WF_EIO, "%s: hwloc gives up on it: it is damaged",
                                     source)
                      : wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    }
    *out = h;
    return WF_OK;
}

wf_status wf_host_read(const wf_host_options *options, wf_host **out, wf_error *error)
{
    enum { DEVICES = WF_HOST_MOST_DEVICES };
    const size_t most = sizeof(wf_host) + DEVICES * sizeof(wf_host_device) +
                        MOST_NICS * sizeof(wf_host_nic) + (size_t)DEVICES * DEVICES;
    wf_host_options copy = *options;
    wf_status status;
    size_t bytes;
    char *all;

    *out = NULL;
    if (!options->source)
        return read_here(options, out, error);
    status = wf_in_child(options->source, read_in_child, &copy, most, &all, &bytes, error);
    if (status == WF_OK)
        status = take_answer(options->source, all, bytes, out, error);
    free(all);
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
