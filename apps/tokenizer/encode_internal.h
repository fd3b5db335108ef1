/* apps/tokenizer/encode_internal.h - what a thread encodes with. */
#ifndef WF_APPS_TOKENIZER_ENCODE_INTERNAL_H
#define WF_APPS_TOKENIZER_ENCODE_INTERNAL_H

#include "apps/tokenizer/tokenizer_internal.h"

struct app_tokenizer_encoder {
    const app_tokenizer *tokenizer;
    app_bpe *bpe;
    app_matcher matcher;
    app_tokenizer_bytes valid;                     /* the text, where it was no UTF-8 */
    app_tokenizer_bytes normal[2];                 /* a stretch, after every other normalizer */
    app_tokenizer_bytes rewritten[APP_MOST_STEPS]; /* by a pre-tokenizer that changes text */
    app_tokenizer_ids *ids;
    wf_error *error;
};

/* normalize.c: a stretch after all normalizers, at *to; it lies in the encoder, or is the text itself. */
wf_status app_normalize(app_tokenizer_encoder *e, const uint8_t *text, size_t n,
                        const uint8_t **to, size_t *bytes);
/* Characters of the first APP_INERT that are their own normal form (NFC) and compose with nothing in front of them, as bits.
   NULL: out of memory, or no utf8proc; that only takes longer. Owner: the caller, free. */
enum { APP_INERT = 0x10000 };
uint8_t *app_inert_new(void);
/* One step of it, appended. */
wf_status app_normalize_step(const app_step *step, const app_matcher *matcher,
                             const uint8_t *text, size_t n, app_tokenizer_bytes *to,
                             wf_error *error);

/* split.c: appends the ids of a stretch, from a pre-tokenizer on. `first`: it begins the whole text. */
wf_status app_split_words(app_tokenizer_encoder *e, int step, const uint8_t *text, size_t n,
                          bool first);

#endif
