/* nn/dataset/packing.c - see packing.h. */
#include "nn/dataset/packing.h"
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

/* While windows are filled: those with so much room are a list, and a bit says whether it has
   any. */
typedef struct filling {
    int64_t room, words, windows;
    int64_t *list;  /* [room + 1] the last window with so much room, or -1 */
    uint64_t *some; /* [words] */
    int64_t *below; /* [pieces] of a window: the one before it in its list */
    int64_t *at;    /* [pieces] the window of a piece */
} filling;

static wf_status out_of_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "out of memory: which documents share a window");
}

static void put(filling *f, int64_t window, int64_t room)
{
    f->below[window] = f->list[room];
    f->list[room] = window;
    f->some[room / WORD] |= UINT64_C(1) << room % WORD;
}

/* Returns the least room of a window that is at least so much; -1: no window has it. */
static int64_t least_room(const filling *f, int64_t length)
{
    uint64_t bits = f->some[length / WORD] >> length % WORD << length % WORD;
    int64_t word = length / WORD;

    while (!bits && ++word < f->words)
        bits = f->some[word];
    return bits ? word * WORD + __builtin_ctzll(bits) : -1;
}

static int64_t take(filling *f, int64_t room)
{
    int64_t window = f->list[room];

    f->list[room] = f->below[window];
    if (f->list[room] < 0)
        f->some[room / WORD] &= ~(UINT64_C(1) << room % WORD);
    return window;
}

static void fill(filling *f, const int32_t *length, const int64_t *order, int64_t pieces)
{
    for (int64_t i = 0; i < pieces; i++) {
        int64_t need = length[order[i]], room = least_room(f, need);
        int64_t window = room < 0 ? f->windows++ : take(f, room);

        room = room < 0 ? f->room : room;
        f->at[order[i]] = window;
        put(f, window, room - need);
    }
}

/* Pieces by key, the least first; those with one key in their order. `first`: [keys + 1],
   zeros. */
static void sort(const int64_t *key, int64_t pieces, int64_t keys, int64_t *first,
                 int64_t *order)
{
    for (int64_t i = 0; i < pieces; i++)
        first[key[i] + 1]++;
    for (int64_t k = 0; k < keys; k++)
        first[k + 1] += first[k];
    for (int64_t i = 0; i < pieces; i++)
        order[first[key[i]]++] = i;
    memmove(first + 1, first, (size_t)keys * sizeof *first); /* ends are the next begins */
    first[0] = 0;
}

/* Orders pieces by length, the longest first. */
static wf_status by_length(const int32_t *length, int64_t pieces, int64_t room, int64_t *order,
                           wf_error *error)
{
    int64_t *key = calloc((size_t)pieces + 1, sizeof *key);
    int64_t *first = calloc((size_t)room + 2, sizeof *first);

    if (!key || !first)
        out_of_memory(error);
    for (int64_t i = 0; key && first && i < pieces; i++)
        key[i] = room - length[i];
    if (key && first)
        sort(key, pieces, room + 1, first, order);
    free(key);
    free(first);
    return error->code;
}

/* Windows are numbered by the first piece that each has. */
static void number(filling *f, int64_t pieces)
{
    int64_t *name = f->below, windows = 0;

    for (int64_t w = 0; w < f->windows; w++)
        name[w] = -1;
    for (int64_t i = 0; i < pieces; i++) {
        int64_t window = f->at[i];

        name[window] = name[window] < 0 ? windows++ : name[window];
        f->at[i] = name[window];
    }
}

static wf_status pack(filling *f, const int32_t *length, int64_t pieces, wf_dataset_packing *p,
                      wf_error *error)
{
    if (by_length(length, pieces, f->room, p->piece, error) != WF_OK)
        return error->code;
    for (int64_t r = 0; r <= f->room; r++)
        f->list[r] = -1;
    fill(f, length, p->piece, pieces);
    number(f, pieces);
    p->windows = f->windows;
    p->first = calloc((size_t)f->windows + 1, sizeof *p->first);
    if (!p->first)
        return out_of_memory(error);
    sort(f->at, pieces, f->windows, p->first, p->piece);
    return WF_OK;
}

wf_status wf_dataset_packing_new(const int32_t *length, int64_t pieces, int64_t room,
                                 wf_dataset_packing *p, wf_error *error)
{
    filling f = {.room = room, .words = room / WORD + 1};

    *p = (wf_dataset_packing){.piece = calloc((size_t)pieces + 1, sizeof *p->piece)};
    f.list = calloc((size_t)room + 1, sizeof *f.list);
    f.some = calloc((size_t)f.words, sizeof *f.some);
    f.below = calloc((size_t)pieces + 1, sizeof *f.below);
    f.at = calloc((size_t)pieces + 1, sizeof *f.at);
    if (p->piece && f.list && f.some && f.below && f.at)
        pack(&f, length, pieces, p, error);
    else
        out_of_memory(error);
    free(f.list);
    free(f.some);
    free(f.below);
    free(f.at);
    return error->code;
}

void wf_dataset_packing_free(wf_dataset_packing *packing)
{
    free(packing->first);
    free(packing->piece);
    *packing = (wf_dataset_packing){.windows = 0};
}
