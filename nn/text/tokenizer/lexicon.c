/* nn/text/tokenizer/lexicon.c - see the header. */
#include "nn/text/tokenizer/lexicon_internal.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

uint64_t wf_tok_hash(const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint64_t hash = 0x9e3779b97f4a7c15u ^ n, x = 0;

    for (; n >= 8; p += 8, n -= 8) {
        memcpy(&x, p, 8);
        hash = (hash ^ x) * 0xbf58476d1ce4e5b9u;
        hash ^= hash >> 29;
    }
    x = 0;
    memcpy(&x, p, n);
    hash = (hash ^ x) * 0x94d049bb133111ebu;
    return hash ^ hash >> 32;
}

void *wf_tok_table_new(size_t bytes)
{
    const size_t line = 64, page = (size_t)2 << 20, unit = bytes < page ? line : page;
    void *table = aligned_alloc(unit, (bytes + unit - 1) / unit * unit);

#ifdef MADV_HUGEPAGE
    if (table && unit == page)
        madvise(table, bytes, MADV_HUGEPAGE); /* nothing is lost where it is refused */
#endif
    return table;
}

/* The most texts whose hashes are neighbours: no real vocabulary has as many, and one made for
   it would be as slow as a list. */
enum { MOST_PROBES = 512 };
static const char too_many_alike[] = "too many texts have nearly one hash: the file is hostile";

/* Returns a power of two that is at least twice n: half of a hash table's slots stay free. */
static uint32_t table_size(int64_t n)
{
    uint32_t size = 64;

    while (size < 2 * n)
        size *= 2;
    return size;
}

static wf_tok_lexicon_slot *free_slots(uint32_t count)
{
    wf_tok_lexicon_slot *slots = wf_tok_table_new(count * sizeof *slots);

    if (slots)
        memset(slots, -1, count * sizeof *slots);
    return slots;
}

wf_status wf_tok_lexicon_begin(wf_tok_lexicon *v, wf_error *error)
{
    *v = (wf_tok_lexicon){.pieces = {.mask = 63}, .added = {.mask = 63}};
    v->pieces.slots = free_slots(64);
    v->added.slots = free_slots(64);
    return v->pieces.slots && v->added.slots ? WF_OK
                                             : wf_error_set(error, WF_ENOMEM, "out of memory");
}

void wf_tok_lexicon_free(wf_tok_lexicon *v)
{
    free(v->tokens);
    free(v->texts);
    free(v->pieces.slots);
    free(v->added.slots);
    free(v->merges);
    free(v->byte_pairs);
    *v = (wf_tok_lexicon){0};
}

/* Returns the slot of a text in a table, or the free one where it would be. */
static uint32_t find_slot(const wf_tok_lexicon *v, const wf_tok_lexicon_table *table,
                          const void *text, size_t bytes, uint32_t hash)
{
    uint32_t i = hash & table->mask;

    for (; table->slots[i].id >= 0; i = (i + 1) & table->mask) {
        const wf_tok_token *t = &v->tokens[table->slots[i].id];

        if (table->slots[i].hash == hash && t->bytes == bytes &&
            memcmp(v->texts + t->at, text, bytes) == 0)
            break;
    }
    return i;
}

static int32_t find(const wf_tok_lexicon *v, const wf_tok_lexicon_table *table,
                    const void *text, size_t bytes)
{
    return table->slots[find_slot(v, table, text, bytes, (uint32_t)wf_tok_hash(text, bytes))]
        .id;
}

int32_t wf_tok_lexicon_piece(const wf_tok_lexicon *v, const void *text, size_t bytes)
{
    return find(v, &v->pieces, text, bytes);
}

void wf_tok_lexicon_piece_prefetch(const wf_tok_lexicon *v, const void *text, size_t bytes)
{
    __builtin_prefetch(&v->pieces.slots[(uint32_t)wf_tok_hash(text, bytes) & v->pieces.mask]);
}

bool wf_tok_lexicon_is_pair(const wf_tok_lexicon *v, int32_t id, int32_t left, int32_t right)
{
    const wf_tok_token *a = &v->tokens[left], *b = &v->tokens[right], *t = &v->tokens[id];

    return id < v->size && t->kind & WF_TOK_TOKEN_PIECE && t->bytes == a->bytes + b->bytes &&
           memcmp(v->texts + t->at, v->texts + a->at, a->bytes) == 0 &&
           memcmp(v->texts + t->at + a->bytes, v->texts + b->at, b->bytes) == 0;
}

int32_t wf_tok_lexicon_added(const wf_tok_lexicon *v, const void *text, size_t bytes)
{
    return find(v, &v->added, text, bytes);
}

/* Copies a text after the others. */
static bool keep(wf_tok_lexicon *v, const char *text, size_t bytes, uint32_t *at)
{
    if (v->texts_room - v->used < bytes) {
        size_t room = 2 * v->texts_room + bytes + 4096;
        char *texts = room <= UINT32_MAX ? realloc(v->texts, room) : NULL;

        if (!texts)
            return false;
        v->texts = texts;
        v->texts_room = room;
    }
    memcpy(v->texts + v->used, text, bytes);
    *at = (uint32_t)v->used;
    v->used += bytes;
    return true;
}

static bool room_for(wf_tok_lexicon *v, int32_t id)
{
    if (id >= v->room) {
        int32_t room = 2 * v->room > id + 1 ? 2 * v->room : id + 1;
        wf_tok_token *tokens = realloc(v->tokens, (size_t)room * sizeof *tokens);

        if (!tokens)
            return false;
        memset(tokens + v->room, 0, (size_t)(room - v->room) * sizeof *tokens);
        v->tokens = tokens;
        v->room = room;
    }
    if (id >= v->size)
        v->size = id + 1;
    return true;
}

/* Grows a table to four times its slots, with the same ids. */
static bool grow(wf_tok_lexicon_table *table)
{
    wf_tok_lexicon_table wider = {.mask = 4 * table->mask + 3, .count = table->count};

    wider.slots = free_slots(wider.mask + 1);
    if (!wider.slots)
        return false;
    for (uint32_t i = 0; i <= table->mask; i++) {
        uint32_t to = table->slots[i].hash & wider.mask;

        while (table->slots[i].id >= 0 && wider.slots[to].id >= 0)
            to = (to + 1) & wider.mask;
        if (table->slots[i].id >= 0)
            wider.slots[to] = table->slots[i];
    }
    free(table->slots);
    *table = wider;
    return true;
}

/* Puts an id into a table by its text. */
static const char *enter(const wf_tok_lexicon *v, wf_tok_lexicon_table *table, int32_t id)
{
    const wf_tok_token *t = &v->tokens[id];
    uint32_t hash = (uint32_t)wf_tok_hash(v->texts + t->at, t->bytes), i;

    if (2 * table->count >= table->mask && !grow(table))
        return "out of memory";
    i = find_slot(v, table, v->texts + t->at, t->bytes, hash);
    if (table->slots[i].id == id)
        return NULL;
    if (table->slots[i].id >= 0)
        return "another id has the same text";
    if (((i - hash) & table->mask) > MOST_PROBES)
        return too_many_alike;
    table->slots[i] = (wf_tok_lexicon_slot){id, hash};
    table->count++;
    return NULL;
}

wf_status wf_tok_wrong_code(const char *wrong)
{
    return strcmp(wrong, "out of memory") == 0 ? WF_ENOMEM : WF_EDATA;
}

const char *wf_tok_lexicon_add(wf_tok_lexicon *v, int32_t id, const char *text, size_t bytes,
                               int kind)
{
    const char *wrong = NULL;
    wf_tok_token *t;

    if (id < 0 || id >= WF_TOK_LEXICON_MOST)
        return "its id is out of range: ids are from 0 to 1048575";
    if (bytes == 0 || bytes > WF_TOK_TOKEN_MOST_BYTES)
        return bytes ? "a token has at most 4096 bytes" : "a token without text";
    if (!room_for(v, id))
        return "out of memory";
    t = &v->tokens[id];
    if (t->bytes && (t->bytes != bytes || memcmp(v->texts + t->at, text, bytes) != 0))
        return "its id is there already, with another text";
    if (!t->bytes) {
        if (!keep(v, text, bytes, &t->at))
            return "out of memory";
        t->decoded_at = t->at;
        t->bytes = t->decoded_bytes = (uint32_t)bytes;
    }
    t->kind |= kind;
    if (kind & WF_TOK_TOKEN_PIECE)
        wrong = enter(v, &v->pieces, id);
    if (!wrong && kind & WF_TOK_TOKEN_ADDED)
        wrong = enter(v, &v->added, id);
    return wrong;
}

const char *wf_tok_lexicon_decodes(wf_tok_lexicon *v, int32_t id, const char *text,
                                   size_t bytes)
{
    wf_tok_token *t = &v->tokens[id];

    t->decoded_bytes = (uint32_t)bytes;
    return keep(v, text, bytes, &t->decoded_at) ? NULL : "out of memory";
}

wf_status wf_tok_lexicon_end(wf_tok_lexicon *v, int64_t merges, int32_t ranks, wf_error *error)
{
    uint32_t size = table_size(merges);

    for (int byte = 0; byte < 256; byte++)
        v->byte_ids[byte] = wf_tok_lexicon_piece(v, &(uint8_t){(uint8_t)byte}, 1);
    v->merges = wf_tok_table_new(size * sizeof *v->merges);
    v->merges_mask = size - 1;
    v->ranks = ranks;
    if (!v->merges)
        return wf_error_set(error, WF_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < size; i++)
        v->merges[i] = (wf_tok_merge){-1, -1, INT32_MAX, -1};
    return WF_OK;
}

const char *wf_tok_lexicon_merge(wf_tok_lexicon *v, int32_t left, int32_t right, int32_t rank,
                                 int32_t made)
{
    uint32_t i = wf_tok_lexicon_line(v, left, right);

    if (rank >= WF_TOK_LEXICON_RANKS)
        return "there are more than 16777216 merges";
    for (int probes = 0; v->merges[i].left >= 0; i = (i + 1) & v->merges_mask) {
        if (v->merges[i].left == left && v->merges[i].right == right)
            return "these two are merged twice";
        if (++probes > MOST_PROBES)
            return too_many_alike;
    }
    v->merges[i] = (wf_tok_merge){left, right, rank, made};
    return NULL;
}

/* Merges before their number is known. */
typedef struct merge_list {
    wf_tok_merge *merges;
    size_t count, room;
} merge_list;

static bool add_merge(merge_list *list, wf_tok_merge merge)
{
    if (list->count == list->room) {
        size_t room = 2 * list->room + 4096;
        wf_tok_merge *merges = realloc(list->merges, room * sizeof *merges);

        if (!merges)
            return false;
        list->merges = merges;
        list->room = room;
    }
    list->merges[list->count++] = merge;
    return true;
}

/* Adds all divisions of a piece in two pieces; false: out of memory. */
static bool divide(const wf_tok_lexicon *v, int32_t id, int32_t rank, merge_list *list)
{
    const wf_tok_token *t = &v->tokens[id];
    const char *text = v->texts + t->at;

    for (uint32_t cut = 1; cut < t->bytes; cut++) {
        wf_tok_lexicon_piece_prefetch(v, text, cut);
        wf_tok_lexicon_piece_prefetch(v, text + cut, t->bytes - cut);
    }
    for (uint32_t cut = 1; cut < t->bytes; cut++) {
        int32_t left = wf_tok_lexicon_piece(v, text, cut), right;

        if (left < 0)
            continue;
        right = wf_tok_lexicon_piece(v, text + cut, t->bytes - cut);
        if (right >= 0 && !add_merge(list, (wf_tok_merge){left, right, rank, id}))
            return false;
    }
    return true;
}

wf_status wf_tok_lexicon_merge_all(wf_tok_lexicon *v, const int32_t *rank_of, int32_t ranks,
                                   const char *name, wf_error *error)
{
    merge_list list = {0};
    const char *wrong = NULL;
    wf_status status = WF_OK;

    for (int32_t id = 0; !wrong && id < v->size; id++)
        if (v->tokens[id].kind & WF_TOK_TOKEN_PIECE && !divide(v, id, rank_of[id], &list))
            wrong = "out of memory";
    if (!wrong)
        status = wf_tok_lexicon_end(v, (int64_t)list.count, ranks, error);
    for (size_t i = 0; status == WF_OK && !wrong && i < list.count; i++) {
        const wf_tok_merge *m = &list.merges[i];

        wrong = wf_tok_lexicon_merge(v, m->left, m->right, m->rank, m->made);
    }
    free(list.merges);
    return wrong ? wf_error_set(error, wf_tok_wrong_code(wrong), "%s: %s", name, wrong)
                 : status;
}

wf_status wf_tok_lexicon_pair_bytes(wf_tok_lexicon *v, wf_error *error)
{
    for (int byte = 0; byte < 256; byte++)
        if (v->byte_ids[byte] < 0 || !v->merges)
            return WF_OK;
    v->byte_pairs = malloc(65536 * sizeof *v->byte_pairs);
    if (!v->byte_pairs)
        return wf_error_set(error, WF_ENOMEM, "out of memory");
    for (int i = 0; i < 65536; i++) {
        const wf_tok_merge *pair =
            wf_tok_lexicon_pair(v, v->byte_ids[i >> 8], v->byte_ids[i & 255]);

        v->byte_pairs[i] = (wf_tok_byte_pair){pair->rank, pair->made};
    }
    return WF_OK;
}

static int by_rank(const void *a, const void *b)
{
    const wf_tok_merge *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->left > y->left) - (x->left < y->left);
}

wf_tok_merge *wf_tok_lexicon_sorted_merges(const wf_tok_lexicon *v, int64_t *count)
{
    wf_tok_merge *merges = malloc(((size_t)v->merges_mask + 1) * sizeof *merges);

    *count = 0;
    for (uint32_t i = 0; merges && i <= v->merges_mask; i++)
        if (v->merges[i].left >= 0)
            merges[(*count)++] = v->merges[i];
    if (merges)
        qsort(merges, (size_t)*count, sizeof *merges, by_rank);
    return merges;
}
