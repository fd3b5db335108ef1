/*
 * nn/text/tokenizer/bpe_short.c - merges of short words, several at once. After each merge two
 * pairs are looked up in the table of merges, which is larger than a core's own cache: they are
 * prefetched, and meanwhile the other words are merged.
 */
#include "nn/text/tokenizer/bpe_internal.h"
#include <string.h>

enum { NO_KEY = INT32_MAX, LANES = 4, BLOCK = 16, SLOT_BITS = 6 };

typedef int32_t lanes __attribute__((vector_size(4 * LANES)));

static inline void prefetch(const wf_tok_lexicon *v, const wf_tok_short_word *w, size_t slot)
{
    __builtin_prefetch(
        &v->merges[wf_tok_lexicon_line(v, w->ids[slot], w->ids[w->after[slot]])]);
}

static inline int32_t key_of(int32_t rank, int32_t made, size_t slot)
{
    return made < 0 ? NO_KEY : rank << SLOT_BITS | (int32_t)slot;
}

/* Looks up the pair at a slot, and gives its key: the rank and, of equal ranks, the slot. All
   merges of a line are compared, as a branch at the right one would be mispredicted. */
static inline int32_t look_up(const wf_tok_lexicon *v, wf_tok_short_word *w, size_t slot)
{
    /* Two tokens, and what becomes of them, are compared and taken at once, as they lie in
       wf_tok_merge. */
    int32_t pair[2] = {w->ids[slot], w->ids[w->after[slot]]}, becomes[2];
    const wf_tok_merge *line = &v->merges[wf_tok_lexicon_line(v, pair[0], pair[1])];
    uint64_t wanted, found = UINT64_MAX;

    memcpy(&wanted, pair, sizeof wanted);
    for (int i = 0; i < WF_TOK_LINE_MERGES; i++) {
        uint64_t of_line, value;

        memcpy(&of_line, &line[i].left, sizeof of_line);
        memcpy(&value, &line[i].rank, sizeof value);
        found = of_line == wanted ? value : found;
    }
    memcpy(becomes, &found, sizeof becomes);
    if (becomes[1] < 0 && line[WF_TOK_LINE_MERGES - 1].left >= 0) { /* the line is full */
        line = wf_tok_lexicon_pair(v, pair[0], pair[1]);
        becomes[0] = line->rank;
        becomes[1] = line->made;
    }
    w->made[slot] = becomes[1];
    return key_of(becomes[0], becomes[1], slot);
}

static void begin(const wf_tok_lexicon *v, wf_tok_short_word *w)
{
    size_t n = w->count;

    for (size_t i = 0; i < n; i++) {
        w->after[i] = (uint8_t)(i + 1);
        w->before[i + 1] = (uint8_t)i;
    }
    for (size_t i = 0; w->bytes && i + 1 < n; i++) {
        wf_tok_byte_pair pair = v->byte_pairs[w->bytes[i] << 8 | w->bytes[i + 1]];

        w->made[i] = pair.made;
        w->keys[i] = key_of(pair.rank, pair.made, i);
    }
    for (size_t i = 0; !w->bytes && i + 1 < n; i++)
        w->keys[i] = look_up(v, w, i);
    for (size_t i = n - 1; i % BLOCK || i == n - 1; i++)
        w->keys[i] = NO_KEY;
    w->changed[0] = w->changed[1] = WF_TOK_SHORT;
}

/* Returns the lowest of all keys. Most words have one block of them: the branches of a loop of
   one length are predicted. */
static inline int32_t lowest(const wf_tok_short_word *w)
{
    lanes least, keys;
    int32_t result;

    memcpy(&least, w->keys, sizeof least);
    for (size_t block = 0; block < w->count; block += BLOCK)
        for (size_t i = block; i < block + BLOCK; i += LANES) {
            lanes less;

            memcpy(&keys, w->keys + i, sizeof keys);
            less = keys < least;
            least = (keys & less) | (least & ~less);
        }
    result = least[0];
    for (int k = 1; k < LANES; k++)
        result = least[k] < result ? least[k] : result;
    return result;
}

/* Looks up the pairs that the last merge prefetched, and merges once more; false: nothing is
   left to merge. The new keys are written after the others are read, which would wait for them
   otherwise. */
static bool step(const wf_tok_lexicon *v, wf_tok_short_word *w)
{
    int32_t key = lowest(w);
    size_t slot, gone;

    for (int i = 0; i < 2; i++)
        if (w->changed[i] < WF_TOK_SHORT) {
            int32_t found = look_up(v, w, w->changed[i]);

            w->keys[w->changed[i]] = found;
            key = found < key ? found : key;
        }
    if (key == NO_KEY)
        return false;
    slot = (size_t)key % WF_TOK_SHORT;
    gone = w->after[slot];
    w->ids[slot] = w->made[slot];
    w->after[slot] = w->after[gone];
    w->before[w->after[gone]] = (uint8_t)slot;
    w->keys[slot] = w->keys[gone] = NO_KEY;
    w->changed[0] = w->after[slot] < w->count ? (uint8_t)slot : WF_TOK_SHORT;
    w->changed[1] = slot > 0 ? w->before[slot] : WF_TOK_SHORT;
    for (int i = 0; i < 2; i++)
        if (w->changed[i] < WF_TOK_SHORT) {
            w->keys[w->changed[i]] = NO_KEY;
            prefetch(v, w, w->changed[i]);
        }
    return true;
}

/* Moves the symbols that are left together. */
static void gather(wf_tok_short_word *w)
{
    size_t left = 0;

    for (size_t i = 0; i < w->count; i = w->after[i])
        w->ids[left++] = w->ids[i];
    w->count = (uint8_t)left;
}

void wf_tok_short_words_merge(const wf_tok_lexicon *v, wf_tok_short_word *words, size_t count)
{
    wf_tok_short_word *going[WF_TOK_SHORT_WORDS];
    size_t left = 0;

    for (size_t i = 0; i < count; i++)
        if (words[i].count > 1) {
            begin(v, &words[i]);
            going[left++] = &words[i];
        }
    while (left)
        for (size_t i = 0; i < left;) {
            if (step(v, going[i])) {
                i++;
                continue;
            }
            gather(going[i]);
            going[i] = going[--left];
        }
}
