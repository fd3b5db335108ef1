/*
 * mesh/comm/collective_internal.h - a collective in flight, shared by the files that carry it
 * out: collective_check.c (what is asked), collective.c (counts, begin and end),
 * collective_captured.c (begin and end in a graph),
 * collective_direct.c (peers' buffers are read in place) and collective_staged.c (transports
 * that only move bytes).
 */
#ifndef WF_MESH_COMM_COLLECTIVE_INTERNAL_H
#define WF_MESH_COMM_COLLECTIVE_INTERNAL_H

#include "core/device.h"
#include "core/graph.h"
#include "mesh/comm/transport_internal.h"

typedef wf_status wf_collective_step(wf_pending *p, wf_error *error);

/* The implementation of one kind: posts this rank's part; waits, and stores the result. */
typedef struct wf_collective_path {
    wf_collective_step *begin, *end;
} wf_collective_path;

typedef struct wf_captured wf_captured; /* collective_captured.c */

struct wf_pending {
    wf_comm *comm;
    wf_captured *captured; /* kept for the runs of a graph; then only `what` is there besides */
    wf_pending *next;      /* in comm->in_flight */
    const wf_collective_path *path;
    wf_collective what;
    uint64_t sequence;      /* the observer's */
    uint64_t written;       /* the op log's, or 0 */
    wf_comm_buffer *buffer; /* [n_buffers] */
    int64_t *cuts;          /* [n_buffers][size + 1]: whose part is what, of any kind */
    int64_t *out_cuts;      /* all_to_all: of out; else the same as cuts */
    void **result;          /* [n_buffers] reduce_scatter: where my part is reduced */
    int64_t *pieces, piece; /* [size] of each member's share; elements of one */
    /* the output will not be in the caches: store by non-temporal stores */
    bool stream;
    const void **source;             /* [size] */
    void **target;                   /* [size] */
    size_t *send_bytes, *recv_bytes; /* [size] */
    void *scratch;
    size_t bytes, scratch_bytes; /* sizes of this, and of scratch */
    int64_t posted;              /* when, if it is traced; else 0 */
    wf_exchange *x;              /* [1], or one per buffer for send and recv */
};

static inline bool wf_collective_reduces(const wf_collective *w)
{
    return w->kind == WF_ALL_REDUCE || w->kind == WF_REDUCE_SCATTER;
}

/* Returns the bytes of an element of a buffer's out. */
static inline size_t wf_out_element(const wf_pending *p, int64_t b)
{
    return p->buffer[b].rounds ? sizeof(uint16_t) : p->what.element;
}

/* Returns true where the buffers have cuts. */
static inline bool wf_collective_has_cuts(const wf_collective *w)
{
    return w->kind == WF_REDUCE_SCATTER || w->kind == WF_ALL_GATHER || w->kind == WF_ALL_TO_ALL;
}

/* Checks a collective: WF_OK, or an error that names what is wrong. */
wf_status wf_collective_check(const wf_comm *c, const wf_collective *w, wf_error *error);

/* Returns where member `rank`'s part of buffer b begins; that of `rank` + 1 is its end. */
static inline int64_t wf_part(const wf_pending *p, const int64_t *cuts, int64_t b, int rank)
{
    return cuts[b * (p->comm->size + 1) + rank];
}

/* Finds the offset (`*offset`) of element `at` of a part in a buffer that is cut in `rows`;
   returns how many elements are contiguous from there on. */
static inline int64_t wf_run(const wf_pending *p, const int64_t *cuts, int64_t rows, int64_t b,
                             int rank, int64_t at, int64_t *offset)
{
    int64_t first = wf_part(p, cuts, b, rank), n = wf_part(p, cuts, b, rank + 1) - first;
    int64_t length = rows > 1 ? n / rows : n;

    *offset = first + at;
    if (rows > 1 && length > 0)
        *offset = at / length * (wf_part(p, cuts, b, p->comm->size) / rows) + first / rows +
                  at % length;
    return length > 0 ? length - at % length : 0;
}

/* Finds a member's part of buffer b: returns its bytes; and where in `base` it is (NULL where
   it is empty).
*/
static inline size_t wf_locate(const wf_pending *p, const int64_t *cuts, int64_t b, int rank,
                               const void *base, void **part)
{
    int64_t at = wf_part(p, cuts, b, rank), n = wf_part(p, cuts, b, rank + 1) - at;

    *part = n ? (char *)base + (size_t)at * p->what.element : NULL;
    return (size_t)n * p->what.element;
}

static inline bool wf_overlap(const void *a, size_t a_bytes, const void *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;

    return x < y + b_bytes && y < x + a_bytes;
}

/* Returns room for p's own copies, freed with p; NULL where there is none. */
void *wf_scratch_take(wf_pending *p, size_t bytes);

/* Returns bytes of the parts of one member, over all buffers. */
size_t wf_part_bytes(const wf_pending *p, const int64_t *cuts, int rank);

/* Returns the device in whose memory the buffers lie, or NULL: the host's. */
static inline wf_device *wf_on_device(const wf_pending *p)
{
    return p->what.device;
}

/* memmove in the memory of the buffers, which minds neither NULL where there is nothing to
   move, nor a move to itself. On a device it is done in the order of what the rank computes. */
void wf_copy_part(const wf_pending *p, void *to, const void *from, size_t bytes);
void wf_copy_rows(const wf_pending *p, const wf_copy *copy);

/* The copies and sums that one call of wf_device_memory is given, at most, and the buffers of
   these sums. */
enum { WF_MOVES_COPIES = 64, WF_MOVES_SUMS = 48, WF_MOVES_BUFFERS = 192 };

/* Copies and sums of a collective that a device makes together, by few launches: none touches
   what another one writes. In the host's memory each copy is made at once. */
typedef struct wf_moves {
    const wf_pending *p;
    bool side_stream; /* as in wf_device_memory */
    int copies, sums, buffers;
    wf_copy copy[WF_MOVES_COPIES];
    wf_reduce sum[WF_MOVES_SUMS];
    void *buffer[WF_MOVES_BUFFERS]; /* sources of each sum, then its targets */
} wf_moves;

void wf_moves_begin(wf_moves *b, const wf_pending *p, bool side_stream);
wf_status wf_moves_copy(wf_moves *b, const wf_copy *copy, wf_error *error);
wf_status wf_moves_end(wf_moves *b, wf_error *error);

/* Adds target[0 .. n_targets) = sum or max over members of source[] (p's), in elements of `out`
   bytes, on a device. */
wf_status wf_moves_sum(wf_moves *b, int n_targets, size_t out, int64_t n, wf_error *error);

/* Pack the parts of all inputs side by side, member by member, and return where they end; and
   bring such to all outputs. */
char *wf_pack_parts(const wf_pending *p, char *to);
void wf_unpack_parts(const wf_pending *p, const int64_t *cuts, const char *from);

/* y = sum or max over members of p->source[], in the order of ranks, in elements of `out`
   bytes; y may be source[0], that of a sum any of them, but of one that is rounded none. Where
   the sources point afterwards is not said. */
void wf_reduce_members(const wf_pending *p, void *y, size_t out, int64_t n);

/* Begin and end of a collective while its device's work is captured (wf_graph_keeps). */
wf_status wf_captured_begin(wf_comm *comm, const wf_collective *what, wf_pending **pending,
                            wf_error *error);
wf_status wf_captured_end(wf_pending *p, wf_error *error);

/* Send, receive and barrier are the same on both paths. */
wf_collective_step wf_messages_begin, wf_messages_end, wf_barrier_begin, wf_barrier_end;

extern const wf_collective_path wf_direct_paths[WF_COLLECTIVE_KINDS];
extern const wf_collective_path wf_staged_paths[WF_COLLECTIVE_KINDS];

#endif
