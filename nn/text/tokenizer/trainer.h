/*
 * nn/text/tokenizer/trainer.h - trains a tokenizer: byte-level BPE of one's own texts.
 *
 * Words are cut as Llama 3 cuts them. The two adjacent tokens that occur most often are merged,
 * of equally frequent pairs the one with the smaller ids, first the left one; until there are
 * enough tokens, or no pair occurs twice. So the vocabulary is a function of the frequency of
 * each word alone: threads and the order of files do not show.
 *
 *     wf_tok_untrained(&tokenizer, &error);              where texts may be cut
 *     wf_tok_counter_new(tokenizer, &counter, &error);   one a thread, added up with ..._add
 *     wf_tok_count(counter, text, bytes, &error);
 *     wf_tok_train(counter, 32000, "folder", &size, &error);
 */
#ifndef WF_NN_TEXT_TOKENIZER_TRAINER_H
#define WF_NN_TEXT_TOKENIZER_TRAINER_H

#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

typedef struct wf_tok_counter wf_tok_counter;

/**
 * wf_tok_untrained - makes the tokenizer that training begins with: each byte of a word is a
 * token. Errors: WF_EUNSUPPORTED (built without PCRE2), WF_ENOMEM. Owner: the caller,
 * wf_tok_close. Errors: WF_EUNSUPPORTED (built without PCRE2), WF_ENOMEM. Owner: the caller,
 * wf_tok_close.
 */
WF_API wf_status wf_tok_untrained(wf_tok **tokenizer, wf_error *error);

/** wf_tok_counter_new - makes a counter of words. Errors: WF_ENOMEM. Owner: the caller,
 * wf_tok_counter_free, which takes NULL. */
WF_API wf_status wf_tok_counter_new(const wf_tok *untrained, wf_tok_counter **counter,
                                    wf_error *error);
WF_API void wf_tok_counter_free(wf_tok_counter *counter);

/** wf_tok_count - counts the words of a text. Errors: WF_EDATA, WF_ENOMEM. */
WF_API wf_status wf_tok_count(wf_tok_counter *counter, const char *text, size_t bytes,
                              wf_error *error);

/** wf_tok_counter_add - adds the counts of another counter. Errors: WF_ENOMEM. */
WF_API wf_status wf_tok_counter_add(wf_tok_counter *counter, const wf_tok_counter *other,
                                    wf_error *error);

/**
 * wf_tok_train - makes a vocabulary and writes it to a folder, which is made where it is
 * missing: tokenizer.json, and tokenizer_config.json, with the token that ends a text
 *
 * @param vocabulary  tokens: 256 bytes, then merges, and last <|endoftext|>; at least 257
 * @param size        filled: their number, smaller where texts have too few words
 * Errors: WF_EIO (file and reason), WF_ENOMEM
 */
WF_API wf_status wf_tok_train(const wf_tok_counter *counter, int32_t vocabulary,
                              const char *folder, int32_t *size, wf_error *error);

WF_END_DECLS

#endif
