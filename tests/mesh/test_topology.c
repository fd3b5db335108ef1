/*
 * tests/mesh/test_topology.c - the machine as hwloc sees it, and machines that are not here.
 *
 * ctest: builds address thread
 */
#include "mesh/cluster/launch.h"
#include "mesh/cluster/affinity_internal.h"
#include "mesh/cluster/topology.h"
#include "tests/harness.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void this_machine(void)
{
    wf_topology t;
    wf_error error = {WF_OK, ""};
    char text[256];

    CU_ASSERT_EQUAL(wf_topology_read(NULL, &t, &error), WF_OK);
    CU_ASSERT(t.packages >= 1 && t.cores >= t.packages && t.threads >= t.cores);
    CU_ASSERT(t.memory_bytes > (size_t)64 << 20);
    CU_ASSERT(strstr(wf_topology_print(&t, text, sizeof text), "core") != NULL);
}

/* Two packages of four cores with two hardware threads each. */
static void write_machine(char *path)
{
    int file = mkstemp(path), number = 0;
    FILE *out = fdopen(file, "w");

    fprintf(out, "<?xml version=\"1.0\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
                 "<topology version=\"2.0\">\n<object type=\"Machine\" os_index=\"0\" "
                 "cpuset=\"0xffff\" complete_cpuset=\"0xffff\" allowed_cpuset=\"0xffff\" "
                 "nodeset=\"0x1\" complete_nodeset=\"0x1\" allowed_nodeset=\"0x1\">\n"
                 "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"0xffff\" "
                 "complete_cpuset=\"0xffff\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
                 "local_memory=\"1073741824\"/>\n");
    for (int p = 0; p < 2; p++) {
        fprintf(out,
                "<object type=\"Package\" os_index=\"%d\" cpuset=\"0x%x\" "
                "complete_cpuset=\"0x%x\" nodeset=\"0x1\" complete_nodeset=\"0x1\">\n",
                p, 0xff << (8 * p), 0xff << (8 * p));
        for (int c = 0; c < 4; c++) {
            int set = 3 << number;

            fprintf(out,
                    "<object type=\"Core\" os_index=\"%d\" cpuset=\"0x%x\" "
                    "complete_cpuset=\"0x%x\" nodeset=\"0x1\" complete_nodeset=\"0x1\">\n",
                    c, set, set);
            for (int k = 0; k < 2; k++, number++)
                fprintf(out,
                        "<object type=\"PU\" os_index=\"%d\" cpuset=\"0x%x\" "
                        "complete_cpuset=\"0x%x\" nodeset=\"0x1\" "
                        "complete_nodeset=\"0x1\"/>\n",
                        number, 1 << number, 1 << number);
            fprintf(out, "</object>\n");
        }
        fprintf(out, "</object>\n");
    }
    fprintf(out, "</object>\n</topology>\n");
    fclose(out);
}

static void another_machine(void)
{
    char path[] = "/tmp/weft-topology-XXXXXX";
    wf_topology t;
    wf_error error = {WF_OK, ""};

    write_machine(path);
    CU_ASSERT_EQUAL(wf_topology_read(path, &t, &error), WF_OK);
    CU_ASSERT_EQUAL(t.packages, 2);
    CU_ASSERT_EQUAL(t.cores, 8);
    CU_ASSERT_EQUAL(t.threads, 16);
    CU_ASSERT_EQUAL(t.memory_bytes, 1 << 30);
    unlink(path);
}

/* Ranks side by side on cores of their own, while there are enough. */
static void locations(void)
{
    char path[] = "/tmp/weft-topology-XXXXXX";

    write_machine(path);
    for (int threads = 1; threads <= 9; threads++)
        for (int ranks = 1; ranks <= 9; ranks++) {
            wf_affinity *p = wf_affinity_open(path, ranks, threads);

            CU_ASSERT((p != NULL) == (ranks > 1 && ranks * threads <= 8));
            for (int core = 0; p && core < 8; core++)
                for (int r = 0; r < ranks; r++)
                    CU_ASSERT_EQUAL(wf_affinity_core(p, r, core),
                                    core >= r * threads && core < (r + 1) * threads);
            wf_affinity_close(p);
        }
    unlink(path);
    CU_ASSERT(wf_affinity_open("/nowhere/topology.xml", 1, 1) == NULL);
}

/* On this machine, as the system sees it. */
static wf_status look_where(wf_rank *rank, void *arg)
{
    cpu_set_t *sets = arg;

    sched_getaffinity(0, sizeof sets[0], &sets[rank->index]);
    return WF_OK;
}

static void ranks_are_bound(void)
{
    cpu_set_t mine, both, sets[2];
    wf_error error = {WF_OK, ""};

    sched_getaffinity(0, sizeof mine, &mine);
    for (int threads = 0; threads < 2; threads++) {
        wf_launch_options o = {.ranks = 2, .threads = threads};
        wf_affinity *enough = wf_affinity_open(NULL, 2, 1);

        CU_ASSERT_EQUAL(wf_launch(&o, look_where, sets, &error), WF_OK);
        CPU_AND(&both, &sets[0], &sets[1]);
        CU_ASSERT_EQUAL(CPU_COUNT(&both), threads && enough ? 0 : CPU_COUNT(&mine));
        wf_affinity_close(enough);
    }
}

static void no_machine(void)
{
    wf_topology t;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_topology_read("/nowhere/topology.xml", &t, &error), WF_EIO);
    CU_ASSERT(strstr(error.text, "/nowhere/topology.xml") != NULL);
}

static const wf_test tests[] = {
    {"this machine", this_machine},           {"another machine", another_machine},
    {"places of ranks", locations},           {"ranks are bound", ranks_are_bound},
    {"a file that is not there", no_machine}, {NULL, NULL}};

int main(void)
{
    return wf_test_main("topology", tests);
}
