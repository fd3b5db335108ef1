/*
 * tests/cuda/op_rows.h - rows of kernels/ops.def as cases: operands are drawn, the kernel is
 * checked against the reference, once more at other addresses, and in parts (device_parts.h).
 *
 * A case names its operands by their dims: a letter before the colon says how they are stored,
 * those after it are dims of a shape. Dims that are split one after another follow from the
 * letters.
 */
#ifndef WF_TESTS_CUDA_OP_ROWS_H
#define WF_TESTS_CUDA_OP_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * a: an activation, f32 or bf16     v: a vector of a layer, stored like activations
 * w: the same, the other way        f: f32                    p: f32 above zero
 * i: i32 below the vocabulary       t: the same, or -1     z: f32 above zero, or 0
 */
typedef struct op_row {
    const char *op, *in, *out, *splits;
    const void *attr;
    size_t attr_size;
} op_row;

/* b sequences, s tokens, d width, n features that are split, h heads, e of a head, v words, p >
   s positions, q twice as many, 1 one */
typedef struct row_shape {
    int64_t b, s, d, n, h, e, v;
} row_shape;

enum { ROW_SHAPES = 5 };
extern const row_shape row_shapes[ROW_SHAPES];

/* One case of one shape, in the open context; parts_too: also split. */
void try_row(const op_row *r, const row_shape *s, bool bf16, bool parts_too);

/* All cases, up to one without a name, as f32 and as bf16, in all shapes, in a context of their
   own. */
void try_rows(const op_row *rows);

/* The rows of kernels/expressions.def, with gradients written out and not, and those of one
   operand. */
void try_elements(void);
void try_expressions(void);
void try_expressions_of_one(void);

/* A row was tried in another way. */
void row_is_tried(int id);

/* Returns true where a case of this row was tried; WF_ID_... */
bool row_was_tried(int id);

#endif
