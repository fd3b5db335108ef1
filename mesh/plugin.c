/* mesh/plugin.c - finds, loads and keeps the transports that are libraries of their own. */
#include "mesh/plugin.h"
#include "mesh/threads_world.h"
#include "mesh/watch.h"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

static struct loaded {
    struct loaded *next;
    const char *name;
    const wf_transport *transport;
} * loaded; /* for the life of the process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The folder of the library or program that this file is part of. */
static void own_folder(char *folder, size_t room)
{
    Dl_info info;
    char *slash;

    folder[0] = '\0';
    if (dladdr(&loaded, &info) && info.dli_fname)
        snprintf(folder, room, "%s", info.dli_fname);
    slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
}

/* A folder that is named wins; one that lacks the plugin is passed over. */
static void *open_library(const char *name, char *why, size_t room)
{
    const char *named = getenv("WEFT_PLUGINS");
    char folder[PATH_BYTES], path[PATH_BYTES + 64];
    void *library = NULL;

    own_folder(folder, sizeof folder);
    why[0] = '\0';
    for (int i = 0; !library && i < 4; i++) {
        if (i == 0 && !named)
            continue;
        snprintf(path, sizeof path, "%s%slibweft_%s.so",
                 i == 0  ? named
                 : i < 3 ? folder
                         : "",
                 i == 2  ? "/../"
                 : i < 2 ? "/"
                         : "",
                 name);
        library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        /* One that is there and cannot be loaded is what the user wants to hear of. */
        if (!library && !strstr(why, "undefined") && !strstr(why, ".so."))
            snprintf(why, room, "%s", dlerror());
    }
    return library;
}

static void abort_threads(void *threads, int rank, const wf_error *cause)
{
    wf_threads_abort(threads, rank, cause);
}

static const wf_transport *load(const char *name, const char *needs, wf_error *error)
{
    const wf_plugin_host host = {.size = sizeof host,
                                 .version = WF_PLUGIN_VERSION,
                                 .launcher = wf_launcher_detected(),
                                 .error_set = wf_error_set,
                                 .error_behind_rank = wf_error_behind_rank,
                                 .comm_init = wf_comm_init,
                                 .fingerprint_same = wf_fingerprint_same,
                                 .fingerprint_differ = wf_fingerprint_differ,
                                 .blocks_take = wf_blocks_take,
                                 .blocks_give = wf_blocks_give,
                                 .seating_find = wf_seating_find,
                                 .threads = &wf_transport_threads,
                                 .threads_open = wf_threads_open,
                                 .threads_abort = abort_threads,
                                 .watch_well = wf_watch_well};
    wf_plugin_entry *entry;
    char why[512];
    void *library = open_library(name, why, sizeof why), *symbol;
    const wf_transport *transport;

    if (!library) {
        wf_error_set(error, WF_EUNSUPPORTED,
                     "transport %s is not here: %s; it is built where CMake finds %s, and "
                     "looked for beside libweft and in $WEFT_PLUGINS",
                     name, why, needs);
        return NULL;
    }
    symbol = dlsym(library, "wf_plugin");
    memcpy(&entry, &symbol, sizeof entry);
    transport = symbol ? entry(&host) : NULL;
    if (!symbol)
        wf_error_set(error, WF_EUNSUPPORTED, "libweft_%s.so is no plugin of Weft", name);
    if (!transport) {
        wf_error_set(error, WF_EUNSUPPORTED,
                     "libweft_%s.so is not of this version of Weft (plugins %d, %zu bytes); "
                     "build both from the same sources",
                     name, WF_PLUGIN_VERSION, sizeof host);
        dlclose(library);
    }
    return transport;
}

static void keep(const char *name, const wf_transport *transport)
{
    struct loaded *l = malloc(sizeof *l);

    if (!l)
        return; /* it is looked for again */
    *l = (struct loaded){.next = loaded, .name = name, .transport = transport};
    loaded = l;
}

const wf_transport *wf_plugin_load(const char *name, const char *needs, wf_error *error)
{
    const wf_transport *transport = NULL;

    pthread_mutex_lock(&lock);
    for (struct loaded *l = loaded; l; l = l->next)
        if (strcmp(l->name, name) == 0)
            transport = l->transport;
    if (!transport && (transport = load(name, needs, error)))
        keep(name, transport);
    pthread_mutex_unlock(&lock);
    return transport;
}
