/*
 * nn/optim/method.h - an optimizer as a row: what it keeps of each parameter, and its update.
 * Weft's own rows are in methods.def; wf_nn_method_of registers one of yours, which then has a
 * number and a word like them: for options, plans, checkpoints, redundancy and --optimizer.
 *
 *     static void lion(const wf_update *u, int64_t n, float *p, const float *g, float *const
 *     *s) ...
 *     static const wf_nn_method_row row = {"my-lion", .states = 1, .elements = lion};
 *     options.optimizer = (wf_nn_optimizer_options){wf_nn_method_of(&row), 0.9f, 0.99f};
 */
#ifndef WF_NN_OPTIM_METHOD_H
#define WF_NN_OPTIM_METHOD_H

#include "kernels/parameters.h"
#include "nn/optim/parts.h"

WF_BEGIN_DECLS

typedef enum wf_nn_method {
    WF_NN_ADAMW,
    WF_NN_SGD,
    WF_NN_MUON, /* matrices along orthogonalised momenta (nn/optim/muon.h), all else AdamW */
    /* AdamW, whose moments of matrices are stored in 8 bits (core/numerics/dynamic8.h) */
    WF_NN_ADAMW8BIT,
    WF_NN_LION,     /* along the sign of a momentum (Chen et al. 2023) */
    WF_NN_LION8BIT, /* the same, with momenta of matrices in 8 bits */
    /* second moments of rows and of columns alone (Shazeer & Stern 2018) */
    WF_NN_ADAFACTOR,
    WF_NN_METHODS, /* rows of Weft's own; those that are registered come after them */
    WF_NN_NO_METHOD = -1
} wf_nn_method;

enum {
    WF_NN_STATES =
        WF_UPDATE_STATES, /* tensors that an optimizer keeps of a parameter, at most */
    WF_NN_MOST_METHODS = 64
};

/* Hyper-parameters that a row reads, which are then checked. */
enum { WF_NN_USES_BETA1 = 1, WF_NN_USES_BETA2 = 2, WF_NN_USES_EPS = 4 };

/** wf_nn_matrix_update - the update of matrices that an optimizer needs whole: parameters with
 * .matrix, whatever ranks hold of them. Each part of a direction is made where it is, whole
 * ones go to one rank each, and come back. */
typedef struct wf_nn_matrix_update {
    int states;       /* tensors that are kept of a matrix, 0 to WF_NN_STATES */
    bool needs_beta1; /* without momentum it keeps none */
    /* Fills the direction of any part from its gradient, and updates its states, if it has
       any. */
    wf_status (*direction)(const wf_update *u, wf_tensor *grad, wf_tensor *const *state,
                           wf_tensor *direction);
    /* Changes a whole direction in place, on one rank alone; `direction` has no layout. */
    wf_status (*whole)(wf_tensor *direction);
    /* Updates any part of a matrix, by that part of what became of its direction. */
    wf_status (*apply)(const wf_update *u, wf_tensor *t, wf_tensor *direction);
} wf_nn_matrix_update;

typedef enum wf_nn_state_kind {
    WF_NN_STATE_NONE,     /* there is none of this parameter */
    WF_NN_STATE_LIKE,     /* has the parameter's shape, split as the optimizer's state is */
    WF_NN_STATE_MOMENTUM, /* has it too, and is there where beta1 is above 0 */
    WF_NN_STATE_OWN       /* has a shape of its own */
} wf_nn_state_kind;

/** wf_nn_state_shape - the form of one state of a parameter. */
typedef struct wf_nn_state_shape {
    wf_nn_state_kind kind;
    /* sets, with WF_NN_STATE_OWN, its dims; that which all axes split that split the parameter;
       and the parameter's dim that is cut alike (wf_nn_parts_split) */
    int ndim, split, like;
    wf_dim dim[WF_MAX_DIMS];
} wf_nn_state_shape;

/** wf_nn_method_row - an optimizer. An update is by elements, so that any layout has the same
 * bits, or of parts that move to where sums are whole: one of `elements`, `update` and
 * `together`. */
typedef struct wf_nn_method_row {
    const char *name; /* as users write it */
    /* tensors that it keeps of a parameter, of its shape where `shape` is NULL; they begin as
       zeros */
    int states;
    /* Returns the form of state k of a parameter of these dims; with `together` alone. */
    wf_nn_state_shape (*shape)(int k, int ndim, const wf_dim *dims);
    /* their types: WF_F32, which is 0, or of matrices with rows of at least 16 elements
       WF_DYNAMIC8 or WF_DYNAMIC8U (numbers without signs), 8 bits a number */
    wf_dtype state[WF_NN_STATES];
    unsigned uses;    /* WF_NN_USES_BETA1, .. */
    bool needs_beta1; /* without momentum, beta1 = 0, it keeps no states */
    wf_update_run *elements;
    wf_status (*update)(const wf_update *u, wf_tensor *t, wf_tensor *grad,
                        wf_tensor *const *state);
    /* Updates a parameter's part on every rank that holds one; collective over them. */
    wf_status (*together)(const wf_update *u, const wf_nn_parts *parts, wf_tensor *t,
                          wf_tensor *grad, wf_tensor *const *state);
    const wf_nn_matrix_update *matrix; /* NULL: matrices are updated like all else */
    /* its ops may be run by a CUDA graph: the host reads none of their results, what they take
       of wf_update is marked in theirs (step_lr, step_scale), and `elements` is a function of
       kernels/parameters.h */
    bool captured;
} wf_nn_method_row;

/**
 * wf_nn_method_of - registers an optimizer, in a process once
 *
 * @param row  kept, not copied: static
 * Returns: its number, the same for the same row; WF_NN_NO_METHOD where it has no name or that
 *          of another row, or where WF_NN_MOST_METHODS are registered. Any thread may call it
 */
WF_API wf_nn_method wf_nn_method_of(const wf_nn_method_row *row);

/** wf_nn_method_find - returns the number of the row of this name, or WF_NN_NO_METHOD. */
WF_API wf_nn_method wf_nn_method_find(const char *name);

/** wf_nn_method_row_of - returns a row by its number; NULL: there is none. */
WF_API const wf_nn_method_row *wf_nn_method_row_of(wf_nn_method method);

/** wf_nn_method_names - writes the names of all rows, "adamw, sgd or muon"; returns text. */
WF_API char *wf_nn_method_names(char *text, size_t size);

WF_END_DECLS

#endif
