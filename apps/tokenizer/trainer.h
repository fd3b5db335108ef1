/*
 * apps/tokenizer/trainer.h - byte-level BPE of one's own texts.
 *
 * Words are cut as Llama 3 cuts them. The two tokens that stand beside each other most often become one, of
 * those that do equally often the ones with the smaller ids, first the left one; until there are enough
 * tokens, or nothing stands beside each other twice. So the vocabulary is a function of how often each word
 * is there, and of nothing else: threads and the order of files do not show.
 *
 *     app_tokenizer_untrained(&tokenizer, &error);              where texts may be cut
 *     app_tokenizer_counter_new(tokenizer, &counter, &error);   one a thread, added up with ..._add
 *     app_tokenizer_count(counter, text, bytes, &error);
 *     app_tokenizer_train(counter, 32000, "folder", &size, &error);
 */
#ifndef WF_APPS_TOKENIZER_TRAINER_H
#define WF_APPS_TOKENIZER_TRAINER_H

#include "apps/tokenizer/tokenizer.h"

typedef struct app_tokenizer_counter app_tokenizer_counter;

/** app_tokenizer_untrained - the tokenizer that training begins with: each byte of a word is a token. Errors:
 * WF_EUNSUPPORTED (built without PCRE2), WF_ENOMEM. Owner: the caller, app_tokenizer_close. */
wf_status app_tokenizer_untrained(app_tokenizer **tokenizer, wf_error *error);

/** app_tokenizer_counter_new - counts words. Errors: WF_ENOMEM. Owner: the caller,
 * app_tokenizer_counter_free, which NULL may be given. */
wf_status app_tokenizer_counter_new(const app_tokenizer *untrained,
                                    app_tokenizer_counter **counter, wf_error *error);
void app_tokenizer_counter_free(app_tokenizer_counter *counter);

/** app_tokenizer_count - counts the words of a text. Errors: WF_EDATA, WF_ENOMEM. */
wf_status app_tokenizer_count(app_tokenizer_counter *counter, const char *text, size_t bytes,
                              wf_error *error);

/** app_tokenizer_counter_add - adds what another one has counted. Errors: WF_ENOMEM. */
wf_status app_tokenizer_counter_add(app_tokenizer_counter *counter,
                                    const app_tokenizer_counter *other, wf_error *error);

/**
 * app_tokenizer_train - makes a vocabulary and writes it to a folder, which is made where it is missing:
 *                       tokenizer.json, and tokenizer_config.json, which says how a text ends
 *
 * @param vocabulary  tokens: 256 bytes, then what merges make, and last <|endoftext|>; at least 257
 * @param size        as many as there are, fewer where texts have too few words
 * Errors: WF_EIO (file and reason), WF_ENOMEM
 */
wf_status app_tokenizer_train(const app_tokenizer_counter *counter, int32_t vocabulary,
                              const char *folder, int32_t *size, wf_error *error);

#endif
