/*
 * core/later.h - tensors whose rows come later, block by block: rows that are on their way
 * from other ranks, and rows of a product that are computed when they are asked for.
 *
 * Such a tensor is absent (wf_tensor_absent) until all of it is there. An op each row of whose
 * results is made of the same row of its operands (WF_OP_ROWS) takes operand 0 block by block,
 * so that a block moves while the one before it is computed. Whatever else reads the tensor
 * waits for all of it, so results are those of a tensor that is there at once.
 */
#ifndef WF_CORE_LATER_H
#define WF_CORE_LATER_H

#include "core/op.h"
#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_row_runs - rows of a tensor [.., n], counted over all dims before the last: `parts` runs
 * of `rows` rows, which begin `step` rows after each other, the first one at `first`. */
typedef struct wf_row_runs {
    int64_t first, rows, step;
    int parts;
} wf_row_runs;

/** wf_later - rows that come from elsewhere; functions of what brings them. */
typedef struct wf_later {
    int blocks; /* these, in order */
    /* Returns the rows of block i. */
    wf_row_runs (*runs)(const struct wf_later *self, int i);
    /* Waits for block i, each once; returns its rows, one after the other, until the next one
       is asked for; NULL on errors, which are in the context. */
    wf_tensor *(*bring)(struct wf_later *self, int i);
    /* Waits for what has not been asked for; returns a tensor with all rows, whose memory is
       taken from it; NULL on errors. */
    wf_tensor *(*all)(struct wf_later *self);
    /* Ends what is under way, and frees. */
    void (*end)(struct wf_later *self);
} wf_later;

/**
 * wf_later_tensor - makes a tensor whose rows come later
 *
 * @param later  freed with the tensor, or when all rows are there; on errors at once
 * Owner:        the innermost open scope
 * Errors:       WF_ESHAPE, WF_ENOMEM; result is then NULL
 */
WF_API wf_tensor *wf_later_tensor(wf_context *ctx, wf_dtype dtype, int ndim, const wf_dim *dims,
                                  const wf_layout *layout, wf_later *later);

/** wf_is_later - returns true where rows of t are still to come. */
WF_API bool wf_is_later(const wf_tensor *t);

/**
 * wf_later_come - waits for the rows of a tensor that come later; one that is there, and NULL,
 * are good as they are
 *
 * Collective:  where its rows come from other ranks
 * Errors:      those of what brings them
 */
WF_API wf_status wf_later_come(wf_tensor *t);

/**
 * wf_results_later - says that what takes results of products from now on may ask for them
 * block by block: a product by rows (WF_OP_ROWS) whose result is a partial sum [b, t, n] is
 * then not computed before that, where wf_context_options.row_block says so
 *
 * Returns: what was said last, to be said again after the product
 */
WF_API bool wf_results_later(wf_context *ctx, bool later);

/** wf_is_product_later - returns true where rows of t are those of a product that is still to
 * be computed. */
WF_API bool wf_is_product_later(const wf_tensor *t);

/**
 * wf_product_rows - computes rows of such a product
 *
 * @param t     its result
 * @param runs  some of its rows
 * @param into  takes them, one after the other: [b, t, n] of t's type, with as many
 * Errors:      WF_ENOMEM, those of the kernel
 */
WF_API wf_status wf_product_rows(wf_tensor *t, const wf_row_runs *runs, wf_tensor *into);

/** wf_rows_put - copies rows, which lie one after the other in `from`, to these rows of `to`;
 * nothing in a plan. Both are of one type and have as long rows. */
WF_API void wf_rows_put(wf_tensor *to, const wf_row_runs *runs, const wf_tensor *from);

WF_END_DECLS

#endif
