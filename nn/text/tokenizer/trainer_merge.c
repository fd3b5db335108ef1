/*
 * nn/text/tokenizer/trainer_merge.c - which two tokens become one, most frequent first. A heap
 * has pairs with the counts that they had; one whose count has changed goes back when it comes
 * up. Only pairs with the newest token ever count more than before, and they go in when they
 * are counted.
 */
#include "nn/text/tokenizer/trainer_internal.h"
#include <stdlib.h>
#include <string.h>

typedef struct pair {
    int32_t left, right; /* left -1: a free slot */
    int64_t count;
    int64_t seen; /* the newest of its words in the list; -1 */
    bool in_heap; /* under the count that it has, or had */
} pair;

typedef struct seen_word {
    uint32_t word;
    int64_t next;
} seen_word;

typedef struct candidate {
    int64_t count;
    int32_t left, right;
} candidate;

typedef struct training {
    const wf_tok_counter *counter;
    int32_t *symbols; /* all words, at the offsets of their bytes */
    uint32_t *length; /* by word */
    pair *pairs;      /* a hash table */
    size_t pair_count, mask;
    seen_word *seen;
    size_t seen_count, seen_room;
    candidate *heap;
    size_t heap_count, heap_room;
} training;

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

static size_t slot_of(const pair *pairs, size_t mask, int32_t left, int32_t right)
{
    size_t i = wf_tok_merge_hash(left, right) & mask;

    while (pairs[i].left >= 0 && (pairs[i].left != left || pairs[i].right != right))
        i = (i + 1) & mask;
    return i;
}

static pair *new_pairs(size_t count)
{
    pair *pairs = malloc(count * sizeof *pairs);

    for (size_t i = 0; pairs && i < count; i++)
        pairs[i] = (pair){-1, -1, 0, -1, false};
    return pairs;
}

/* Returns the pair of two tokens, made where it is missing; NULL: out of memory. */
static pair *pair_of(training *t, int32_t left, int32_t right)
{
    size_t i = slot_of(t->pairs, t->mask, left, right);

    if (t->pairs[i].left >= 0)
        return &t->pairs[i];
    if (2 * t->pair_count >= t->mask) {
        size_t mask = 2 * t->mask + 1;
        pair *pairs = new_pairs(mask + 1);

        if (!pairs)
            return NULL;
        for (size_t k = 0; k <= t->mask; k++)
            if (t->pairs[k].left >= 0)
                pairs[slot_of(pairs, mask, t->pairs[k].left, t->pairs[k].right)] = t->pairs[k];
        free(t->pairs);
        t->pairs = pairs;
        t->mask = mask;
        i = slot_of(pairs, mask, left, right);
    }
    t->pair_count++;
    t->pairs[i] = (pair){left, right, 0, -1, false};
    return &t->pairs[i];
}

/* Which of two candidates is merged first. */
static bool before(const candidate *a, const candidate *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static bool push(training *t, candidate c)
{
    size_t i = t->heap_count;

    if (!widen(&t->heap, &t->heap_room, i + 1, sizeof *t->heap))
        return false;
    t->heap_count++;
    for (; i > 0 && before(&c, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = c;
    return true;
}

static candidate pop(training *t)
{
    candidate top = t->heap[0], moved = t->heap[--t->heap_count];
    size_t i = 0, child;

    while ((child = 2 * i + 1) < t->heap_count) {
        child += child + 1 < t->heap_count && before(&t->heap[child + 1], &t->heap[child]);
        if (!before(&t->heap[child], &moved))
            break;
        t->heap[i] = t->heap[child];
        i = child;
    }
    t->heap[i] = moved;
    return top;
}

/* Counts the pairs of a word; those with the newest token, or all where it is -1, remember the
   word. */
static bool add_pairs(training *t, uint32_t word, int32_t newest)
{
    const wf_tok_counted_word *w = &t->counter->words[word];
    const int32_t *s = t->symbols + w->at;

    for (uint32_t i = 0; i + 1 < t->length[word]; i++) {
        pair *p = pair_of(t, s[i], s[i + 1]);

        if (!p)
            return false;
        p->count += w->count;
        if (newest >= 0 && s[i] != newest && s[i + 1] != newest)
            continue;
        if (p->seen >= 0 && t->seen[p->seen].word == word)
            continue;
        if (!widen(&t->seen, &t->seen_room, t->seen_count + 1, sizeof *t->seen))
            return false;
        t->seen[t->seen_count] = (seen_word){word, p->seen};
        p->seen = (int64_t)t->seen_count++;
    }
    return true;
}

/* Puts the pairs of a word that are in no heap into it: when all words are counted. */
static bool offer_pairs(training *t, uint32_t word)
{
    const int32_t *s = t->symbols + t->counter->words[word].at;

    for (uint32_t i = 0; i + 1 < t->length[word]; i++) {
        pair *p = pair_of(t, s[i], s[i + 1]);

        if (!p || (!p->in_heap && !push(t, (candidate){p->count, p->left, p->right})))
            return false;
        p->in_heap = true;
    }
    return true;
}

/* Merges two tokens in a word, and counts its pairs anew; true where they were in it. */
static bool merge_word(training *t, uint32_t word, int32_t left, int32_t right, int32_t made,
                       bool *ok)
{
    const wf_tok_counted_word *w = &t->counter->words[word];
    int32_t *s = t->symbols + w->at;
    uint32_t n = t->length[word], to = 0;
    bool there = false;

    for (uint32_t i = 0; i + 1 < n && !there; i++)
        there = s[i] == left && s[i + 1] == right;
    if (!there)
        return false;
    for (uint32_t i = 0; i + 1 < n; i++)
        pair_of(t, s[i], s[i + 1])->count -= w->count;
    for (uint32_t i = 0; i < n; i++) {
        bool both = i + 1 < n && s[i] == left && s[i + 1] == right;

        s[to++] = both ? made : s[i];
        i += both;
    }
    t->length[word] = to;
    *ok = add_pairs(t, word, made);
    return true;
}

/* Merges two tokens in all their words. */
static bool merge_pair(training *t, int32_t left, int32_t right, int32_t made)
{
    int64_t first = pair_of(t, left, right)->seen;
    bool ok = true;

    for (int64_t i = first; ok && i >= 0; i = t->seen[i].next)
        merge_word(t, t->seen[i].word, left, right, made, &ok);
    for (int64_t i = first; ok && i >= 0; i = t->seen[i].next)
        ok = offer_pairs(t, t->seen[i].word);
    return ok;
}

static bool begin(training *t, const wf_tok_counter *counter)
{
    bool ok;

    *t = (training){.counter = counter, .mask = (1 << 16) - 1};
    t->pairs = new_pairs(t->mask + 1);
    t->symbols = malloc((counter->texts.bytes + 1) * sizeof *t->symbols);
    t->length = malloc((counter->count + 1) * sizeof *t->length);
    ok = t->pairs && t->symbols && t->length;
    for (size_t i = 0; ok && i < counter->texts.bytes; i++)
        t->symbols[i] = (uint8_t)counter->texts.data[i];
    for (uint32_t i = 0; ok && i < counter->count; i++) {
        t->length[i] = counter->words[i].bytes;
        ok = add_pairs(t, i, -1);
    }
    for (uint32_t i = 0; ok && i < counter->count; i++)
        ok = offer_pairs(t, i);
    return ok;
}

int32_t wf_tok_train_merges(const wf_tok_counter *counter, int32_t most,
                            wf_tok_trained_merge *merges)
{
    int32_t done = 0;
    training t;
    bool ok = begin(&t, counter);

    while (ok && done < most && t.heap_count) {
        candidate top = pop(&t);
        pair *p = pair_of(&t, top.left, top.right);

        if (!p || p->count != top.count) {
            ok = p && (p->count < 2 || push(&t, (candidate){p->count, p->left, p->right}));
            continue;
        }
        if (p->count < 2)
            break;
        merges[done] = (wf_tok_trained_merge){p->left, p->right};
        ok = merge_pair(&t, top.left, top.right, 256 + done);
        done++;
    }
    free(t.pairs);
    free(t.symbols);
    free(t.length);
    free(t.seen);
    free(t.heap);
    return ok ? done : -1;
}
