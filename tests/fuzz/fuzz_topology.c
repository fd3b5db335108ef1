/*
 * tests/fuzz/fuzz_topology.c - hwloc's XML, and its synthetic text: hwloc reads it in a child
 * process, and what comes back is a host that can be walked.
 */
#include "mesh/cluster/host.h"
#include "tests/fuzz/fuzz.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

static void check(const wf_host *h)
{
    PROMISE(h->n_devices >= 1 && h->n_devices <= WF_HOST_MOST_DEVICES && h->n_nics >= 0);
    for (int i = 0; i < h->n_devices; i++) {
        PROMISE(memchr(h->device[i].name, 0, sizeof h->device[i].name));
        PROMISE(h->device[i].nic >= -1 && h->device[i].nic < h->n_nics);
        for (int k = 0; k < h->n_devices; k++)
            PROMISE(wf_host_link(h, i, k) < WF_LINKS);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    wf_error error = {WF_OK, ""};
    char text[128];
    wf_host_options o = {.source = text};
    wf_host *host = NULL;
    int file = -1;

    if (size && data[0] == '<') {
        file = memfd_create("topology", MFD_CLOEXEC);
        PROMISE(file >= 0 && write(file, data, size) == (ssize_t)size);
        snprintf(text, sizeof text, "/proc/self/fd/%d", file);
    } else if (size < sizeof text && !memchr(data, '/', size)) {
        memcpy(text, data, size);
        text[size] = 0;
    } else {
        return 0;
    }
    wf_host_read(&o, &host, &error);
    PROMISE((host != NULL) == (error.code == WF_OK) && !error.text[0] == (error.code == WF_OK));
    if (host)
        check(host);
    wf_host_free(host);
    if (file >= 0)
        close(file);
    return 0;
}
