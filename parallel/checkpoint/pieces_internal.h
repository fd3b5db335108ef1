/*
 * parallel/checkpoint/pieces_internal.h - the pieces of tensors that this rank writes, and the
 * header of the file that they go to, with a checksum per tensor. Not installed.
 *
 * The checksum of a tensor is the text under its name in the header's "__metadata__". All
 * have the same length, so a header has its size, and data their offsets, before any is known.
 */
#ifndef WF_PARALLEL_CHECKPOINT_PIECES_INTERNAL_H
#define WF_PARALLEL_CHECKPOINT_PIECES_INTERNAL_H

#include "core/files/checksum_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/checkpoint/state_internal.h"

typedef struct wf_piece {
    const wf_tensor *tensor;
    wf_part part; /* the tensor's here, or a part of that */
    int64_t i;    /* the number in the index */
    int bit;      /* value, m, v */
    bool counts;  /* in the digest: copies of it do not */
    int64_t at;   /* byte of the staging memory, where there is some */
    int64_t bytes;
} wf_piece;

typedef struct wf_pieces {
    int64_t count;
    wf_piece *piece;
    int64_t bytes;   /* all pieces together */
    int64_t largest; /* the largest of those that have to be cut out before they are written */
} wf_pieces;

/* Lists the pieces that this rank writes; its whole state with WF_INDEX_LOCAL. Owner: caller,
   wf_pieces_close. */
wf_status wf_pieces_open(wf_pieces *pieces, const wf_state *state, wf_index_kind kind,
                         wf_error *error);
void wf_pieces_close(wf_pieces *pieces);

/* Its elements where they lie side by side, else NULL. */
const char *wf_piece_data(const wf_piece *piece);

/* Cut them out to `to`, by non-temporal stores where they will not be read soon. */
void wf_piece_copy(const wf_piece *piece, char *to, bool soon);

/* Sums over the elements of a piece, which lie at `data`. */
typedef struct wf_piece_sums {
    uint64_t digest;   /* their term of the digest */
    uint64_t checksum; /* the checksum of their bytes */
} wf_piece_sums;

/* Computes the sums of a piece. WF_ENONFINITE, naming it, where a parameter is not finite,
   since no run should resume from that; WF_ENOMEM */
wf_status wf_piece_sum(const wf_piece *piece, const wf_state *state, const char *data,
                       wf_piece_sums *sums, wf_error *error);

/* A header in the making. */
typedef struct wf_header {
    int64_t count;
    wf_safetensors_entry *entry;
    char (*checksum)[WF_CHECKSUM_TEXT]; /* [count], zeros until they are known */
    char **metadata;                    /* key, value, .. */
} wf_header;

/* Makes a header: of the tensors of this rank's file, in the order of pieces; or, with pieces
   NULL, of all whole tensors in the order of the index. Owner: caller, wf_header_close (also of
   a failed one). */
wf_status wf_header_open(wf_header *header, const wf_state *state, const wf_pieces *pieces,
                         wf_error *error);
void wf_header_close(wf_header *header);

/* Writes its bytes, and the entries' offsets. Owner: caller, free. */
wf_status wf_header_format(wf_header *header, char **bytes, size_t *n, wf_error *error);

/* The checksum that a header states for a tensor; WF_EDATA where there is none. */
wf_status wf_header_checksum(const wf_safetensors *header, const char *file, const char *name,
                             uint64_t *checksum, wf_error *error);

#endif
