/* parallel/plan/record_internal.h - what a rank does in a planned step: its ops, collectives
   and messages, and what each waits for. */
#ifndef WF_PARALLEL_PLAN_RECORD_INTERNAL_H
#define WF_PARALLEL_PLAN_RECORD_INTERNAL_H

#include "parallel/plan/request.h"

/* WF_STEP_TREE: messages of the world, in which ranks agree: a rank receives from ranks 2 r + 1
   and 2 r + 2, and sends to (r - 1) / 2. */
typedef enum wf_step_node_kind {
    WF_STEP_OP,
    WF_STEP_COLLECTIVE,
    WF_STEP_SEND,
    WF_STEP_RECV,
    WF_STEP_TREE
} wf_step_node_kind;

/* Numbers of nodes are their indices in the record, in the order in which the rank begins
   them. */
typedef struct wf_step_node {
    wf_step_node_kind kind;
    char *name;               /* "F0.3 matmul block.2.mlp", "all_gather shard" */
    const char *op;           /* a collective's; static */
    double operations, bytes; /* an op's: FLOPs, or else elements; bytes through memory */
    double seconds;           /* on the machine; 0 without one */
    int axis;                 /* the mesh's, whose group it is; the number of axes: the world */
    int peer;                 /* a message's, or a broadcast's: a rank of the world */
    int64_t brings, receives; /* bytes, as core/oplog.h has them */
    size_t element;           /* bytes of one */
    uint64_t tag;             /* a message has one */
    /* in the record's waits: nodes that are over when this one begins, .. */
    int64_t first_wait;
    int waits;     /* .. their number; they imply all others */
    int64_t after; /* the collective before it in its group, which runs in order; -1 */
} wf_step_node;

typedef struct wf_step_record {
    wf_step_node *node;
    int64_t count;
    int64_t *wait, waits;
    int axes;                   /* the mesh's, .. */
    int axis_size[WF_MAX_AXES]; /* .. the outermost first */
    char axis_name[WF_MAX_AXES][WF_AXIS_NAME];
    int ranks, rank;
} wf_step_record;

/* Plan a step of a rank, and write it down. `mesh` is any record of the same options, or an
   empty one: then the mesh takes a plan of its own. Owner: caller, wf_step_record_free, also of
   a failed one. */
wf_status wf_step_record_make(const wf_plan_request *options, const wf_sim_machine *machine,
                              int rank, const wf_step_record *mesh, wf_step_record *record,
                              wf_error *error);
void wf_step_record_free(wf_step_record *record);

/* Returns true where two ranks of a pipeline coordinate do the same, with partners of their
   own. */
bool wf_step_record_alike(const wf_step_record *a, const wf_step_record *b);

/* The bytes that another rank of the coordinate receives in a node. */
int64_t wf_step_record_received(const wf_step_record *record, const wf_step_node *node,
                                int rank);

/* The number of a group, which all its members find and no other group has, and its first
   member and their distance, as rank `rank` has it. */
int wf_step_record_group(const wf_step_record *record, int axis, int rank, int *first,
                         int *stride);

#endif
