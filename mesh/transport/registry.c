/* mesh/transport/registry.c - finds a transport by its name: built in, or a plugin that is
   loaded. */
#include "mesh/transport/registry_internal.h"
#include "mesh/transport/plugin_internal.h"
#include <string.h>

static const wf_transport *const transports[] = {
#define TRANSPORT(name) &wf_transport_##name,
#define PLUGIN(name, needs)
#include "mesh/transport/transports.def"
#undef TRANSPORT
#undef PLUGIN
};

static const struct plugin {
    const char *name, *needs;
} plugins[] = {
#define TRANSPORT(name)
#define PLUGIN(name, needs) {#name, needs},
#include "mesh/transport/transports.def"
#undef TRANSPORT
#undef PLUGIN
};

enum {
    N_TRANSPORTS = sizeof transports / sizeof transports[0],
    N_PLUGINS = sizeof plugins / sizeof plugins[0]
};

const wf_transport *wf_transport_find(const char *name, wf_error *error)
{
    if (!name)
        return transports[0];
    for (int i = 0; i < N_TRANSPORTS; i++)
        if (strcmp(transports[i]->name, name) == 0)
            return transports[i];
    for (int i = 0; i < N_PLUGINS; i++)
        if (strcmp(plugins[i].name, name) == 0)
            return wf_plugin_load(name, plugins[i].needs, error);
    wf_error_set(error, WF_EUNSUPPORTED,
                 "transport %s is not built in this version; use .transport %s", name,
                 transports[0]->name);
    return NULL;
}
