/*
 * parallel/models/gpt/gguf_names_internal.h - how llama.cpp calls a model of
 * nn/models/gpt/gpt.h: its architecture, its sizes as keys, its parameters as tensors. Not
 * installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_GGUF_NAMES_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_GGUF_NAMES_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include "parallel/formats/gguf_internal.h"

/* Returns true where llama.cpp has models of these properties; the functions below take those
   alone. */
bool wf_gguf_has(const wf_nn_gpt_config *model);

/* Returns the architecture of a model's file; NULL: there is none. */
const char *wf_gguf_architecture(const wf_nn_gpt_config *model);

/* Returns true where embeddings, scores, residuals or logits have a factor. */
bool wf_gguf_is_scaled(const wf_nn_gpt_config *model);

/* Returns the property of a model's RoPE that is not written here, in words; NULL: none. */
const char *wf_gguf_rope_missing(const wf_nn_gpt_config *model);

/* The location of a parameter in a file: a tensor, and its first row there. */
typedef struct wf_gguf_place {
    char name[WF_GGUF_NAME];
    int64_t row, rows; /* its first row there, and how many the tensor has */
    /* number of heads whose rows are in llama.cpp's order of rotation; 0: in ours */
    int64_t heads;
} wf_gguf_place;

/* False where llama.cpp has no such model, or parameter. architecture: a file's, or NULL for
   the model's own. */
bool wf_gguf_place_of(const char *architecture, const wf_nn_gpt_config *model,
                      const wf_nn_parameter *parameter, wf_gguf_place *place);

/* The row of ours that is a row of a parameter in the file. */
int64_t wf_gguf_row(const wf_gguf_place *place, int64_t rows, int64_t row);

/* Back: the row of a parameter in the file that is a row of ours. */
int64_t wf_gguf_file_row(const wf_gguf_place *place, int64_t rows, int64_t row);

/* Returns the properties of an architecture's models, those with experts or without; NULL:
   there are none here. */
const wf_nn_gpt_config *wf_gguf_family(const char *architecture, bool experts);

/* Return true where models of this architecture may be here; where a part of their heads may be
   rotated, or factors of rotation be two lists. The third writes all names, with commas in
   between. */
bool wf_gguf_is_architecture(const char *name);
bool wf_gguf_has_long_rope(const char *architecture);
void wf_gguf_architectures(char *text, size_t size);

/* Returns true where a file of this architecture may hold a model of these properties. */
bool wf_gguf_fits(const char *architecture, const wf_nn_gpt_config *model);

/* The keys "general.architecture" and "ARCHITECTURE.block_count" to
   "ARCHITECTURE.vocab_size". */
void wf_gguf_put_config(wf_gguf_header *h, const wf_nn_gpt_config *model);

/* Writes the divisors of Llama 3.1's scaling, one for the frequency of each pair of a head:
   head size / 2 of them. */
void wf_gguf_rope_factors(const wf_nn_gpt_config *model, float *factors);

/* Returns the factor of WF_ROPE_LONG's cosines and sines. */
double wf_gguf_attention_factor(const wf_nn_gpt_config *model);

/* The tensors of WF_ROPE_LONG's factors. */
#define WF_GGUF_LONG_FACTORS  "rope_factors_long.weight"
#define WF_GGUF_SHORT_FACTORS "rope_factors_short.weight"

/* The scaling that has these factors, head size / 2 of them; false: none has. */
bool wf_gguf_find_scaling(wf_nn_gpt_config *model, const float *factors);

#endif
