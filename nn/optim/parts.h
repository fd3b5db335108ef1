/*
 * nn/optim/parts.h - the parts of a parameter that ranks hold, as an update sees them which
 * needs whole rows, whole columns or one number of all of it.
 *
 *     rows = wf_nn_parts_local(wf_nn_parts_split(parts, grad, 0));   each row whole on one rank
 *
 * A sum has the bits of one rank where each of its terms' owner adds all of it: so what is
 * summed is moved first, and then added up in one order.
 */
#ifndef WF_NN_OPTIM_PARTS_H
#define WF_NN_OPTIM_PARTS_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_nn_mover - moves tensors of an optimizer between ranks: parallel gives it. */
typedef struct wf_nn_mover {
    /* Returns a layout that splits dim `to` alone, by all axes that split `of`, cut as its dim
       `dim` would be; NULL for dim -1: whole on each rank. */
    const wf_layout *(*split)(void *arg, const wf_layout *of, int dim, int to);
    /* Moves a tensor to a layout, itself where it lies so. Collective over the axes of both. */
    wf_tensor *(*move)(void *arg, wf_tensor *t, const wf_layout *to);
    void *arg;
} wf_nn_mover;

/** wf_nn_parts - the parts of one parameter, and how they move; mover NULL: they are whole. */
typedef struct wf_nn_parts {
    const wf_nn_mover *mover;
    const wf_layout *layout; /* splits the parameter's part that is updated */
} wf_nn_parts;

/**
 * wf_nn_parts_split - returns a tensor with dim `dim` alone split among the ranks that hold
 * parts of the parameter; -1: whole on each of them
 *
 * wf_nn_parts_like - returns it in the layout of another
 *
 * Ranks of one process may share what they gather, and it is the tensor itself where nothing
 * moves: an update writes to it by ops in place or by wf_data_write (core/host_data.h), which
 * give a rank memory of its own.
 *
 * Collective:  over the axes that split the parameter
 * Owner:       the innermost open scope
 * Errors:      the context's; NULL then
 */
WF_API wf_tensor *wf_nn_parts_split(const wf_nn_parts *parts, wf_tensor *t, int dim);
WF_API wf_tensor *wf_nn_parts_like(const wf_nn_parts *parts, wf_tensor *t,
                                   const wf_tensor *like);

/** wf_nn_parts_local - returns this rank's part as a tensor of its own, for ops that see no
 * other rank: dims without grains and chunks, over the same memory. Owner: the innermost open
 * scope. */
WF_API wf_tensor *wf_nn_parts_local(wf_tensor *t);

/**
 * wf_nn_parts_rms - computes the root of the mean square of a tensor's elements, the same on
 * all ranks: rows are added up where they are whole, then the sums of rows on each rank
 *
 * @param t  in any layout of the parameter; NULL after an error
 * Collective:  as wf_nn_parts_split
 * Returns:     1 in a plan and after an error
 */
WF_API float wf_nn_parts_rms(const wf_nn_parts *parts, wf_tensor *t);

WF_END_DECLS

#endif
