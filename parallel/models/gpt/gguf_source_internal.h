/*
 * parallel/models/gpt/gguf_source_internal.h - a GGUF file's keys as a config: sizes and
 * numbers by name (gguf_source.c), how heads rotate (gguf_rotation.c), all else
 * (gguf_config.c). Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_GGUF_SOURCE_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_GGUF_SOURCE_INTERNAL_H

#include "parallel/models/gpt/gguf_names_internal.h"
#include "parallel/models/gpt/gguf_weights_internal.h"

enum { WF_GGUF_KEY = 128 };

/* A file whose keys are read; the first error is kept, and nothing after it counts. */
typedef struct wf_gguf_source {
    const wf_par_gguf *g;
    const char *path, *arch;
    bool *used; /* the file's: what the config is read from counts as read */
    wf_error *error;
} wf_gguf_source;

/* Writes "ARCHITECTURE.key"; returns text. */
const char *wf_gguf_full_key(const wf_gguf_source *s, const char *key, char text[WF_GGUF_KEY]);

/* Reads a size of at least 1; the default where the key is missing, or, with default 0, an
   error. */
int64_t wf_gguf_size_or(wf_gguf_source *s, const char *key, int64_t standard);

/* Reads a number from 0 on; the default where the key is missing, or, with default NAN, an
   error. */
double wf_gguf_number_or(wf_gguf_source *s, const char *key, double standard);

/* Reads which features of a head rotate and how they are scaled, from keys and tensors of
   factors, and a Phi-3's window. */
void wf_gguf_read_rotation(wf_gguf_source *s, const wf_file *file, wf_nn_gpt_config *model);

/* Reads which blocks of a Llama 4 are mixtures, and sets what all of these have
   (gguf_llama4.c). */
void wf_gguf_read_llama4(wf_gguf_source *s, wf_nn_gpt_config *model);

#endif
