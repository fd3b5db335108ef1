/*
 * parallel/models/gpt/hf_nf4_internal.h - matrices of 4 bits in a folder of Hugging Face, as
 * bitsandbytes stores them. Not installed.
 *
 * Beside a tensor "w" of u8, two numbers in a byte, lie "w.absmax" (a scale for each 64
 * numbers: f32, or codes of u8), "w.quant_map", "w.quant_state.bitsandbytes__nf4" (JSON in u8)
 * and, where scales are codes, "w.nested_absmax" and "w.nested_quant_map".
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_NF4_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_NF4_INTERNAL_H

#include "core/nf4_tensor.h"
#include "parallel/formats/hf_files_internal.h"

typedef struct wf_hf_nf4 {
    int64_t numbers, blocks;
    bool nested;      /* scales are codes */
    int64_t file, at; /* position of the numbers */
    uint8_t *code;    /* [blocks], of nested scales */
    float *scales;    /* [1 + nested], of nested scales */
    float *absmax;    /* [blocks]: the scales themselves */
} wf_hf_nf4;

/* The fields of a quant_state that Weft reads: supported block sizes, and the matrix's
   shape. */
typedef struct wf_hf_nf4_state {
    bool nested;   /* scales are codes */
    double offset; /* codes of scales represent what is above it */
} wf_hf_nf4_state;

/* Parses {"quant_type": "nf4", "blocksize": 64, "shape": [n, m], "nested_blocksize": 256,
   "nested_offset": x, ..}; errors begin with `name`. WF_EDATA, WF_EUNSUPPORTED (other blocks),
   WF_ENOMEM */
wf_status wf_hf_nf4_state_parse(wf_hf_nf4_state *state, const char *name, const char *text,
                                size_t bytes, int ndim, const int64_t *shape, wf_error *error);

/* Reads the tensors beside a tensor of u8 in file number `file`. WF_EDATA with its name where
   something is missing, is no NF4, or is not of a matrix of this shape; WF_EIO, WF_ENOMEM.
   Owner: caller, wf_hf_nf4_close, always. */
wf_status wf_hf_nf4_open(wf_hf_nf4 *q, wf_hf_files *files, int64_t file,
                         const wf_safetensors_entry *entry, int ndim, const int64_t *shape,
                         wf_error *error);
void wf_hf_nf4_close(wf_hf_nf4 *q);

/* n numbers from number `first` on, as floats. `reader` reads the file that they lie in. */
wf_status wf_hf_nf4_read(const wf_hf_nf4 *q, const wf_file *reader, int64_t first, int64_t n,
                         float *to, wf_error *error);

/* This rank's part as it is stored: codes and scales are those of the file. */
wf_status wf_hf_nf4_store(const wf_hf_nf4 *q, const wf_file *reader, wf_tensor *t,
                          wf_error *error);

enum {
    WF_HF_NF4_ENTRIES = 6, /* tensors that a matrix is in a file */
    WF_HF_NF4_STATE = 256  /* bytes of the quant_state that is written */
};

/* The tensors of a matrix that is called so. Owner of their names: caller, free; also after an
   error (WF_ENOMEM). */
wf_status wf_hf_nf4_describe(const char *name, int64_t height, int64_t width,
                             wf_safetensors_entry *entry, wf_error *error);

/* Write them, of a whole matrix, into a file whose data begin at `data`. */
wf_status wf_hf_nf4_write(const wf_file *file, int64_t data, const wf_safetensors_entry *entry,
                          int64_t height, int64_t width, const float *values, wf_error *error);

#endif
