/*
 * mesh/transport/plugin_internal.h - a transport in a shared library of its own,
 * libweft_<name>.so, so that one program runs with and without what the transport stands on.
 * The library exports one symbol, wf_plugin, and links to nothing of Weft: what it needs is in
 * the host's table.
 */
#ifndef WF_MESH_TRANSPORT_PLUGIN_INTERNAL_H
#define WF_MESH_TRANSPORT_PLUGIN_INTERNAL_H

#include "mesh/comm/transport_internal.h"
#include "mesh/transport/launcher.h"
#include <pthread.h>

/* To be raised with every change to what a plugin and its host share: this file,
   mesh/comm/transport_internal.h. */
enum { WF_PLUGIN_VERSION = 10 };

typedef struct wf_plugin_host {
    size_t size; /* bytes of this table; first, so that it can always be read */
    int version;
    wf_launcher launcher; /* the launcher of this process */

    wf_status (*error_set)(wf_error *error, wf_status code, const char *format, ...)
        WF_PRINTF(3, 4);
    const char *(*error_after_rank)(const wf_error *error, int rank, const char **colon);
    void (*comm_init)(wf_comm *comm, const wf_transport *transport, const char *name, int rank,
                      int size, const int *members);
    bool (*fingerprint_same)(const wf_fingerprint *a, const wf_fingerprint *b);
    bool (*fingerprint_meets)(const wf_fingerprint *send, const wf_fingerprint *recv);
    void (*fingerprint_differ)(const wf_comm *comm, uint64_t call, const wf_fingerprint *mine,
                               int other, const wf_fingerprint *theirs, char *text,
                               size_t room);
    int (*thread_start)(pthread_t *thread, const pthread_attr_t *attributes,
                        void *(*run)(void *arg), void *arg); /* core/thread.h */
    void *(*blocks_take)(wf_blocks *blocks, size_t bytes);
    void (*blocks_give)(wf_blocks *blocks, void *block, size_t bytes);

    /* The transport between the ranks of one process, and their world. */
    const wf_transport *threads;
    wf_status (*threads_open)(int ranks, const int *number, bool own_cores, void **world,
                              wf_error *error);
    const wf_transport *(*transport_find)(const char *name, wf_error *error);
    void (*threads_abort)(void *world, int rank, const wf_error *cause); /* from any thread */
} wf_plugin_host;

/* The function that a plugin exports as "wf_plugin": returns its transport, or NULL where size
   or version is not its own. */
typedef const wf_transport *wf_plugin_entry(const wf_plugin_host *host);

/* Load libweft_<name>.so once, from $WEFT_PLUGINS, beside this library or the program, or where
   the system looks; NULL and an error that says what it is made with. */
const wf_transport *wf_plugin_load(const char *name, const char *needs, wf_error *error);

#endif
