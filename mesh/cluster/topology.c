/* mesh/cluster/topology.c - reading a machine through hwloc. */
#include "mesh/cluster/topology.h"
#include "mesh/cluster/topology_internal.h"
#include "mesh/cluster/in_child_internal.h"
#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_MIB = 64 };

static size_t cache_bytes(hwloc_topology_t machine, hwloc_obj_type_t type)
{
    hwloc_obj_t cache = hwloc_get_obj_by_type(machine, type, 0);

    return cache ? (size_t)cache->attr->cache.size : 0;
}

static int count(hwloc_topology_t machine, hwloc_obj_type_t type)
{
    int n = hwloc_get_nbobjs_by_type(machine, type);

    return n > 0 ? n : 1;
}

wf_status wf_topology_file(const char *xml, wf_error *error)
{
    struct stat s;

    if (access(xml, R_OK) != 0 || stat(xml, &s) != 0)
        return wf_error_set(error, WF_EIO, "cannot read topology %s: %s", xml, strerror(errno));
    if (!S_ISREG(s.st_mode))
        return wf_error_set(error, WF_EIO, "cannot read topology %s: it is no regular file",
                            xml);
    if (s.st_size > (off_t)MOST_MIB << 20)
        return wf_error_set(error, WF_EIO, "cannot read topology %s: it has more than %d MiB",
                            xml, MOST_MIB);
    return WF_OK;
}

static wf_status load(hwloc_topology_t machine, const char *xml, wf_error *error)
{
    if (xml && wf_topology_file(xml, error) != WF_OK)
        return error->code;
    if (xml && hwloc_topology_set_xml(machine, xml) != 0)
        return wf_error_set(error, WF_EIO,
                            "%s is not a topology in hwloc's XML (make one with: lstopo %s)",
                            xml, xml);
    if (hwloc_topology_load(machine) != 0)
        return wf_error_set(error, WF_EIO, "hwloc cannot describe %s",
                            xml ? xml : "this machine");
    return WF_OK;
}

static wf_status read_here(const char *xml, wf_topology *topology, wf_error *error)
{
    hwloc_topology_t machine;
    wf_status status;

    memset(topology, 0, sizeof *topology);
    if (hwloc_topology_init(&machine) != 0)
        return wf_error_set(error, WF_ENOMEM, "no memory for a topology");
    status = load(machine, xml, error);
    if (status == WF_OK) {
        topology->packages = count(machine, HWLOC_OBJ_PACKAGE);
        topology->numa_nodes = count(machine, HWLOC_OBJ_NUMANODE);
        topology->cores = count(machine, HWLOC_OBJ_CORE);
        topology->threads = count(machine, HWLOC_OBJ_PU);
        topology->l2_bytes = cache_bytes(machine, HWLOC_OBJ_L2CACHE);
        topology->l3_bytes = cache_bytes(machine, HWLOC_OBJ_L3CACHE);
        topology->memory_bytes = (size_t)hwloc_get_root_obj(machine)->total_memory;
    }
    hwloc_topology_destroy(machine);
    return status;
}

static wf_status read_in_child(void *xml, FILE *out, wf_error *error)
{
    wf_topology topology;
    wf_status status = read_here(xml, &topology, error);

    if (status == WF_OK)
        fwrite(&topology, sizeof topology, 1, out);
    return status;
}

wf_status wf_topology_read(const char *xml, wf_topology *topology, wf_error *error)
{
    wf_status status;
    size_t bytes;
    char *all;

    if (!xml)
        return read_here(NULL, topology, error);
    memset(topology, 0, sizeof *topology);
    status = wf_in_child(xml, read_in_child, (void *)(uintptr_t)xml, sizeof *topology, &all,
                         &bytes, error);
    if (status == WF_OK && bytes == sizeof *topology)
        memcpy(topology, all, bytes);
    free(all);
    return status;
}

/* "3 cores", "1 core" */
static int print_count(char *text, size_t size, int n, const char *what)
{
    return snprintf(text, size, "%d %s%s", n, what, n == 1 ? "" : "s");
}

char *wf_topology_print(const wf_topology *t, char *text, size_t size)
{
    char packages[32], cores[32], nodes[32], caches[96] = "";

    print_count(packages, sizeof packages, t->packages, "package");
    print_count(nodes, sizeof nodes, t->numa_nodes, "NUMA node");
    print_count(cores, sizeof cores, t->cores, "core");
    if (t->l2_bytes)
        snprintf(caches, sizeof caches, ", L2 %zu KiB, L3 %zu MiB", t->l2_bytes >> 10,
                 t->l3_bytes >> 20);
    snprintf(text, size, "%s, %s, %s%s, memory %zu GiB", packages, nodes, cores, caches,
             t->memory_bytes >> 30);
    return text;
}
