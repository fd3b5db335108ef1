/* parallel/generate/tokens.h - a text, or token ids, whose losses are taken
   (parallel/generate/losses.h). */
#ifndef WF_PARALLEL_GENERATE_TOKENS_H
#define WF_PARALLEL_GENERATE_TOKENS_H

#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

/** wf_gen_tokens - the tokens of a text, each of which a model is to predict */
typedef struct wf_gen_tokens {
    int32_t *ids;     /* [tokens] */
    int32_t *counted; /* [tokens], 1 or 0; NULL: all count */
    int64_t tokens;
    int64_t bytes; /* the bytes of the tokens that count; 0: no tokenizer is known */
} wf_gen_tokens;

/**
 * wf_gen_tokens_read - reads token ids, or text, which becomes ids
 *
 * @param path        a file as wf_dataset_open takes them: text, or ids (nn/dataset/dataset.h)
 * @param tokenizer   of the model; NULL: there is none, and text is refused
 * @param vocabulary  of the model: other ids are refused
 * Owner:   the caller, wf_gen_tokens_free, also after an error
 * Errors:  WF_EIO, WF_EDATA, WF_EINVAL (no token to predict, documents in lines of JSON),
 *          WF_ENOMEM
 */
WF_API wf_status wf_gen_tokens_read(const char *path, const wf_tok *tokenizer,
                                    int64_t vocabulary, wf_gen_tokens *read, wf_error *error);
WF_API void wf_gen_tokens_free(wf_gen_tokens *read);

WF_END_DECLS

#endif
