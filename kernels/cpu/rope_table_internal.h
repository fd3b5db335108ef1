/* kernels/cpu/rope_table_internal.h - cosines and sines that all ranks of a process read. */
#ifndef WF_KERNELS_CPU_ROPE_TABLE_INTERNAL_H
#define WF_KERNELS_CPU_ROPE_TABLE_INTERNAL_H

#include "kernels/rope_scaling.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tables of more bytes are made for each call, in its workspace. */
enum { WF_ROPE_TABLE_BYTES = 1 << 20 };

/* Tokens from `first` on: pair i of each is rotated by angle[i] radians per position. */
typedef struct wf_rope_angles {
    int64_t first, tokens, half;
    const double *angle;     /* [half] */
    double attention;        /* cosines and sines are multiplied with it */
    wf_rope_scaling scaling; /* WF_ROPE_TEMPERATURE multiplies with one more by position */
} wf_rope_angles;

typedef struct wf_rope_table {
    const float *cosine, *sine; /* [tokens][half] */
} wf_rope_table;

/* Fills in one token's entries of a table: [half] each. */
void wf_rope_fill(const wf_rope_angles *angles, int64_t position, float *cosine, float *sine);

/* Returns the table of these angles, which stays until it is given back; NULL: there is no
   memory. */
const wf_rope_table *wf_rope_table_take(const wf_rope_angles *angles);
void wf_rope_table_give(const wf_rope_table *table);

#endif
