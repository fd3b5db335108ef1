/* apps/gpt_train/step_record.h - what a rank does in a planned step: its ops, collectives and messages, and what each waits for. */
#ifndef WF_APPS_STEP_RECORD_H
#define WF_APPS_STEP_RECORD_H

#include "apps/gpt_train/dry_run.h"

/* STEP_TREE: messages of the world, in which ranks agree: a rank receives from ranks 2 r + 1 and 2 r + 2, and sends to (r - 1) / 2. */
typedef enum step_node_kind {
    STEP_OP,
    STEP_COLLECTIVE,
    STEP_SEND,
    STEP_RECV,
    STEP_TREE
} step_node_kind;

/* Numbers of nodes are their places in the record, in the order in which the rank begins them. */
typedef struct step_node {
    step_node_kind kind;
    char *name;               /* "F0.3 matmul block.2.mlp", "all_gather shard" */
    const char *op;           /* a collective's; static */
    double operations, bytes; /* an op's: FLOPs, or else elements; bytes through memory */
    double seconds;           /* on the machine; 0 without one */
    int axis;                 /* the mesh's, whose group it is; the number of axes: the world */
    int peer;                 /* a message's, or a broadcast's: a rank of the world */
    int64_t brings, receives; /* bytes, as core/journal.h has them */
    size_t element;           /* bytes of one */
    uint64_t tag;             /* a message has one */
    int64_t
        first_wait; /* in the record's waits: nodes that are over when this one begins, .. */
    int waits;      /* .. so many, which imply all others */
    int64_t behind; /* the collective before it in its group, which goes on in order; -1 */
} step_node;

typedef struct step_record {
    step_node *node;
    int64_t count;
    int64_t *wait, waits;
    int axes;                   /* the mesh's, .. */
    int axis_size[WF_MAX_AXES]; /* .. the outermost first */
    char axis_name[WF_MAX_AXES][WF_AXIS_NAME];
    int ranks, rank;
} step_record;

/* Plan a step of a rank, and write it down. `mesh` is any record of the same options, or an empty one: then the mesh takes a plan
   of its own. Owner: caller, step_record_free, also of a failed one. */
wf_status step_record_make(const app_options *options, const wf_sim_machine *machine, int rank,
                           const step_record *mesh, step_record *record, wf_error *error);
void step_record_free(step_record *record);

/* Whether two ranks of a pipeline coordinate do the same, but for whom they do it with. */
bool step_record_alike(const step_record *a, const step_record *b);

/* The bytes that another rank of the coordinate receives in a node. */
int64_t step_record_received(const step_record *record, const step_node *node, int rank);

/* The number of a group, which all its members find and no other group has, and its first member and their distance, as
   rank `rank` has it. */
int step_record_group(const step_record *record, int axis, int rank, int *first, int *stride);

#endif
