/*
 * parallel/models/gpt/hf_writer_internal.h - a folder of Hugging Face that is being written: by
 * all ranks, each its parts, or by one process, a parameter at a time. Files have other names
 * until they are whole. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_WRITER_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_WRITER_INTERNAL_H

#include "core/files/output_internal.h"
#include "parallel/formats/safetensors_internal.h"
#include "parallel/models/gpt/hf_names_internal.h"

/* A file that is being written: what all ranks know of it. */
typedef struct wf_hf_writer {
    wf_nn_gpt *model;
    const wf_hf_family *family;
    const char *like; /* the folder that it is made of, or NULL */
    wf_nn_parameter **parameter;
    wf_hf_location *location; /* each parameter's */
    int64_t *entry_of;        /* number of the tensor in the file */
    int64_t count, entries;
    wf_safetensors_entry *entry;
    wf_safetensors_dtype dtype;
    bool whole; /* parameters are given whole, by one process */
    /* matrices between features are written in 4 bits, whole ones alone, all else as f32 */
    bool nf4;
    char *header;
    size_t header_bytes;
    wf_output *weights; /* open in the process that made the file */
    uint64_t mark;      /* in its name until it has its own: all ranks have to know it */
    wf_file file;
    wf_error error; /* the first one of all calls */
} wf_hf_writer;

/* Finds names and locations of all parameters. w has model and like; dtype as in
   wf_par_pretrained_save. */
wf_status wf_hf_writer_prepare(wf_hf_writer *w, const char *dtype);

/* The folder, and in it the file of weights with its size and header: one process does it,
   before others open, who get its mark. */
wf_status wf_hf_writer_create(wf_hf_writer *w, const char *path);

/* The file of weights, to be written; closed with all on the disk. */
wf_status wf_hf_writer_open(wf_hf_writer *w, const char *path);
wf_status wf_hf_writer_close(wf_hf_writer *w);

/* Returns true where parameter i is written in 4 bits, and so has to be given whole. */
bool wf_hf_writer_is_nf4(const wf_hf_writer *w, int64_t i);

/* A part of parameter i, whose elements lie row by row. */
wf_status wf_hf_writer_write(wf_hf_writer *w, int64_t i, const wf_part *part,
                             const float *from);

/* All names as readers look for them: one process does it, after all have closed. */
wf_status wf_hf_writer_publish(wf_hf_writer *w, const char *path);

/* A file that has not been published is removed. */
void wf_hf_writer_free(wf_hf_writer *w);

#endif
