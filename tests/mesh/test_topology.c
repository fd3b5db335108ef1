/* tests/mesh/test_topology.c - the machine as hwloc sees it, and machines that are not here. */
#include "mesh/topology.h"
#include "tests/harness.h"
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
static void another_machine(void)
{
    char path[] = "/tmp/weft-topology-XXXXXX";
    int file = mkstemp(path), number = 0;
    FILE *out = fdopen(file, "w");
    wf_topology t;
    wf_error error = {WF_OK, ""};

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
    CU_ASSERT_EQUAL(wf_topology_read(path, &t, &error), WF_OK);
    CU_ASSERT_EQUAL(t.packages, 2);
    CU_ASSERT_EQUAL(t.cores, 8);
    CU_ASSERT_EQUAL(t.threads, 16);
    CU_ASSERT_EQUAL(t.memory_bytes, 1 << 30);
    unlink(path);
}

static void no_machine(void)
{
    wf_topology t;
    wf_error error = {WF_OK, ""};

    CU_ASSERT_EQUAL(wf_topology_read("/nowhere/topology.xml", &t, &error), WF_EIO);
    CU_ASSERT(strstr(error.text, "/nowhere/topology.xml") != NULL);
}

static const wf_test tests[] = {{"this machine", this_machine},
                                {"another machine", another_machine},
                                {"a file that is not there", no_machine},
                                {NULL, NULL}};

int main(void)
{
    return wf_test_main("topology", tests);
}
