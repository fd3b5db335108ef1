/*
 * nn/text/tokenizer/bpe_long.c - merges of words without end, such as a megabyte of one letter.
 *
 * A heap of all pairs would be walked down through memory at each merge. Here a heap has ranks,
 * which are few in such words, and each rank a list of its pairs from left to right, since they
 * are mostly found in that order; those that are not lie in a heap of their own.
 */
#include "nn/text/tokenizer/bpe_internal.h"
#include <stdlib.h>
#include <string.h>

enum { NO_RANK = INT32_MAX };

void wf_tok_long_words_free(wf_tok_long_words *w)
{
    free(w->before);
    free(w->after);
    free(w->rank);
    free(w->positions);
    free(w->first);
    free(w->last);
    free(w->ranks.keys);
    free(w->stray.keys);
    *w = (wf_tok_long_words){0};
}

static bool widen(void *array, size_t *room, size_t need, size_t element)
{
    size_t wanted = *room < need ? 2 * need : *room;
    void *wider = wanted > *room ? realloc(*(void **)array, wanted * element) : *(void **)array;

    if (!wider)
        return false;
    *(void **)array = wider;
    *room = wanted;
    return true;
}

static bool begin(wf_tok_long_words *w, const wf_tok_lexicon *v, size_t n)
{
    size_t room = w->room;

    if (!w->first) {
        size_t bytes = ((size_t)v->ranks + 1) * sizeof *w->first;

        w->first = malloc(bytes);
        w->last = malloc(bytes);
        if (!w->first || !w->last)
            return false;
        memset(w->first, -1, bytes);
    }
    w->position_count = w->ranks.count = w->stray.count = 0;
    if (!widen(&w->before, &room, n, sizeof *w->before))
        return false;
    room = w->room;
    if (!widen(&w->after, &room, n, sizeof *w->after))
        return false;
    return widen(&w->rank, &w->room, n, sizeof *w->rank);
}

static void heap_up(uint64_t *heap, size_t i, uint64_t key)
{
    for (; i > 0 && heap[(i - 1) / 2] > key; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = key;
}

static bool push(wf_tok_heap *heap, uint64_t key)
{
    if (!widen(&heap->keys, &heap->room, heap->count + 1, sizeof *heap->keys))
        return false;
    heap_up(heap->keys, heap->count++, key);
    return true;
}

static void pop(wf_tok_heap *heap)
{
    uint64_t moved = heap->keys[--heap->count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < heap->count) {
        child += child + 1 < heap->count && heap->keys[child + 1] < heap->keys[child];
        if (heap->keys[child] >= moved)
            break;
        heap->keys[i] = heap->keys[child];
        i = child;
    }
    heap->keys[i] = moved;
}

static uint64_t key_of(int32_t rank, int32_t at)
{
    return (uint64_t)(uint32_t)rank << 32 | (uint32_t)at;
}

/* Notes that the pair at a position has a rank. */
static bool push_position(wf_tok_long_words *w, int32_t rank, int32_t at)
{
    int32_t position = (int32_t)w->position_count, last = w->last[rank];

    if (w->first[rank] >= 0 && w->positions[last].at > at)
        return push(&w->stray, key_of(rank, at));
    if (!widen(&w->positions, &w->position_room, w->position_count + 1, sizeof *w->positions))
        return false;
    w->positions[w->position_count++] = (wf_tok_position){at, -1};
    w->last[rank] = position;
    if (w->first[rank] >= 0) {
        w->positions[last].next = position;
        return true;
    }
    w->first[rank] = position;
    return push(&w->ranks, (uint64_t)rank);
}

/* Takes the leftmost position of the lowest rank that is noted, and its rank. */
static bool next_position(wf_tok_long_words *w, int32_t *rank, int32_t *at)
{
    uint64_t listed = UINT64_MAX, stray = w->stray.count ? w->stray.keys[0] : UINT64_MAX;

    if (w->ranks.count) {
        *rank = (int32_t)w->ranks.keys[0];
        *at = w->positions[w->first[*rank]].at;
        listed = key_of(*rank, *at);
    }
    if (listed <= stray) {
        if (listed == UINT64_MAX)
            return false;
        w->first[*rank] = w->positions[w->first[*rank]].next;
        if (w->first[*rank] < 0)
            pop(&w->ranks);
        return true;
    }
    *rank = (int32_t)(stray >> 32);
    *at = (int32_t)(uint32_t)stray;
    pop(&w->stray);
    return true;
}

/* Finds the rank of a symbol and the next one. */
static bool look(wf_tok_long_words *w, const wf_tok_lexicon *v, const int32_t *ids, int32_t at)
{
    int32_t after = w->after[at];

    w->rank[at] = after < 0 ? NO_RANK : wf_tok_lexicon_pair(v, ids[at], ids[after])->rank;
    return w->rank[at] == NO_RANK || push_position(w, w->rank[at], at);
}

/* Merges a symbol with the next one. */
static bool merge(wf_tok_long_words *w, const wf_tok_lexicon *v, int32_t *ids, int32_t at)
{
    int32_t gone = w->after[at], before = w->before[at];

    ids[at] = wf_tok_lexicon_pair(v, ids[at], ids[gone])->made;
    w->after[at] = w->after[gone];
    if (w->after[at] >= 0)
        w->before[w->after[at]] = at;
    w->rank[gone] = NO_RANK;
    return (before < 0 || look(w, v, ids, before)) && look(w, v, ids, at);
}

bool wf_tok_long_words_merge(wf_tok_long_words *w, const wf_tok_lexicon *v, int32_t *ids,
                             size_t *count)
{
    int32_t n = (int32_t)*count, rank, at;
    size_t left = 0;
    bool ok;

    if (n == 0) /* a word of characters that are left out */
        return true;
    ok = begin(w, v, *count);
    for (int32_t i = 0; ok && i < n; i++) {
        w->before[i] = i - 1;
        w->after[i] = i + 1 < n ? i + 1 : -1;
    }
    for (int32_t i = 0; ok && i < n; i++)
        ok = look(w, v, ids, i);
    while (ok && next_position(w, &rank, &at))
        ok = w->rank[at] != rank || merge(w, v, ids, at);
    for (int32_t i = 0; ok && i >= 0; i = w->after[i])
        ids[left++] = ids[i];
    if (!ok)
        wf_tok_long_words_free(w);
    *count = left;
    return ok;
}
