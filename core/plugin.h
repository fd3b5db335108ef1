/*
 * core/plugin.h - parts of Weft that are libraries of their own, libweft_<name>.so, so that one
 * program runs with and without what they stand on. A plugin exports one symbol, wf_plugin, and
 * links to nothing of Weft: what it needs is in the table that its host hands to that function.
 */
#ifndef WF_CORE_PLUGIN_H
#define WF_CORE_PLUGIN_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>

WF_BEGIN_DECLS

/** wf_plugin_ask - the description of a library to load. */
typedef struct wf_plugin_ask {
    const char *name;  /* the library's: "mpi" */
    const char *what;  /* for errors: "transport mpi" */
    const char *needs; /* the packages it is built with */
    /* Calls the library's wf_plugin with the host's table; NULL where that is of another
       version. */
    const void *(*enter)(void *symbol);
    int version;
} wf_plugin_ask;

/**
 * wf_plugin_find - returns the entry of a plugin, of a library that is loaded once, from
 * $WEFT_PLUGINS, beside this library or the program, or where the system looks
 *
 * Owner:   the process
 * Errors:  WF_EUNSUPPORTED, saying what it is made with; result is then NULL
 */
WF_API const void *wf_plugin_find(const wf_plugin_ask *ask, wf_error *error);

/**
 * wf_plugin_is_here - returns true where wf_plugin_find would find the library of a plugin,
 * "mpi", and what it stands on; the library stays loaded
 */
WF_API bool wf_plugin_is_here(const char *name);

WF_END_DECLS

#endif
