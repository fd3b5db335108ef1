/* mesh/transport/plugin.c - what transports that are libraries of their own are given. */
#include "mesh/transport/plugin_internal.h"
#include "core/plugin.h"
#include "core/thread.h"
#include "mesh/transport/registry_internal.h"
#include "mesh/transport/threads/threads_internal.h"
#include <stdio.h>
#include <string.h>

static const void *enter(void *symbol)
{
    const wf_plugin_host host = {.size = sizeof host,
                                 .version = WF_PLUGIN_VERSION,
                                 .launcher = wf_launcher_detected(),
                                 .error_set = wf_error_set,
                                 .error_after_rank = wf_error_after_rank,
                                 .thread_start = wf_thread_start,
                                 .comm_init = wf_comm_init,
                                 .fingerprint_same = wf_fingerprint_same,
                                 .fingerprint_meets = wf_fingerprint_meets,
                                 .fingerprint_differ = wf_fingerprint_differ,
                                 .blocks_take = wf_blocks_take,
                                 .blocks_give = wf_blocks_give,
                                 .transport_find = wf_transport_find,
                                 .threads = &wf_transport_threads,
                                 .threads_open = wf_threads_open,
                                 .threads_abort = wf_threads_world_abort};
    wf_plugin_entry *entry;

    memcpy(&entry, &symbol, sizeof entry);
    return entry(&host);
}

const wf_transport *wf_plugin_load(const char *name, const char *needs, wf_error *error)
{
    char what[64];

    snprintf(what, sizeof what, "transport %s", name);
    return wf_plugin_find(&(wf_plugin_ask){.name = name,
                                           .what = what,
                                           .needs = needs,
                                           .enter = enter,
                                           .version = WF_PLUGIN_VERSION},
                          error);
}
