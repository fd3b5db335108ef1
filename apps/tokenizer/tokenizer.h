/*
 * apps/tokenizer/tokenizer.h - text as token ids, and back, as the model's own tokenizer has them.
 *
 * A tokenizer is read from the files that come with a model, found by their content: a folder of Hugging
 * Face, tokenizer.json (BPE), vocab.json with merges.txt, a rank file of tiktoken (*.tiktoken, Llama's
 * tokenizer.model), tekken.json, or a BPE model of SentencePiece. Without files there is the byte
 * tokenizer, whose ids are the bytes.
 *
 *     app_tokenizer_open("smollm2", &tokenizer, &error);
 *     app_tokenizer_encoder_new(tokenizer, &encoder, &error);                 one a thread
 *     app_tokenizer_encode(encoder, text, bytes, APP_TOKENIZER_SPECIAL, &ids, &error);
 *     app_tokenizer_decode(tokenizer, ids.data, ids.count, 0, &text, &error);
 *
 * An open tokenizer is never changed: any number of threads use one at once, each with an encoder of its
 * own. Text that is no UTF-8 is read as Python's errors="replace" reads it: each part that cannot begin or
 * go on a character becomes U+FFFD. The byte tokenizer alone takes every byte as it is.
 */
#ifndef WF_APPS_TOKENIZER_TOKENIZER_H
#define WF_APPS_TOKENIZER_TOKENIZER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct app_tokenizer app_tokenizer;
typedef struct app_tokenizer_encoder app_tokenizer_encoder;

/* Both grow as needed and may be used again and again; zero-initialise them, free with x. */
typedef struct app_tokenizer_ids {
    int32_t *data;
    size_t count, room;
} app_tokenizer_ids;

typedef struct app_tokenizer_bytes {
    char *data; /* no end is added to it */
    size_t bytes, room;
} app_tokenizer_bytes;

/**
 * app_tokenizer_open - reads a tokenizer
 *
 * @param path  a folder or a file, as above; NULL or "bytes": the byte tokenizer
 * Owner:   the caller, app_tokenizer_close, after the last encoder is freed
 * Errors:  WF_EIO (file and reason), WF_EDATA (file and key, of what is damaged or hostile),
 *          WF_EUNSUPPORTED (file and key of what is not known; or a package that was not there when the
 *          program was built), WF_ENOMEM; *tokenizer is then NULL
 */
wf_status app_tokenizer_open(const char *path, app_tokenizer **tokenizer, wf_error *error);

/** app_tokenizer_close - NULL is allowed. */
void app_tokenizer_close(app_tokenizer *tokenizer);

/** app_tokenizer_size - one more than the largest id: the rows of an embedding that has them all. */
int32_t app_tokenizer_size(const app_tokenizer *tokenizer);

/** app_tokenizer_bos, app_tokenizer_eos, app_tokenizer_pad - the ids that begin and end a document, and fill up
 * shorter ones; -1: there is none. */
int32_t app_tokenizer_bos(const app_tokenizer *tokenizer);
int32_t app_tokenizer_eos(const app_tokenizer *tokenizer);
int32_t app_tokenizer_pad(const app_tokenizer *tokenizer);

/** app_tokenizer_id - the id of the token that has this text; -1: there is none. Special tokens come
 * first. Text is what decoding would give, but that SentencePiece's keep their U+2581 for a space. */
int32_t app_tokenizer_id(const app_tokenizer *tokenizer, const char *text, size_t bytes);

/** app_tokenizer_text - the text of an id, as app_tokenizer_id takes it; NULL: there is no such id.
 * Owner: the tokenizer. */
const char *app_tokenizer_text(const app_tokenizer *tokenizer, int32_t id, size_t *bytes);

/** app_tokenizer_special - an id that stands for no text: begin, end, roles of a chat. */
bool app_tokenizer_special(const app_tokenizer *tokenizer, int32_t id);

/** app_tokenizer_spaces_before - how many bytes of Unicode's white space end at `at`, of valid UTF-8 from `least` on */
size_t app_tokenizer_spaces_before(const uint8_t *text, size_t at, size_t least);

/** app_tokenizer_encoder_new - what a thread needs to encode. Owner: the caller, app_tokenizer_encoder_free. */
wf_status app_tokenizer_encoder_new(const app_tokenizer *tokenizer,
                                    app_tokenizer_encoder **encoder, wf_error *error);
void app_tokenizer_encoder_free(app_tokenizer_encoder *encoder);

enum {
    APP_TOKENIZER_SPECIAL =
        1, /* special tokens that stand in the text become their ids; else they are text */
    APP_TOKENIZER_TEMPLATE =
        2 /* ids go before and behind the text, as the model's template says */
};

/**
 * app_tokenizer_encode - appends the ids of a text
 *
 * @param text   bytes, of which there may be none
 * @param flags  APP_TOKENIZER_..., or 0
 * Errors: WF_EDATA (a pattern of the tokenizer's that takes for ever on this text), WF_ENOMEM
 */
wf_status app_tokenizer_encode(app_tokenizer_encoder *encoder, const char *text, size_t bytes,
                               int flags, app_tokenizer_ids *ids, wf_error *error);

/**
 * app_tokenizer_cut - where a long text may be cut so that its parts, encoded one by one, have its ids
 *
 * Returns: the last such place, at most `bytes`; 0: there is none, as with every tokenizer that puts something
 *          in front of a text. Behind the place the text has to go on, or end.
 */
size_t app_tokenizer_cut(const app_tokenizer *tokenizer, const char *text, size_t bytes);

/** app_tokenizer_ids_append - one id more. Errors: WF_ENOMEM. */
wf_status app_tokenizer_ids_append(app_tokenizer_ids *ids, int32_t id, wf_error *error);

/** app_tokenizer_mend - appends a text with U+FFFD for each part that cannot begin or go on a character, as encoding reads
 * it; false: out of memory. */
bool app_tokenizer_mend(const char *text, size_t bytes, app_tokenizer_bytes *to);

/** app_tokenizer_ids_free, app_tokenizer_bytes_free - give the memory back and zero it. */
void app_tokenizer_ids_free(app_tokenizer_ids *ids);
void app_tokenizer_bytes_free(app_tokenizer_bytes *text);

enum { APP_TOKENIZER_SKIP_SPECIAL = 1 /* special tokens are left out */ };

/**
 * app_tokenizer_decode - appends the text of ids
 *
 * The bytes are those of the tokens: ids that split a character, or that no text has, give what is no
 * UTF-8. Errors: WF_EINVAL (an id that there is none of: which, and the place), WF_ENOMEM.
 */
wf_status app_tokenizer_decode(const app_tokenizer *tokenizer, const int32_t *ids, size_t count,
                               int flags, app_tokenizer_bytes *text, wf_error *error);

/* Decoding one id at a time, for who prints while ids come: a character is given when it is complete.
   Zero-initialise it; it has at most the 3 bytes of a character that has begun. */
typedef struct app_tokenizer_stream {
    bool begun;
    int held;
    char bytes[4];
} app_tokenizer_stream;

/** app_tokenizer_decode_next - appends the whole characters that the next id completes; what can begin none is
 * given as it is. Errors as of app_tokenizer_decode. */
wf_status app_tokenizer_decode_next(const app_tokenizer *tokenizer,
                                    app_tokenizer_stream *stream, int32_t id, int flags,
                                    app_tokenizer_bytes *text, wf_error *error);

/** app_tokenizer_decode_end - appends what is held of a character that was never completed. */
wf_status app_tokenizer_decode_end(app_tokenizer_stream *stream, app_tokenizer_bytes *text,
                                   wf_error *error);

#endif
