/*
 * nn/text/tokenizer/tokenizer.h - tokenizers: text as token ids, and back, exactly as the
 * model's own tokenizer does it.
 *
 * A tokenizer is read from the files that come with a model, found by their content: a folder
 * of Hugging Face, tokenizer.json (BPE), vocab.json with merges.txt, a rank file of tiktoken
 * (*.tiktoken, Llama's tokenizer.model), tekken.json, or a BPE model of SentencePiece. Without
 * files there is the byte tokenizer, whose ids are the bytes.
 *
 *     wf_tok_open("smollm2", &tokenizer, &error);
 *     wf_tok_encoder_new(tokenizer, &encoder, &error);                 one a thread
 *     wf_tok_encode(encoder, text, bytes, WF_TOK_SPECIAL, &ids, &error);
 *     wf_tok_decode(tokenizer, ids.data, ids.count, 0, &text, &error);
 *
 * An open tokenizer is never changed: any number of threads use one at once, each with an
 * encoder of its own. Text that is no UTF-8 is read as Python's errors="replace" reads it: each
 * part that cannot begin or continue a character becomes U+FFFD. The byte tokenizer alone takes
 * every byte as it is.
 */
#ifndef WF_NN_TEXT_TOKENIZER_TOKENIZER_H
#define WF_NN_TEXT_TOKENIZER_TOKENIZER_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

WF_BEGIN_DECLS

typedef struct wf_tok wf_tok;
typedef struct wf_tok_encoder wf_tok_encoder;

/* Growing arrays that may be reused; zero-initialise them, and free them by wf_tok_ids_free,
   wf_tok_bytes_free. */
typedef struct wf_tok_ids {
    int32_t *data;
    size_t count, room;
} wf_tok_ids;

typedef struct wf_tok_bytes {
    char *data; /* not terminated */
    size_t bytes, room;
} wf_tok_bytes;

/**
 * wf_tok_open - reads a tokenizer
 *
 * @param path  a folder or a file, as above; NULL or "bytes": the byte tokenizer
 * Owner:   the caller, wf_tok_close, after the last encoder is freed
 * Errors:  WF_EIO (file and reason), WF_EDATA (file and key, of what is damaged or hostile),
 *          WF_EUNSUPPORTED (file and key of what is not known; or a package that was not there
 *          when the program was built), WF_ENOMEM; *tokenizer is then NULL
 */
WF_API wf_status wf_tok_open(const char *path, wf_tok **tokenizer, wf_error *error);

/** wf_tok_close - closes a tokenizer; NULL is allowed. */
WF_API void wf_tok_close(wf_tok *tokenizer);

/** wf_tok_size - returns one more than the largest id: the rows of an embedding that has them
 * all. */
WF_API int32_t wf_tok_size(const wf_tok *tokenizer);

/** wf_tok_bos, wf_tok_eos, wf_tok_pad - return the ids that begin, end and pad a document; -1:
 * there is none. */
WF_API int32_t wf_tok_bos(const wf_tok *tokenizer);
WF_API int32_t wf_tok_eos(const wf_tok *tokenizer);
WF_API int32_t wf_tok_pad(const wf_tok *tokenizer);

/** wf_tok_id - returns the id of the token with this text; -1: there is none. Special tokens
 * come first. Text is as decoding gives it, but that SentencePiece's keep their U+2581 for a
 * space. */
WF_API int32_t wf_tok_id(const wf_tok *tokenizer, const char *text, size_t bytes);

/**
 * wf_tok_text - returns the text of an id, as wf_tok_id takes it; NULL: there is no such id.
 * Owner: the tokenizer. Owner: the tokenizer.
 */
WF_API const char *wf_tok_text(const wf_tok *tokenizer, int32_t id, size_t *bytes);

/** wf_tok_special - returns true for a control token, which has no text: begin, end, roles of a
 * chat. */
WF_API bool wf_tok_special(const wf_tok *tokenizer, int32_t id);

/** wf_tok_spaces_before - returns the bytes of Unicode white space that end at `at`, of valid
 * UTF-8 from `least` on */
WF_API size_t wf_tok_spaces_before(const uint8_t *text, size_t at, size_t least);

/** wf_tok_encoder_new - makes an encoder, the state of one thread. Owner: the caller,
 * wf_tok_encoder_free. */
WF_API wf_status wf_tok_encoder_new(const wf_tok *tokenizer, wf_tok_encoder **encoder,
                                    wf_error *error);
WF_API void wf_tok_encoder_free(wf_tok_encoder *encoder);

enum {
    WF_TOK_SPECIAL = 1, /* special tokens in the text become their ids; else they are text */
    /* ids are added before and after the text, as the model's template requires */
    WF_TOK_TEMPLATE = 2
};

/**
 * wf_tok_encode - appends the ids of a text
 *
 * @param text   bytes, of which there may be none
 * @param flags  WF_TOK_..., or 0
 * Errors: WF_EDATA (a pattern of the tokenizer's that takes for ever on this text), WF_ENOMEM
 */
WF_API wf_status wf_tok_encode(wf_tok_encoder *encoder, const char *text, size_t bytes,
                               int flags, wf_tok_ids *ids, wf_error *error);

/** wf_tok_encode_text - appends the ids of one text, with an encoder of its own. Errors: as of
 * wf_tok_encode */
WF_API wf_status wf_tok_encode_text(const wf_tok *tokenizer, const char *text, size_t bytes,
                                    int flags, wf_tok_ids *ids, wf_error *error);

/** wf_tok_encode_file - appends the ids of all text of a file. Errors: WF_EIO (path and
 * reason), as of wf_tok_encode */
WF_API wf_status wf_tok_encode_file(const wf_tok *tokenizer, const char *path, int flags,
                                    wf_tok_ids *ids, wf_error *error);

/**
 * wf_tok_cut - finds the last position where a long text may be cut so that its parts, encoded
 * one by one, have its ids
 *
 * Returns: the position, at most `bytes`; 0: there is none, as with every tokenizer that adds
 *          something in front of a text. After the position the text has to continue, or end.
 */
WF_API size_t wf_tok_cut(const wf_tok *tokenizer, const char *text, size_t bytes);

/** wf_tok_ids_append - appends an id. Errors: WF_ENOMEM. */
WF_API wf_status wf_tok_ids_append(wf_tok_ids *ids, int32_t id, wf_error *error);

/** wf_tok_mend - appends a text with U+FFFD for each part that cannot begin or continue a
 * character, as encoding reads it; false: out of memory. */
WF_API bool wf_tok_mend(const char *text, size_t bytes, wf_tok_bytes *to);

/** wf_tok_whole - returns how many bytes of a text come before the character that has begun at
 * its end and may still be completed; `bytes` where there is none */
WF_API size_t wf_tok_whole(const char *text, size_t bytes);

/** wf_tok_print - prints what ids were decoded to, with U+FFFD as of wf_tok_mend: the one way
 * in which programs print text. `text` may be NULL where bytes is 0. What wf_tok_decode_next
 * gave may be printed part by part, parts that end as of wf_tok_whole. Errors are those of the
 * file. */
WF_API void wf_tok_print(const char *text, size_t bytes, FILE *out);

/** wf_tok_ids_free, wf_tok_bytes_free - free the memory and zero the struct. */
WF_API void wf_tok_ids_free(wf_tok_ids *ids);
WF_API void wf_tok_bytes_free(wf_tok_bytes *text);

enum { WF_TOK_SKIP_SPECIAL = 1 /* special tokens are left out */ };

/**
 * wf_tok_decode - appends the text of ids
 *
 * The bytes are those of the tokens: ids that split a character, or that no text has, give
 * bytes that are no UTF-8. Errors: WF_EINVAL (an id that does not exist, and its index),
 * WF_ENOMEM.
 */
WF_API wf_status wf_tok_decode(const wf_tok *tokenizer, const int32_t *ids, size_t count,
                               int flags, wf_tok_bytes *text, wf_error *error);

/* Decodes one id at a time, to print text as ids are generated: a character is given when it is
   complete. Zero-initialise it; it holds at most the 3 bytes of a character that has begun. */
typedef struct wf_tok_stream {
    bool begun;
    int held;
    char bytes[4];
} wf_tok_stream;

/** wf_tok_decode_next - appends the whole characters that the next id completes; bytes that can
 * begin none are given as they are. Errors as of wf_tok_decode. */
WF_API wf_status wf_tok_decode_next(const wf_tok *tokenizer, wf_tok_stream *stream, int32_t id,
                                    int flags, wf_tok_bytes *text, wf_error *error);

/** wf_tok_decode_end - appends the bytes held of a character that was never completed. */
WF_API wf_status wf_tok_decode_end(wf_tok_stream *stream, wf_tok_bytes *text, wf_error *error);

WF_END_DECLS

#endif
