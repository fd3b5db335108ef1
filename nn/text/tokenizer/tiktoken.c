/* nn/text/tokenizer/tiktoken.c - rank files: a line has a token in base64 and its rank, which
   is its id. */
#include "nn/text/tokenizer/load_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The rows of known_ranks.def, one after the other. */
typedef struct known {
    const char *name; /* a vocabulary begins; NULL: more of its special tokens */
    int32_t ranks;
    bool nfc;
    const char *bos, *eos, *pattern;
    const char *special; /* NULL: these ids have no text */
    int32_t first, count;
} known;

static const known rows[] = {
#define RANKS(name, ranks, nfc, bos, eos, pattern)                                             \
    {name, ranks, nfc, bos, eos, pattern, NULL, 0, 0},
#define SPECIAL(text)                  {NULL, 0, false, NULL, NULL, NULL, text, 0, 1},
#define SPECIALS(format, first, count) {NULL, 0, false, NULL, NULL, NULL, format, first, count},
#define SKIP(count)                    {NULL, 0, false, NULL, NULL, NULL, NULL, 0, count},
#include "nn/text/tokenizer/known_ranks.def"
#undef RANKS
#undef SPECIAL
#undef SPECIALS
#undef SKIP
};
enum { ROWS = sizeof rows / sizeof *rows };

static const known *find_known(int32_t ranks)
{
    for (int i = 0; i < ROWS; i++)
        if (rows[i].name && rows[i].ranks == ranks)
            return &rows[i];
    return NULL;
}

static wf_status unknown(const char *path, int32_t ranks, wf_error *error)
{
    char list[256] = "";
    size_t used = 0;

    for (int i = 0; i < ROWS; i++)
        if (rows[i].name && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s %d",
                                     used ? ", " : "", rows[i].name, rows[i].ranks);
    return wf_error_set(
        error, WF_EUNSUPPORTED,
        "%s has %d ranks, and a rank file does not say how its text is cut: known "
        "are those of %s. Use the model's tokenizer.json",
        path, ranks, list);
}

/* Reads one line; returns NULL, or the error. */
static const char *read_line(wf_tok_lexicon *v, const char *line, size_t bytes)
{
    const char *space = memchr(line, ' ', bytes);
    char text[WF_TOK_RANKED_MOST_BYTES], digits[12] = "", *end;
    size_t letters = space ? (size_t)(space - line) : 0, rest = bytes - letters - 1;
    int64_t n;
    long id;

    if (!space || letters > 4 * WF_TOK_RANKED_MOST_BYTES / 3 - 4 || rest == 0 ||
        rest >= sizeof digits)
        return "is not a token in base64 and its rank";
    memcpy(digits, space + 1, rest);
    id = strtol(digits, &end, 10);
    n = wf_tok_base64(line, letters, text);
    if (*end || end == digits || n < 0)
        return "is not a token in base64 and its rank";
    if (id < 0 || id >= WF_TOK_LEXICON_MOST || (id < v->size && v->tokens[id].kind))
        return "its rank is out of range, or there twice";
    return wf_tok_lexicon_add(v, (int32_t)id, text, (size_t)n, WF_TOK_TOKEN_PIECE);
}

static wf_status add_special(wf_tok *t, const char *path, const known *row, int32_t id,
                             wf_error *error)
{
    for (int32_t i = 0; row->special && i < row->count; i++) {
        char text[64];
        wf_tok_added token = {.text = text, .id = id + i, .special = true};
        const char *wrong;

        /* The formats stand in known_ranks.def: a number, or none. */
        if (row->count == 1 && !strchr(row->special, '%'))
            snprintf(text, sizeof text, "%s", row->special);
        else
            snprintf(text, sizeof text, "%.*s%d|>", (int)strcspn(row->special, "%"),
                     row->special, row->first + i);
        token.bytes = (uint32_t)strlen(text);
        /* Special tokens are looked for in the normalized text, as Qwen's own encoder does. */
        wrong = wf_tok_load_added(t, &token, t->normalizers.count > 0);
        if (wrong)
            return wf_error_set(error, wf_tok_wrong_code(wrong), "%s: %s: %s", path, text,
                                wrong);
    }
    return WF_OK;
}

static int32_t id_of(const wf_tok *t, const char *text)
{
    return text ? wf_tok_lexicon_added(&t->vocabulary, text, strlen(text)) : -1;
}

/* Fills in settings that the file does not have. */
static wf_status complete(wf_tok *t, const char *path, wf_error *error)
{
    int32_t id = t->vocabulary.size;
    const known *row = find_known(id);
    const char *pattern = row ? wf_tok_scan_pattern(row->pattern) : NULL;
    wf_status status;

    if (!row)
        return unknown(path, id, error);
    status = wf_tok_load_split(t, pattern, strlen(pattern), path, error);
    if (status == WF_OK && row->nfc)
        status = wf_tok_load_nfc(t, path, error);
    for (const known *more = row + 1; status == WF_OK && more < rows + ROWS && !more->name;
         more++) {
        status = add_special(t, path, more, id, error);
        id += more->count;
    }
    t->bos = id_of(t, row->bos);
    t->eos = id_of(t, row->eos);
    return status;
}

/* Adds the merges, whose order is that of ranks. */
wf_status wf_tok_load_merge_by_id(wf_tok *t, const char *path, wf_error *error)
{
    int32_t *rank_of = malloc(((size_t)t->vocabulary.size + 1) * sizeof *rank_of);
    wf_status status;

    if (!rank_of)
        return wf_error_set(error, WF_ENOMEM, "%s: out of memory", path);
    for (int32_t id = 0; id < t->vocabulary.size; id++)
        rank_of[id] = id;
    t->whole_words = true;
    status = wf_tok_lexicon_merge_all(&t->vocabulary, rank_of, t->vocabulary.size, path, error);
    free(rank_of);
    for (int byte = 0; status == WF_OK && byte < 256; byte++)
        if (t->vocabulary.byte_ids[byte] < 0)
            status = wf_error_set(error, WF_EDATA, "%s: byte %d has no token of its own", path,
                                  byte);
    return status;
}

wf_status wf_tok_load_tiktoken(wf_tok *t, const char *path, const char *text, size_t bytes,
                               wf_error *error)
{
    wf_status status;
    long number = 1;

    t->characters = false;
    for (const char *end = text + bytes; text < end; number++) {
        const char *line_end = memchr(text, '\n', (size_t)(end - text));
        size_t line = line_end ? (size_t)(line_end - text) : (size_t)(end - text);
        const char *wrong =
            line ? read_line(&t->vocabulary, text, line - (text[line - 1] == '\r')) : NULL;

        if (wrong)
            return wf_error_set(error, wf_tok_wrong_code(wrong), "%s: line %ld: %s", path,
                                number, wrong);
        text += line + (line_end != NULL);
    }
    for (int32_t id = 0; id < t->vocabulary.size; id++)
        if (!t->vocabulary.tokens[id].kind)
            return wf_error_set(error, WF_EDATA, "%s: rank %d is missing", path, id);
    status = wf_tok_load_merge_by_id(t, path, error);
    return status == WF_OK ? complete(t, path, error) : status;
}
