/* tests/differential/run.h - one rank's run of a program on a mesh. */
#ifndef WF_TESTS_DIFFERENTIAL_RUN_H
#define WF_TESTS_DIFFERENTIAL_RUN_H

#include "nn/checkpointing.h"
#include "tests/differential/program.h"

typedef struct run run;

/* A part of the program as a module, so that backward can recompute it. */
typedef struct recomputed {
    wf_nn_module module;
    run *r;
    const submodule *part;
} recomputed;

struct run {
    wf_rank *rank;
    wf_mesh *mesh;
    wf_context *ctx;
    const program *p;
    board *b;
    wf_tensor *value[VALUES];
    bool rough[VALUES]; /* summed in another order than on one rank: close, not equal */
    bool rough_now, rough_any, rough_back;
    bool fell_back;      /* an operand passed a border that one rank has not */
    bool again;          /* a module is recomputed, and does the same */
    int8_t tried[STEPS]; /* the attempt that went well */
    recomputed recomputed[MODULES];
    uint64_t reported; /* every refusal, in one number: alike on all ranks */
};

/* layouts.c */
const wf_layout *layout_of_dims(const run *r, const placing *to, int ndim);
const wf_layout *layout_of_operand(const run *r, const step *s, int i);

/* steps.c: runs a step; anything but WF_OK ends the world. */
wf_status run_step(run *r, int k);
/* modules.c: all of a module's steps, from its first one. */
wf_status run_module(run *r, const submodule *part);
/* A refusal whose text must be the same on all ranks; an error where the failure is another
   one. */
wf_status note_refusal(run *r, const char *what);

#endif
