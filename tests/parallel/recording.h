/* tests/parallel/recording.h - what recorded_files.c writes down, and crashed_disk.c reads. */
#ifndef WF_TESTS_PARALLEL_RECORDING_H
#define WF_TESTS_PARALLEL_RECORDING_H

#include "tests/parallel/recorded_files.h"
#include <pthread.h>

enum { MOST_OPS = MOST_RECORDED, MOST_NODES = 128 };

typedef enum op_kind {
    OP_WRITE,  /* bytes at an offset of a file */
    OP_RESIZE, /* a file */
    OP_SYNC,   /* a file or a directory */
    OP_LINK,   /* a new name in a directory, of a file or a directory */
    OP_RENAME, /* within a directory; the new name may have been there */
    OP_UNLINK
} op_kind;

typedef struct op {
    op_kind kind;
    int node;  /* the file, or the directory whose names change */
    int other; /* LINK: what gets the name */
    int64_t at, n;
    char *bytes;
    char name[64], to[64];
} op;

/* Files and directories, by number. Node 0 is the directory of checkpoints. */
typedef struct node {
    char path[256]; /* its path now; "": none */
    bool directory;
} node;

/* All that was recorded since record_files. */
typedef struct record {
    pthread_mutex_t lock;
    int nodes, ops;
    node node[MOST_NODES];
    op op[MOST_OPS];
    int of_fd[4096]; /* node of an open file */
} record;

extern record recorded;

#endif
