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

/* Returns what a model without an architecture has that is not written, in words. */
const char *wf_gguf_missing(const wf_nn_gpt_config *model);

/* The location of a parameter in a file: a tensor, and its first row there. */
typedef struct wf_gguf_location {
    char name[WF_GGUF_NAME];
    int64_t row, rows; /* its first row there, and how many the tensor has */
    /* number of heads whose rows are in llama.cpp's order of rotation; 0: in ours */
    int64_t heads;
    float added; /* theirs is ours and this: 1 of gains that are 1 + the parameter */
} wf_gguf_location;

/* The order of parameters in files of a model: queries, keys and values as one tensor, gate
   and up as one, rows of queries and keys in llama.cpp's order of rotation. */
typedef struct wf_gguf_layout {
    bool found; /* false: of no model that llama.cpp has */
    bool one_qkv, one_mlp, rotates_neighbours;
} wf_gguf_layout;

/* architecture: a file's, or NULL for the model's own */
wf_gguf_layout wf_gguf_layout_of(const char *architecture, const wf_nn_gpt_config *model);

/* False where llama.cpp has no such model, or parameter. architecture: a file's, or NULL for
   the model's own. */
bool wf_gguf_location_of(const char *architecture, const wf_nn_gpt_config *model,
                         const wf_nn_parameter *parameter, wf_gguf_location *location);

/* The row of ours that is a row of a parameter in the file. */
int64_t wf_gguf_row(const wf_gguf_location *location, int64_t rows, int64_t row);

/* Back: the row of a parameter in the file that is a row of ours. */
int64_t wf_gguf_file_row(const wf_gguf_location *location, int64_t rows, int64_t row);

/* Returns the properties of an architecture's models, those with experts or without; NULL:
   there are none here. */
const wf_nn_gpt_config *wf_gguf_family(const char *architecture, bool experts);

/* Return true where models of this architecture may be here; where a part of their heads may be
   rotated, or factors of rotation be two lists. The third writes all names, with commas in
   between. */
bool wf_gguf_is_architecture(const char *name);
bool wf_gguf_has_long_rope(const char *architecture);
void wf_gguf_architectures(char *text, size_t size);

/* Return true where files of an architecture have a key that those of others have not, without
   the architecture's name; where a part of a head may be rotated; where logit_scale multiplies
   logits, which it divides elsewhere; where there are factors of embeddings, scores, residuals
   and logits. */
bool wf_gguf_reads(const char *architecture, const char *key);
bool wf_gguf_part_rotates(const char *architecture);
bool wf_gguf_multiplies_logits(const char *architecture);
bool wf_gguf_reads_scales(const char *architecture);

/* Returns the factor of scores of a Gemma 2 or 3, which llama.cpp knows by the number of
   blocks. */
double wf_gguf_scale_by_depth(const wf_nn_gpt_config *model);

/* Windows (gguf_windows.c). The first returns what of them files of an architecture can't say,
   in words; NULL: nothing. The others write their keys, and read them; an architecture without
   windows has none. */
const char *wf_gguf_windows_missing(const char *architecture, const wf_nn_gpt_config *model);
void wf_gguf_put_windows(wf_gguf_header *h, const char *architecture,
                         const wf_nn_gpt_config *model);
wf_status wf_gguf_read_windows(const wf_par_gguf *g, const char *path, const char *architecture,
                               wf_nn_gpt_config *model, wf_error *error);

/* Return true for Llama 4's architecture; what llama.cpp takes for granted of it that a model
   has otherwise, in words, or NULL; and n of a model whose every n-th block is a mixture
   (gguf_llama4.c). */
bool wf_gguf_is_llama4(const char *architecture);
const char *wf_gguf_llama4_missing(const wf_nn_gpt_config *model);
int64_t wf_gguf_llama4_step(const wf_nn_gpt_config *model);

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

/* Returns what a file says of YaRN's factor of cosines and sines: by how much a model's differs
   from YaRN's own. The other one returns a model's factor of which a file says this, in the
   fewest digits. */
double wf_gguf_yarn_factor(const wf_nn_gpt_config *model);
double wf_gguf_yarn_attention(const wf_nn_gpt_config *model, double by);

/* The tensors of WF_ROPE_LONG's factors. */
#define WF_GGUF_LONG_FACTORS  "rope_factors_long.weight"
#define WF_GGUF_SHORT_FACTORS "rope_factors_short.weight"

/* The scaling that has these factors, head size / 2 of them; false: none has. */
bool wf_gguf_find_scaling(wf_nn_gpt_config *model, const float *factors);

#endif
