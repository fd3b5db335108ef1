/*
 * mesh/array/rows_internal.h - rows that move to the ranks that own their indices, and back
 * (wf_border_rows). Not installed.
 */
#ifndef WF_MESH_ARRAY_ROWS_INTERNAL_H
#define WF_MESH_ARRAY_ROWS_INTERNAL_H

#include "mesh/array/array_internal.h"

/* Indices of a dim that a rank has. */
typedef struct wf_row_range {
    int64_t begin, end;
} wf_row_range;

/* Rows of some sequences and tokens. */
typedef struct wf_row_block {
    wf_row_range sequences, tokens;
} wf_row_block;

/* A move of rows at work. Owners along the axis are members, those along the inner axis
   parts. */
typedef struct wf_rows {
    wf_context *ctx;
    const wf_row_owners *of;
    const wf_row_wave *wave; /* NULL: all sequences move */
    int members, me, parts, part;
    const float *index; /* [sequences of all members, tokens, k]; NULL in a plan */
    int64_t k, tokens, d;
    wf_row_range here;   /* the tokens of each sequence that x has on this rank */
    wf_row_range *owned; /* [members]: sequences that move, among those of all */
    int64_t first;       /* the first sequence of this rank, which may not move */
    wf_row_range *taken; /* [members]: the indices for which a member takes a row */
    int64_t *cuts,
        *out;     /* [members + 1], or [parts + 1] where these are more: a collective's */
    int64_t *at;  /* [members] */
    size_t bytes; /* the block that these lists are in */
} wf_rows;

/* A move that was begun and not ended. */
struct wf_rows_flight {
    struct wf_rows_flight *next; /* in the mesh's list, where it has a handle .. */
    wf_tensor *handle;           /* .. a tensor without elements, until it is ended */
    const wf_layout *from;       /* the layout of what it moves on the tape */
    const wf_layout *to;
    wf_rows rows;
    wf_row_owners owners;
    wf_row_wave wave;
    wf_tensor *sent, *came, *y; /* came: rows to be added; NULL where rows go to owners */
    wf_row_range tokens;        /* those of which sums are combined */
    wf_pending *pending;
};

/* Begins wf_rows_move, of what is not fake; NULL on errors, and nothing is under way. */
wf_rows_flight *wf_rows_begin(const wf_row_owners *owners, const wf_row_wave *wave,
                              wf_tensor *x, const wf_layout *to, bool background);
/* Waits for a move that is on no list, after the turn of what runs beside, returns its result
   and frees it. */
wf_tensor *wf_rows_end(wf_rows_flight *f);
/* Frees what errors have left in the mesh's list, once its groups are closed. */
void wf_rows_forget(wf_mesh *mesh);

/* Opens a move of the rows of a tensor whose dims these are; wf_rows_close, on errors too.
   joint: members take what any of their parts owns, of a sum: x has the sequences that move. */
wf_status wf_rows_open(wf_rows *r, const wf_row_owners *owners, const wf_row_wave *wave,
                       const wf_tensor *x, bool joint);
void wf_rows_close(wf_rows *r);

/* Returns the tokens of part q of a sequence. */
wf_row_range wf_rows_tokens(const wf_rows *r, const wf_tensor *x, int q);

/* Returns whether a row, by its number among those of all members, is taken for these
   indices. */
static inline bool wf_row_is_taken(const wf_rows *r, int64_t row, wf_row_range taken)
{
    const float *index = r->index + row * r->k;
    bool is = false;

    for (int64_t i = 0; i < r->k; i++)
        is |= index[i] >= (float)taken.begin && index[i] < (float)taken.end;
    return is;
}

/* Returns how many rows of a block are taken; in a plan, how many are expected to be. */
int64_t wf_rows_count(const wf_rows *r, wf_row_block block, wf_row_range taken);

/* Copies the taken rows of a block to `to`, one after the other; `from` begins with sequence
   `first`. Returns what follows the last. Nothing is copied in a plan. */
char *wf_rows_pack(const wf_rows *r, wf_row_block block, wf_row_range taken, const char *from,
                   int64_t first, size_t row, char *to);

/* Returns memory of this many rows of d numbers, of the scope; NULL on errors. */
wf_tensor *wf_rows_room(const wf_rows *r, wf_dtype dtype, int64_t rows);

/* Begins the exchange of what is sent, to `out`, cut as the rows are. */
wf_status wf_rows_post(wf_rows_flight *f, wf_dtype dtype, void *out, bool background);

/* Runs a collective of one buffer over an axis. */
wf_status wf_rows_run(const wf_rows *r, int axis, wf_collective_kind kind, wf_dtype dtype,
                      const wf_comm_buffer *buffer);

#endif
