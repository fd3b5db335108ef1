/*
 * parallel/formats/gguf.h - what a GGUF file says beside its tensors: keys with a value or an array of them.
 */
#ifndef WF_PARALLEL_FORMATS_GGUF_H
#define WF_PARALLEL_FORMATS_GGUF_H

#include <stdbool.h>
#include <stdint.h>

/** wf_par_gguf_kind - of a value: uint32_t, int32_t, float, bool, wf_par_gguf_text. */
typedef enum wf_par_gguf_kind {
    WF_PAR_GGUF_U32,
    WF_PAR_GGUF_I32,
    WF_PAR_GGUF_F32,
    WF_PAR_GGUF_BOOL,
    WF_PAR_GGUF_TEXT
} wf_par_gguf_kind;

typedef struct wf_par_gguf_text {
    const char *text; /* no end is needed */
    int64_t bytes;
} wf_par_gguf_text;

/** wf_par_gguf_key - a name like "tokenizer.ggml.model", and the value, or `count` of them, that it has. */
typedef struct wf_par_gguf_key {
    const char *key;
    wf_par_gguf_kind kind;
    bool array;
    int64_t count; /* how many an array has */
    const void *values;
} wf_par_gguf_key;

#endif
