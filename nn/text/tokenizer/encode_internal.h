/* nn/text/tokenizer/encode_internal.h - what a thread encodes with. */
#ifndef WF_NN_TEXT_TOKENIZER_ENCODE_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_ENCODE_INTERNAL_H

#include "nn/text/tokenizer/tokenizer_internal.h"

struct wf_tok_encoder {
    const wf_tok *tokenizer;
    wf_tok_bpe *bpe;
    wf_tok_matcher matcher;
    wf_tok_bytes valid;                        /* the text, where it was no UTF-8 */
    wf_tok_bytes normal[2];                    /* a stretch, after every other normalizer */
    wf_tok_bytes rewritten[WF_TOK_MOST_STEPS]; /* by a pre-tokenizer that changes text */
    wf_tok_ids *ids;
    wf_error *error;
};

/* normalize.c: a stretch after all normalizers, at *to; it lies in the encoder, or is the text
   itself. */
wf_status wf_tok_normalize(wf_tok_encoder *e, const uint8_t *text, size_t n, const uint8_t **to,
                           size_t *bytes);
/* Characters of the first WF_TOK_INERT that are their own normal form (NFC) and compose with
   nothing in front of them, as bits. NULL: out of memory, or no utf8proc; that only takes
   longer. Owner: the caller, free. */
enum { WF_TOK_INERT = 0x10000 };
uint8_t *wf_tok_inert_new(void);
/* Normalises by one step, and appends the result. */
wf_status wf_tok_normalize_step(const wf_tok_step *step, wf_tok_matcher *matcher,
                                const uint8_t *text, size_t n, wf_tok_bytes *to,
                                wf_error *error);

/* split.c: appends the ids of a stretch, from a pre-tokenizer on. `first`: it begins the whole
   text. */
wf_status wf_tok_split_words(wf_tok_encoder *e, int step, const uint8_t *text, size_t n,
                             bool first);

#endif
