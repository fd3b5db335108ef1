/*
 * mesh/transport/registry_internal.h - the table of transports (mesh/transport/transports.def),
 * and how one is found by its name.
 */
#ifndef WF_MESH_TRANSPORT_REGISTRY_INTERNAL_H
#define WF_MESH_TRANSPORT_REGISTRY_INTERNAL_H

#include "mesh/comm/transport_internal.h"

#define TRANSPORT(name) extern const wf_transport wf_transport_##name;
#define PLUGIN(name, needs)
#include "mesh/transport/transports.def"
#undef TRANSPORT
#undef PLUGIN

/* Returns the transport of a name, NULL meaning the default; NULL and an error where there is
   none. */
const wf_transport *wf_transport_find(const char *name, wf_error *error);

#endif
