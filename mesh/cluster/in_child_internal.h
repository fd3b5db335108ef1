/*
 * mesh/cluster/in_child_internal.h - runs what reads a foreign file in a child process: a
 * library that does not survive a hostile one ends the child, and its time and memory have a
 * limit. Not installed.
 */
#ifndef WF_MESH_CLUSTER_IN_CHILD_INTERNAL_H
#define WF_MESH_CLUSTER_IN_CHILD_INTERNAL_H

#include "core/status.h"
#include <stddef.h>
#include <stdio.h>

/* Reads, and writes its result to `out`. */
typedef wf_status wf_child_body(void *arg, FILE *out, wf_error *error);

/**
 * wf_in_child - runs `body` in a child process
 *
 * @param what    name of the input, for messages
 * @param result  bytes that `body` has written, `most` at most; to be freed. Not trusted: a
 *                hostile input may control the child
 * Errors:        those of body; WF_EIO where the child crashes, takes longer than
 *                WF_CHILD_SECONDS or writes too much; WF_ENOMEM
 */
wf_status wf_in_child(const char *what, wf_child_body *body, void *arg, size_t most,
                      char **result, size_t *bytes, wf_error *error);

enum { WF_CHILD_SECONDS = 20 };

#endif
