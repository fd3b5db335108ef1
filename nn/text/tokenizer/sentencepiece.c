/*
 * nn/text/tokenizer/sentencepiece.c - BPE models of SentencePiece: pieces and their scores, in
 * messages of protobuf (sentencepiece_model.proto), of which a few fields are read and all are
 * checked against the end.
 */
#include "nn/text/tokenizer/load_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char metaspace[] = "\xe2\x96\x81";

/* Types of pieces, and of models. */
enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE, MODEL_BPE = 2 };

typedef struct message {
    const uint8_t *at, *end;
} message;

typedef struct field {
    int number;
    uint64_t value; /* a number; 4 or 8 bytes as they are */
    message inside; /* bytes, a text or a message */
} field;

static bool take_varint(message *m, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && m->at < m->end; shift += 7) {
        uint8_t byte = *m->at++;

        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

static bool take_bytes(message *m, uint64_t bytes, message *inside)
{
    if (bytes > (uint64_t)(m->end - m->at))
        return false;
    *inside = (message){m->at, m->at + bytes};
    m->at += bytes;
    return true;
}

/* Takes the next field: 1, 0 there is none, -1 it is damaged. */
static int take_field(message *m, field *f)
{
    uint64_t key, bytes;

    *f = (field){0};
    if (m->at == m->end)
        return 0;
    if (!take_varint(m, &key) || key >> 3 == 0 || key >> 3 > 1 << 20)
        return -1;
    f->number = (int)(key >> 3);
    switch (key & 7) {
    case 0:
        return take_varint(m, &f->value) ? 1 : -1;
    case 2:
        return take_varint(m, &bytes) && take_bytes(m, bytes, &f->inside) ? 1 : -1;
    case 1:
    case 5:
        bytes = (key & 7) == 1 ? 8 : 4;
        if (!take_bytes(m, bytes, &f->inside))
            return -1;
        memcpy(&f->value, f->inside.at, bytes);
        return 1;
    default:
        return -1;
    }
}

typedef struct model {
    wf_tok *t;
    const char *path;
    wf_error *error;
    float *scores; /* by id */
    int32_t count, room;
    int64_t type, bos, eos, unknown;
    bool suffix, charsmap, front, extra, escape;
} model;

static wf_status damaged(const model *m, const char *what)
{
    return wf_error_set(m->error, WF_EDATA,
                        "%s: %s: no message of SentencePiece that can be used", m->path, what);
}

/* Adds a piece by its type; returns NULL, or the error. */
static const char *add_piece(model *m, const message *text, uint64_t type)
{
    const char *from = (const char *)text->at, *wrong;
    size_t bytes = (size_t)(text->end - text->at);
    wf_tok_added token = {.text = (char *)from, .bytes = (uint32_t)bytes, .id = m->count};
    wf_tok_lexicon *v = &m->t->vocabulary;
    unsigned value = 0;
    char name[8] = "";

    if (bytes > WF_TOK_RANKED_MOST_BYTES)
        return "a piece has at most 512 bytes";
    switch (type) {
    case NORMAL:
        return wf_tok_lexicon_add(v, m->count, from, bytes, WF_TOK_TOKEN_PIECE);
    case UNKNOWN:
        return wf_tok_lexicon_add(v, m->count, from, bytes,
                                  WF_TOK_TOKEN_NAME | WF_TOK_TOKEN_SPECIAL);
    case CONTROL:
        token.special = true;
        return wf_tok_load_added(m->t, &token, false);
    case USER_DEFINED: /* looked for where texts have U+2581, which it has, too */
        wrong = wf_tok_lexicon_add(v, m->count, from, bytes, WF_TOK_TOKEN_ADDED);
        return wrong || wf_tok_added_add(&m->t->added_normalized, &token) ? wrong
                                                                          : "out of memory";
    case BYTE:
        for (; value < 256; value++) {
            snprintf(name, sizeof name, "<0x%02X>", value);
            if (bytes == 6 && memcmp(name, from, 6) == 0)
                break;
        }
        if (value == 256 || m->t->fallback[value] >= 0)
            return "a piece of a byte is none of <0x00> to <0xFF>, or there twice";
        m->t->fallback[value] = m->count;
        return wf_tok_lexicon_add(v, m->count, from, bytes,
                                  WF_TOK_TOKEN_NAME | WF_TOK_TOKEN_BYTE);
    default:
        return "pieces of this type are not supported";
    }
}

static wf_status read_piece(model *m, message inside)
{
    field f, text = {0};
    uint64_t type = NORMAL;
    const char *wrong;
    uint32_t bits = 0;
    int found;

    while ((found = take_field(&inside, &f)) > 0) {
        text = f.number == 1 ? f : text;
        bits = f.number == 2 ? (uint32_t)f.value : bits;
        type = f.number == 3 ? f.value : type;
    }
    if (found < 0)
        return damaged(m, "pieces");
    if (m->count == m->room) {
        int32_t room = 2 * m->room + 1024;
        float *scores = realloc(m->scores, (size_t)room * sizeof *scores);

        if (!scores)
            return wf_error_set(m->error, WF_ENOMEM, "%s: out of memory", m->path);
        m->scores = scores;
        m->room = room;
    }
    memcpy(&m->scores[m->count], &bits, sizeof bits);
    wrong = m->count >= WF_TOK_LEXICON_MOST ? "there are more than 1048576"
            : isnan(m->scores[m->count])    ? "its score is no number"
                                            : add_piece(m, &text.inside, type);
    if (wrong)
        return wf_error_set(m->error, wf_tok_wrong_code(wrong), "%s: pieces[%d]: %s", m->path,
                            m->count, wrong);
    m->count++;
    return WF_OK;
}

/* trainer_spec and normalizer_spec: what they say of encoding. */
static wf_status read_specs(model *m, message inside, bool trainer)
{
    field f;
    int found;

    while ((found = take_field(&inside, &f)) > 0) {
        if (trainer) {
            m->type = f.number == 3 ? (int64_t)f.value : m->type;
            m->suffix = f.number == 24 ? f.value != 0 : m->suffix;
            m->t->byte_fallback = f.number == 35 ? f.value != 0 : m->t->byte_fallback;
            m->unknown = f.number == 40 ? (int32_t)f.value : m->unknown;
            m->bos = f.number == 41 ? (int32_t)f.value : m->bos;
            m->eos = f.number == 42 ? (int32_t)f.value : m->eos;
        } else {
            m->charsmap = m->charsmap || (f.number == 2 && f.inside.at < f.inside.end);
            m->front = f.number == 3 ? f.value != 0 : m->front;
            m->extra = f.number == 4 ? f.value != 0 : m->extra;
            m->escape = f.number == 5 ? f.value != 0 : m->escape;
        }
    }
    return found < 0 ? damaged(m, trainer ? "trainer_spec" : "normalizer_spec") : WF_OK;
}

static wf_status refuse_rare(const model *m)
{
    const char *what = NULL;

    if (m->type != MODEL_BPE)
        what = "trainer_spec.model_type: only BPE is supported";
    else if (m->suffix)
        what = "trainer_spec.treat_whitespace_as_suffix is not supported";
    else if (m->charsmap)
        what = "normalizer_spec.precompiled_charsmap: only the identity is supported";
    else if (m->extra)
        what = "normalizer_spec.remove_extra_whitespaces is not supported";
    else if (!m->escape)
        what = "normalizer_spec.escape_whitespaces has to be true";
    return what ? wf_error_set(m->error, WF_EUNSUPPORTED, "%s: %s", m->path, what) : WF_OK;
}

static _Thread_local const float *scores_of; /* qsort passes nothing of its own */

static int by_score(const void *a, const void *b)
{
    float x = scores_of[*(const int32_t *)a], y = scores_of[*(const int32_t *)b];

    return (x < y) - (x > y);
}

wf_status wf_tok_load_rank_scores(const float *scores, int32_t count, int32_t *rank_of,
                                  int32_t *ranks)
{
    int32_t *ids = malloc(((size_t)count + 1) * sizeof *ids), rank = 0;

    if (!ids)
        return WF_ENOMEM;
    for (int32_t i = 0; i < count; i++)
        ids[i] = i;
    scores_of = scores;
    qsort(ids, (size_t)count, sizeof *ids, by_score);
    for (int32_t i = 0; i < count; i++) {
        rank += i > 0 && scores[ids[i]] < scores[ids[i - 1]];
        rank_of[ids[i]] = rank;
    }
    *ranks = rank + 1;
    free(ids);
    return WF_OK;
}

static wf_status merge_by_score(model *m)
{
    int32_t *rank_of = malloc(((size_t)m->count + 1) * sizeof *rank_of), ranks;
    wf_status status = WF_ENOMEM;

    if (rank_of && wf_tok_load_rank_scores(m->scores, m->count, rank_of, &ranks) == WF_OK)
        status = wf_tok_lexicon_merge_all(&m->t->vocabulary, rank_of, ranks, m->path, m->error);
    else
        wf_error_set(m->error, status, "%s: out of memory", m->path);
    free(rank_of);
    return status;
}

/* Returns an id that a spec names, where it is that of a special piece. */
static int32_t special_id(const model *m, int64_t id)
{
    return id >= 0 && id < m->count && m->t->vocabulary.tokens[id].kind & WF_TOK_TOKEN_SPECIAL
               ? (int32_t)id
               : -1;
}

static wf_status complete(model *m)
{
    wf_tok *t = m->t;
    wf_tok_lexicon *v = &t->vocabulary;
    wf_tok_step *step;
    bool ok = true;

    for (int byte = 0; t->byte_fallback && byte < 256; byte++)
        if (t->fallback[byte] < 0)
            return wf_error_set(m->error, WF_EDATA,
                                "%s: trainer_spec.byte_fallback, and there is no <0x%02X>",
                                m->path, byte);
    t->bos = special_id(m, m->bos);
    t->eos = special_id(m, m->eos);
    t->unknown = special_id(m, m->unknown);
    t->join_unknown = true;
    if (t->bos >= 0)
        t->before[t->before_count++] = t->bos;
    if (m->front) {
        step = wf_tok_step_add(&t->normalizers, WF_TOK_STEP_PREPEND);
        ok = wf_tok_step_text(&step->text, &step->text_bytes, metaspace, 3);
    }
    t->strip_first = m->front;
    step = wf_tok_step_add(&t->normalizers, WF_TOK_STEP_REPLACE);
    ok = ok && wf_tok_step_text(&step->text, &step->text_bytes, " ", 1) &&
         wf_tok_step_text(&step->with, &step->with_bytes, metaspace, 3) &&
         wf_tok_load_safe_words(t);
    ok = ok && wf_tok_load_decode_replaced(v, metaspace, 3, " ", 1);
    for (int byte = 0; ok && byte < 256; byte++)
        ok = t->fallback[byte] < 0 ||
             !wf_tok_lexicon_decodes(v, t->fallback[byte], &(char){(char)byte}, 1);
    return ok ? WF_OK : wf_error_set(m->error, WF_ENOMEM, "%s: out of memory", m->path);
}

wf_status wf_tok_load_sentencepiece(wf_tok *t, const char *path, const char *text, size_t bytes,
                                    wf_error *error)
{
    model m = {.t = t,
               .path = path,
               .error = error,
               .type = 1,
               .bos = 1,
               .eos = 2,
               .front = true,
               .extra = true,
               .escape = true};
    message whole = {(const uint8_t *)text, (const uint8_t *)text + bytes};
    wf_status status = WF_OK;
    int found = 1;
    field f;

    t->characters = true;
    while (status == WF_OK && (found = take_field(&whole, &f)) > 0) {
        if (f.number == 1)
            status = read_piece(&m, f.inside);
        else if (f.number == 2 || f.number == 3)
            status = read_specs(&m, f.inside, f.number == 2);
    }
    if (status == WF_OK && found < 0)
        status = damaged(&m, "the file");
    if (status == WF_OK)
        status = refuse_rare(&m);
    if (status == WF_OK)
        status = merge_by_score(&m);
    if (status == WF_OK)
        status = complete(&m);
    if (status == WF_OK && !t->alone)
        status = wf_tok_hf_beside_model(t, path, error);
    free(m.scores);
    return status;
}
