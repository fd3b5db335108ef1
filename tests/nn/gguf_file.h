/* tests/nn/gguf_file.h - reads a GGUF file whole, by what its format says. */
#ifndef WF_TESTS_NN_GGUF_FILE_H
#define WF_TESTS_NN_GGUF_FILE_H

#include "parallel/models/gpt/pretrained.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GGUF_TENSORS = 64, GGUF_NAME = 80 };

typedef struct gguf_tensor {
    char name[GGUF_NAME];
    uint32_t dims, type;
    uint64_t size[4], offset; /* the fastest dim first */
    const char *data;
} gguf_tensor;

/* A file, and how far it has been read. */
typedef struct gguf_file {
    char *bytes; /* free it */
    size_t count, at;
    bool bad;
    uint64_t tensors, keys;
    size_t data;
    gguf_tensor tensor[GGUF_TENSORS];
} gguf_file;

/* Reads a file; an assertion fails where it is damaged, or tensors do not lie one after
   another, each from a multiple of 32 on, with zeros between them, up to its end. */
void gguf_read(gguf_file *f, const char *path);

/* Returns the offset of the value of a key of this kind; 0: there is no such key. */
size_t gguf_value(gguf_file *f, const char *key, uint64_t kind);
/* A key of kind u32; UINT32_MAX: there is none. */
uint32_t gguf_number(gguf_file *f, const char *key);

const gguf_tensor *gguf_find(const gguf_file *f, const char *name);

/* The model of a folder of Hugging Face as a file, with these keys more. */
wf_status gguf_save(const char *folder, wf_par_gguf_type type, const wf_par_gguf_key *keys,
                    int64_t count, const char *path, wf_error *error);

#endif
