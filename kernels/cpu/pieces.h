/* kernels/cpu/pieces.h - how small a piece of elementwise work is still worth a thread. */
#ifndef WF_KERNELS_CPU_PIECES_H
#define WF_KERNELS_CPU_PIECES_H

#include <stdint.h>

enum { WF_PIECE_ELEMENTS = 16384 };

/* The grain for wf_team_run over rows of `width` elements. */
static inline int64_t wf_piece_rows(int64_t width)
{
    return width >= WF_PIECE_ELEMENTS ? 1 : WF_PIECE_ELEMENTS / (width > 0 ? width : 1);
}

static inline int64_t wf_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif
