/*
 * apps/tokenizer/bpe_short.c - merges of short words, several at once. After each merge two pairs are looked up in the
 * table of merges, which is larger than a core's own cache: they are prefetched, and meanwhile the other words go on.
 */
#include "apps/tokenizer/bpe_internal.h"

enum { NO_KEY = INT32_MAX, LANES = 4, BLOCK = 16, SLOT_BITS = 6 };

static inline void prefetch(const app_lexicon *v, const app_short_word *w, size_t slot)
{
    __builtin_prefetch(&v->merges[app_lexicon_line(v, w->ids[slot], w->ids[w->behind[slot]])]);
}

static inline void set(app_short_word *w, size_t slot, int32_t rank, int32_t made)
{
    w->made[slot] = made;
    w->keys[slot] = made < 0 ? NO_KEY : rank << SLOT_BITS | (int32_t)slot;
}

/* The pair at a slot: its key is the rank and, of equal ranks, the slot. All merges of a line are compared, as a branch
   at the right one would be mispredicted. */
static inline void look(const app_lexicon *v, app_short_word *w, size_t slot)
{
    int32_t left = w->ids[slot], right = w->ids[w->behind[slot]], rank = NO_KEY, made = -1;
    const app_merge *line = &v->merges[app_lexicon_line(v, left, right)];

    for (int i = 0; i < APP_LINE_MERGES; i++) {
        bool equal = !((line[i].left ^ left) | (line[i].right ^ right));

        rank = equal ? line[i].rank : rank;
        made = equal ? line[i].made : made;
    }
    if (made < 0 && line[APP_LINE_MERGES - 1].left >= 0) { /* the line is full */
        line = app_lexicon_pair(v, left, right);
        rank = line->rank;
        made = line->made;
    }
    set(w, slot, rank, made);
}

static void begin(const app_lexicon *v, app_short_word *w)
{
    size_t n = w->count;

    for (size_t i = 0; i < n; i++) {
        w->behind[i] = (uint8_t)(i + 1);
        w->before[i + 1] = (uint8_t)i;
    }
    for (size_t i = 0; w->bytes && i + 1 < n; i++) {
        app_byte_pair pair = v->byte_pairs[w->bytes[i] << 8 | w->bytes[i + 1]];

        set(w, i, pair.rank, pair.made);
    }
    for (size_t i = 0; !w->bytes && i + 1 < n; i++)
        look(v, w, i);
    for (size_t i = n - 1; i % BLOCK || i == n - 1; i++)
        w->keys[i] = NO_KEY;
    w->changed = APP_SHORT;
}

/* The lowest of all keys. Most words have one block of them: the branches of a loop of one length are predicted. */
static inline int32_t lowest(const app_short_word *w)
{
    int32_t least[LANES] = {NO_KEY, NO_KEY, NO_KEY, NO_KEY};

    for (size_t block = 0; block < w->count; block += BLOCK)
        for (size_t i = block; i < block + BLOCK; i += LANES)
            for (size_t k = 0; k < LANES; k++)
                least[k] = w->keys[i + k] < least[k] ? w->keys[i + k] : least[k];
    for (size_t k = 1; k < LANES; k++)
        least[0] = least[k] < least[0] ? least[k] : least[0];
    return least[0];
}

/* Looks up the pairs that the last merge prefetched, and merges once more; false: nothing is left to merge. */
static bool step(const app_lexicon *v, app_short_word *w)
{
    size_t slot = w->changed, gone;
    int32_t key;

    if (slot < APP_SHORT) {
        if (w->behind[slot] < w->count)
            look(v, w, slot);
        if (slot > 0)
            look(v, w, w->before[slot]);
    }
    key = lowest(w);
    if (key == NO_KEY)
        return false;
    slot = (size_t)key % APP_SHORT;
    gone = w->behind[slot];
    w->ids[slot] = w->made[slot];
    w->behind[slot] = w->behind[gone];
    w->before[w->behind[gone]] = (uint8_t)slot;
    w->keys[slot] = w->keys[gone] = NO_KEY;
    w->changed = (uint8_t)slot;
    if (w->behind[slot] < w->count)
        prefetch(v, w, slot);
    if (slot > 0)
        prefetch(v, w, w->before[slot]);
    return true;
}

/* Moves the symbols that are left together. */
static void gather(app_short_word *w)
{
    size_t left = 0;

    for (size_t i = 0; i < w->count; i = w->behind[i])
        w->ids[left++] = w->ids[i];
    w->count = (uint8_t)left;
}

void app_short_words_merge(const app_lexicon *v, app_short_word *words, size_t count)
{
    app_short_word *going[APP_SHORT_WORDS];
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
