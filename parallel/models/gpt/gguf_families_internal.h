/* parallel/models/gpt/gguf_families_internal.h - rows of families.def as files of llama.cpp
   have them: the table (gguf_families.c), and the row of a model (gguf_match.c). Not
   installed. */
#ifndef WF_PARALLEL_MODELS_GPT_GGUF_FAMILIES_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_GGUF_FAMILIES_INTERNAL_H

#include "parallel/models/gpt/gguf_names_internal.h"

/* Words of families.def; the last four are of models alone. */
enum {
    NO_GGUF = 0,
    IN_GGUF = 1,
    ROTATES_NEIGHBOURS = 1 << 1,
    ONE_QKV = 1 << 2,
    ONE_MLP = 1 << 3,
    MAY_BIAS = 1 << 4,
    HAS_SCALES = 1 << 5,
    HAS_LONG_ROPE = 1 << 6,
    IS_TIED = 1 << 7,
    PART_ROTATES = 1 << 8,
    IS_UNTIED = 1 << 9,
    FULL_HEADS = 1 << 10,
    MAY_QKV_BIAS = 1 << 11,
    MAY_PARALLEL = 1 << 12,
    HAS_CAPS = 1 << 13,
    LOGIT_FACTOR = 1 << 14,
    HAS_WINDOWS = 1 << 15,
    AS_LLAMA4 = 1 << 16,
    QKV_BIAS = 1 << 17,
    OTHER_BIAS = 1 << 18,
    QK_NORM = 1 << 19,
    ROPE_SKIP = 1 << 20,
};

/* A family that may be in GGUF files: a row of families.def. */
typedef struct wf_gguf_family_row {
    const char *name;
    unsigned words; /* 0: it is in none */
    wf_nn_gpt_config config;
} wf_gguf_family_row;

/* Returns row i; NULL after the last one. */
const wf_gguf_family_row *wf_gguf_family_at(int i);

/* Returns llama.cpp's name of a family. */
const char *wf_gguf_architecture_of(const wf_gguf_family_row *family);

/* Returns the row of a model; NULL: llama.cpp has none of these properties. */
const wf_gguf_family_row *wf_gguf_family_of(const wf_nn_gpt_config *model);

/* Returns what a model has that not all have, words from QKV_BIAS on; true where all else is
   that of llama.cpp's Phi-3. */
unsigned wf_gguf_traits_of(const wf_nn_gpt_config *model);
bool wf_gguf_may_be_phi3(const wf_nn_gpt_config *model);

#endif
