/*
 * nn/layers/mlp_tiled_internal.h - a pass of an MLP over a rank's tokens, tile by tile: between
 * the op (mlp_tiled.c, mlp_tiled_grad.c) and one tile (mlp_tile.c). Not installed.
 */
#ifndef WF_NN_LAYERS_MLP_TILED_INTERNAL_H
#define WF_NN_LAYERS_MLP_TILED_INTERNAL_H

#include "nn/layers/mlp_internal.h"
#include "nn/layers/tiles_internal.h"

enum { WF_MLP_FIRST = 2 }; /* first linears, at most: gate and up */

/*
 * The operands of the op: x, the first weights, the last one, biases of the first, and of each
 * linear that has an adapter
 *
 *     a first one   u = x A^T as it is added, and B
 *     the last one  A; its u is a result, since features are made of a tile alone
 */
typedef struct wf_nn_mlp_operands {
    int first;                  /* first linears */
    bool bias;                  /* they have biases */
    bool adapted[WF_MLP_FIRST]; /* those of the first that have adapters */
    bool adapts_last;
} wf_nn_mlp_operands;

enum { WF_MLP_X, WF_MLP_WEIGHT };

/* Matrices: those of the first linears, then the last one's weight, B of the first ones'
   adapters, A of the last one's. */
enum {
    WF_MLP_DOWN = WF_MLP_FIRST,
    WF_MLP_B,
    WF_MLP_A = WF_MLP_B + WF_MLP_FIRST,
    WF_MLP_MATRICES
};

static inline int wf_nn_mlp_down(const wf_nn_mlp_operands *o)
{
    return WF_MLP_WEIGHT + o->first;
}

static inline int wf_nn_mlp_bias(const wf_nn_mlp_operands *o, int i)
{
    return WF_MLP_WEIGHT + o->first + 1 + i;
}

/* The operand u of first linear i, before its B; i may be the number of first linears. */
static inline int wf_nn_mlp_u(const wf_nn_mlp_operands *o, int i)
{
    int at = wf_nn_mlp_bias(o, o->bias ? o->first : 0);

    for (int before = 0; before < i; before++)
        at += o->adapted[before] ? 2 : 0;
    return at;
}

static inline int wf_nn_mlp_a(const wf_nn_mlp_operands *o)
{
    return wf_nn_mlp_u(o, o->first);
}

static inline int wf_nn_mlp_operand_count(const wf_nn_mlp_operands *o)
{
    return wf_nn_mlp_a(o) + (o->adapts_last ? 1 : 0);
}

/* Returns the operand that matrix m is, or -1: it has none. */
static inline int wf_nn_mlp_matrix(const wf_nn_mlp_operands *o, int m)
{
    if (m == WF_MLP_DOWN)
        return wf_nn_mlp_down(o);
    if (m == WF_MLP_A)
        return o->adapts_last ? wf_nn_mlp_a(o) : -1;
    if (m < WF_MLP_DOWN)
        return m < o->first ? WF_MLP_WEIGHT + m : -1;
    return o->adapted[m - WF_MLP_B] ? wf_nn_mlp_u(o, m - WF_MLP_B) + 1 : -1;
}

/* One pass over a rank's tokens. */
typedef struct wf_nn_mlp_pass {
    const wf_nn_mlp *mlp;
    wf_nn_mlp_operands of;
    wf_tensor *const *in; /* the op's operands */
    wf_nn_tiles tiles;
    wf_nn_tiled x, y, dy, dx;
    wf_nn_tiled u[WF_MLP_FIRST], du[WF_MLP_FIRST]; /* u of the first linears' adapters */
    wf_nn_tiled last, dlast;                       /* h A^T of the last one's, as it is made */
    unsigned wants;
    bool again; /* features are made a second time, and do not count as the model's work */
    wf_nn_vector_grad db[WF_MLP_FIRST];
    wf_tensor *dw_rows[WF_MLP_MATRICES]; /* a row per sequence, where gradients come in rows */
} wf_nn_mlp_pass;

static inline bool wf_nn_mlp_wants(const wf_nn_mlp_pass *p, int operand)
{
    return operand >= 0 && p->wants >> operand & 1;
}

/* Returns whether matrix m is there and has a gradient. */
static inline bool wf_nn_mlp_wants_matrix(const wf_nn_mlp_pass *p, int m)
{
    return wf_nn_mlp_wants(p, wf_nn_mlp_matrix(&p->of, m));
}

/* The attributes of the op. */
typedef struct wf_nn_mlp_attr {
    wf_nn_mlp *mlp;
    wf_nn_mlp_operands of;
    unsigned wants; /* a bit for each operand that has a gradient */
} wf_nn_mlp_attr;

/* The op that the tape has: y, and where the last linear has an adapter, its u. */
extern const wf_op wf_nn_mlp_tiled_op;

/* Returns true where nothing is computed. */
bool wf_nn_mlp_is_fake(const wf_nn_mlp_pass *p);

/* Makes a tensor like t, which is fake, or leaves it so. */
wf_tensor *wf_nn_mlp_room(const wf_nn_mlp_pass *p, wf_memory_kind kind, wf_tensor *t);

/* Returns a tensor like t without data. */
wf_tensor *wf_nn_mlp_fake(const wf_tensor *t);

/* Chooses the tiles of a pass that has its operands, and shows these in them. */
void wf_nn_mlp_choose_tile(wf_nn_mlp_pass *p);

/* Returns the features of pieces [first, first + count) that the last linear takes, [rows,
   tokens, hidden]. */
wf_tensor *wf_nn_mlp_tile_features(const wf_nn_mlp_pass *p, int64_t first, int64_t count);

/* Goes back through pieces [first, first + count); dw[i]: the sums of earlier nodes, which
   become theirs and this. */
void wf_nn_mlp_tile_back(const wf_nn_mlp_pass *p, int64_t first, int64_t count, wf_tensor **dw);

#endif
