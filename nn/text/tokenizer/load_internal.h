/*
 * nn/text/tokenizer/load_internal.h - readers of the files of tokenizers. Each gets an empty
 * tokenizer and fills it; the caller frees it where that fails.
 */
#ifndef WF_NN_TEXT_TOKENIZER_LOAD_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_LOAD_INTERNAL_H

#include "nn/text/json.h"
#include "nn/text/tokenizer/tokenizer_internal.h"

/* The largest files of known models have 33 MB. */
enum { WF_TOK_MOST_FILE = 128 << 20, WF_TOK_MOST_PATH = 4096 };

/* Reads a whole file. Owner: the caller, free. WF_EIO also where it is no regular file;
   WF_EDATA where it is larger than WF_TOK_MOST_FILE. */
wf_status wf_tok_file_read(const char *path, char **text, size_t *bytes, wf_error *error);
bool wf_tok_file_there(const char *path);
/* Writes the path of another file in the folder of a file. */
void wf_tok_file_beside(const char *path, const char *name, char out[WF_TOK_MOST_PATH]);

/* Readers by kind. */
wf_status wf_tok_load_hf(wf_tok *t, const wf_text_json *json);
wf_status wf_tok_load_tekken(wf_tok *t, const wf_text_json *json);
wf_status wf_tok_load_tiktoken(wf_tok *t, const char *path, const char *text, size_t bytes,
                               wf_error *error);
wf_status wf_tok_load_sentencepiece(wf_tok *t, const char *path, const char *text, size_t bytes,
                                    wf_error *error);
/* Ranks ids by their scores: the best score goes first; pieces of one score have one rank.
   WF_ENOMEM. */
wf_status wf_tok_load_rank_scores(const float *scores, int32_t count, int32_t *rank_of,
                                  int32_t *ranks);
/* Checks the text of a tokenizer.json; errors as of wf_tok_open, with `name` in them. */
wf_status wf_tok_check(const char *name, const char *text, size_t bytes, wf_error *error);
/* vocab.json, read already, with the merges.txt beside it. */
wf_status wf_tok_load_merges(wf_tok *t, const wf_text_json *json);

/* hf_model.c: vocabulary, merges and added tokens of tokenizer.json. */
wf_status wf_tok_hf_model(wf_tok *t, const wf_text_json *json, uint32_t model);
wf_status wf_tok_hf_vocabulary(wf_tok *t, const wf_text_json *json, uint32_t vocabulary);
wf_status wf_tok_hf_added(wf_tok *t, const wf_text_json *json, uint32_t list);
/* Returns the id of a merge's or an added token's text; -1: there is none. */
int32_t wf_tok_hf_piece(const wf_tok *t, const char *text, size_t bytes);
/* Returns the id that a text has in the model's vocabulary as it stands in the file, also one
   that is not of letters of bytes; -1: there is none. */
int32_t wf_tok_hf_model_id(const wf_tok *t, const char *text, size_t bytes);
/* Adds an added token; returns NULL, or the error. */
const char *wf_tok_load_added(wf_tok *t, const wf_tok_added *token, bool normalized);

/* hf_steps.c: normalizers and pre-tokenizers; hf_decoder.c: decoders and templates. */
wf_status wf_tok_hf_normalizer(wf_tok *t, const wf_text_json *json, uint32_t value);
wf_status wf_tok_hf_pre_tokenizer(wf_tok *t, const wf_text_json *json, uint32_t value);
wf_status wf_tok_hf_decoder(wf_tok *t, const wf_text_json *json, uint32_t value);
wf_status wf_tok_hf_template(wf_tok *t, const wf_text_json *json, uint32_t value);

/* Refuses a key of an object that is in none of these words, which blanks separate. */
wf_status wf_tok_hf_keys(const wf_text_json *json, uint32_t object, const char *known);
/* Returns the "type" of an object; "" where there is none, which is refused. */
const char *wf_tok_hf_type(const wf_text_json *json, uint32_t object);

/* Adds a split by a pattern of Rust's. `name` is the file's. */
wf_status wf_tok_load_split(wf_tok *t, const char *pattern, size_t bytes, const char *name,
                            wf_error *error);
/* Adds a merge for every two tokens whose bytes are a token, the smallest id first; every byte
   has to be a token. */
wf_status wf_tok_load_merge_by_id(wf_tok *t, const char *name, wf_error *error);
/* Adds a normalizer to NFC; WF_EUNSUPPORTED where the program was built without it. */
wf_status wf_tok_load_nfc(wf_tok *t, const char *name, wf_error *error);
/* Words of models of characters that begin at U+2581, as far as no merge goes across. */
bool wf_tok_load_safe_words(wf_tok *t);

/* Replaces a text in what each token decodes to; false: out of memory. */
bool wf_tok_load_decode_replaced(wf_tok_lexicon *v, const char *from, size_t bytes,
                                 const char *to, size_t to_bytes);

/* Decodes GPT-2's letters for bytes into room for as many bytes; -1: other letters are in the
   text. */
int64_t wf_tok_letters_to_bytes(const char *text, size_t bytes, char *out);
/* Writes the letter of a byte as UTF-8, of at most 2 bytes; returns how many. */
int wf_tok_letter_of_byte(uint8_t byte, uint8_t out[4]);

/* hf_beside.c: a file in JSON beside another one; false: there is none, or none that can be
   read, which is the error. */
bool wf_tok_open_beside(const char *path, const char *name, wf_text_json *json,
                        char beside[WF_TOK_MOST_PATH], wf_error *error);
/* Adds the tokens that tokenizer_config.json, added_tokens.json and special_tokens_map.json
   have beside the vocabulary. */
wf_status wf_tok_hf_beside(wf_tok *t, const char *path, wf_error *error);
/* Refuses the tokens of the same files that a model of SentencePiece beside them has not. */
wf_status wf_tok_hf_beside_model(const wf_tok *t, const char *path, wf_error *error);
/* add_prefix_space of tokenizer_config.json, beside a vocab.json with merges.txt or a
   tokenizer.json: a step more, where it may be, or refused where steps say something else. */
wf_status wf_tok_hf_front(wf_tok *t, const char *path, bool merges, bool may, wf_error *error);
/* Returns the id that tokenizers give an added token which the vocabulary has not. */
int32_t wf_tok_hf_next_id(const wf_tok *t);
/* Refuses an added token whose id is another one than tokenizers give it. */
wf_status wf_tok_hf_added_id(const wf_tok *t, const wf_text_json *json, uint32_t value,
                             const char *text, size_t bytes, int32_t id);
/* Makes a text a special token, with its id or the next one. Returns NULL, or the error. */
const char *wf_tok_hf_special(wf_tok *t, const char *text, size_t bytes);

/* Loads the begin and the end of documents, as tokenizer_config.json and config.json in a
   file's folder have them, where they are not known yet. */
wf_status wf_tok_load_ends(wf_tok *t, const char *path, wf_error *error);

/* Decodes base64 without line ends into room for as many bytes; -1: it is none. */
int64_t wf_tok_base64(const char *text, size_t bytes, char *out);

#endif
