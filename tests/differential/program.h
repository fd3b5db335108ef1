/*
 * tests/differential/program.h - a random program over tensors, and what one rank makes of it.
 *
 * A program is a list of steps over values. Generating it runs it: each step is applied on one
 * rank as soon as it is drawn, and what one rank refuses, or what leaves the range of useful
 * numbers, is left out. Everything random is drawn there (generate.c), layouts included; a mesh
 * (run.c) follows the steps and holds its parts against these results.
 */
#ifndef WF_TESTS_DIFFERENTIAL_PROGRAM_H
#define WF_TESTS_DIFFERENTIAL_PROGRAM_H

#include "core/numerics/bf16.h"
#include "tests/differential/draw.h"
#include "tests/mesh/op_operands.h"
#include <stdatomic.h>

enum { AXES = 3, STEPS = 64, VALUES = 192, ROUNDS = 14, MODULES = 4, NOTES = 1 << 16 };

/* The placing of an axis that splits nothing. */
enum { LAYOUT_WHOLE = -1, LAYOUT_SUM = -2, LAYOUT_MAX = -3 };

/* The target of each axis: a dim, or a letter of a signature; and the order in which they are
   added. */
typedef struct placing {
    int8_t at[AXES], order[AXES];
} placing;

/* A mesh, and how its contexts are opened. */
typedef struct world {
    int n_axes, size[AXES], ranks;
    int fine; /* the axis that is cut finely, or -1 */
    int threads;
    bool exact_off;
} world;

/* Which cases, and what is left out of them to make them smaller. */
typedef struct selection {
    uint64_t seed;
    int64_t first, count;
    uint64_t drop;    /* rounds that are left out, a bit each */
    int largest;      /* bounds all sizes of dims; 0: no limit */
    int largest_axis; /* bounds all axes; 0: no limit */
} selection;

typedef enum step_kind {
    STEP_LEAF,  /* a tensor from plain memory */
    STEP_REUSE, /* another leaf of the same parameter */
    STEP_MOVE,  /* the same value in another layout */
    STEP_APPLY  /* an op */
} step_kind;

/* The way operands or a value get into the layout that was drawn. */
typedef enum way {
    WAY_AS_IS,
    WAY_REDISTRIBUTE,
    WAY_MANY,
    WAY_KEEP_ORIGIN,
    WAY_BORDER, /* a move on one axis alone */
    WAY_LOCAL,  /* a move to each rank's own part and back */
    WAYS
} way;

typedef struct step {
    step_kind kind;
    int round;
    const wf_op *op;
    op_attr attr;
    int rest; /* number of dims of "..." */
    int n_in, in[WF_MAX_INPUTS];
    int n_out, out[WF_MAX_OUTPUTS];
    placing to;
    bool tied; /* members of a group, or heads and their groups, are split alike */
    way way;
    int axis;      /* WAY_BORDER's */
    uint64_t key;  /* the key of a leaf's numbers */
    bool positive; /* they are */
    int module;    /* the module that the step is in, counted from 1; 0: none */
} step;

/* A value on one rank. */
typedef struct value {
    wf_tensor *one;
    wf_dtype dtype;
    int ndim;
    wf_dim dim[WF_MAX_DIMS];
    int64_t count;
    void *whole;
    int source; /* the value that is the same tensor on one rank: its uses are counted there */
    int uses;
    int below;    /* integers are all less */
    double terms; /* the sum of absolute terms of a number on the way to the root */
    bool wanted;  /* a leaf whose gradient is compared */
    bool hidden;  /* made in a module, whose result is another value */
    /* the gradient of a leaf, and the parameter after an update; NULL where there is none */
    wf_tensor *grad;
    wf_dtype grad_dtype;
    int64_t grad_count;
    void *grad_whole, *updated;
} value;

/*
 * A part of a program that a mesh runs as a module under activation checkpointing: the input
 * alone is kept, and backward recomputes it. On one rank it is steps like others.
 */
typedef struct submodule {
    int first, end; /* steps; leaves among them are made before it runs */
    int in, out;    /* values */
} submodule;

typedef struct program {
    const world *world;
    int64_t number;
    wf_dtype storage;
    bool strict;   /* every operand passes a border, so that no gradient may be refused */
    bool deferred; /* gradients of weights in a walk of their own */
    int n_steps, n_values;
    step step[STEPS];
    value value[VALUES];
    int n_modules;
    submodule module[MODULES];
    int root, seed; /* the start of backward; -1: there is none */
    wf_status backward;
    char backward_text[WF_ERROR_TEXT];
    int update;     /* the leaf that an optimizer changes, or -1 */
    bool adam;      /* by AdamW, else by SGD */
    bool overwrite; /* each gradient is written over when it has been compared */
} program;

/* A child's reports to its parent, in shared memory. */
typedef struct board {
    _Atomic int64_t number; /* the case that runs */
    _Atomic int beat;       /* grows with every step */
    _Atomic int on_mesh, failed;
    _Atomic int64_t of[256]; /* ops that ran on the mesh, by their row */
    _Atomic int64_t applied, refused, bits, close, backwards, backwards_refused;
    char why[1024];
    size_t n_notes;
    char notes[NOTES]; /* the program so far, in words */
} board;

extern const wf_op weigh_op;

/* The letters of a call by its signature, "..." being `rest` letters from 26 on. */
typedef struct pattern {
    int n_in, n_out;
    int ndim[WF_MAX_INPUTS];
    int8_t letter[WF_MAX_INPUTS][WF_MAX_DIMS];
    uint32_t letters, whole; /* the letters of operands; those marked "!" */
    uint32_t contracted;
} pattern;

pattern pattern_of(const wf_op *op, int rest);

/* Who draws a program: from these numbers, in this round of it. */
typedef struct maker {
    program *p;
    wf_context *ctx;
    const selection *what;
    board *b;
    draw d;
    int round;
    submodule *inside; /* the module that is drawn, or NULL */
} maker;

/* generate.c */
/* Returns true for rows that programs draw; the others need what another op gave them. */
bool is_drawn(const wf_op *op);
void draw_world(const selection *what, int64_t number, world *w);
/* Draws and runs a program on one rank, whose context has nothing open; false where it
   cannot. */
bool generate(wf_context *ctx, const selection *what, const world *w, int64_t number,
              program *p, board *b);
void forget_program(program *p);
/* Runs the step that was appended last; takes it back where its result is of no use. */
bool run_on_one(maker *m);
/* One more move of a value. */
bool draw_move(maker *m);
/* One more op, a row of the table. */
bool draw_row(maker *m);

/* modules.c */
/* Some more steps, as a module; fewer, or steps like others, where that fails. */
void draw_module(maker *m);
/* Returns true where the step that is drawn next may take a value. */
bool within_reach(const maker *m, int id);

/* attributes.c */
void draw_attributes(maker *m, step *s);

/* operands.c */
/* Appends a step whose outputs are the next values; NULL where the program is full. */
step *append(maker *m, step s);
/* Maps each axis to one of n dims, or to none, or to a sum if that may be. */
placing draw_placing(const program *p, draw *d, int n, const int *indices);
placing draw_dim_layouts(const program *p, draw *d, int ndim, bool partial);
/* A new leaf; -1 where there is no room. */
int make_leaf(maker *m, wf_dtype dtype, int ndim, const wf_dim *dims, int below, bool positive);
/* One more op, its operands found among the values or made; false where that fails. */
bool draw_apply(maker *m, const wf_op *op);

/* apply.c: what a step does, on one rank and on many. */
wf_status apply(const step *s, wf_context *ctx, wf_tensor *const *in, wf_tensor **out);
float leaf_number(const step *s, wf_dtype dtype, int below, int64_t index, int member,
                  int members);
/* A leaf's element of the whole: its shares folded over the axes on which it is partial. */
float leaf_element(const step *s, const world *w, const value *v, int64_t index);
int partial_members(const placing *at, const world *w);
/* The gradient of a leaf that may have a row per sequence, without these. */
wf_tensor *whole_vector(const wf_tensor *leaf, wf_tensor *grad);
/* Makes one step of the program's optimizer, from moments that are drawn, in place. */
wf_status optimize(const program *p, wf_tensor *parameter, wf_tensor *gradient);

/* run.c */
wf_status run_program(wf_rank *rank, wf_mesh *mesh, const program *p, board *b);

/* promise.c: calls whose results have the bits of one rank for certain; moves that keep
   them. */
bool certainly_exact(const wf_call *call);
bool move_keeps_bits(const wf_layout *from, const wf_layout *to);

/* compare.c */
double element_of(wf_dtype dtype, const void *data, int64_t i);
/* Returns how far elements may be from those of a whole tensor, or from a number with such a
   sum of absolute terms. */
double tolerance(wf_dtype dtype, const void *whole, int64_t count, double terms,
                 bool stored_half);
/* This rank's part of a tensor against the whole; most: 0 where bits are compared. NULL where
   they agree, else what differs. */
const char *differs(const wf_tensor *t, wf_dtype dtype, const void *whole, double most,
                    char text[256]);

/* trial.c */
void note(board *b, const char *format, ...) WF_PRINTF(2, 3);
void fail_case(board *b, const char *format, ...) WF_PRINTF(2, 3);

#endif
