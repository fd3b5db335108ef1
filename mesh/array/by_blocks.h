/* mesh/array/by_blocks.h - borders whose rows move in blocks, beside products. */
#ifndef WF_MESH_ARRAY_BY_BLOCKS_H
#define WF_MESH_ARRAY_BY_BLOCKS_H

#include "mesh/array/mesh.h"

WF_BEGIN_DECLS

/**
 * wf_row_blocks - returns in how many blocks rows move beside products, where tokens of a
 * sequence divide as they have to: 1 to 8
 *
 * @param bytes      of all rows
 * @param least      bytes that a block has at least
 * @param sequences  that the rows are of: several move whole
 */
WF_API int wf_row_blocks(double bytes, size_t least, int64_t sequences);

/**
 * wf_border_by_blocks - makes a border of one tensor beside products, where
 * wf_context_options.row_block says so: wf_border_over, in blocks of rows that move while
 * products are computed (asynchronous tensor parallelism)
 *
 * Rows [b, t] of x [b, t, n] that are gathered come later (core/later.h): a product takes them
 * block by block. A product that is asked for here (wf_results_later) is computed and summed
 * over ranks block by block; so is its gradient's. Anything else moves as in wf_border_over.
 *
 * Memory:     beside the result, two blocks; of a product that is summed no more than these
 * Errors:     as wf_border_over
 */
WF_API wf_tensor *wf_border_by_blocks(unsigned axes, wf_tensor *x, const wf_layout *to);

WF_END_DECLS

#endif
