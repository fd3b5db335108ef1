/*
 * tests/nn/pretrained_case.h - a folder of Hugging Face in a test: loaded and compared with
 * transformers' logits, saved, and compared byte by byte.
 */
#ifndef WF_TESTS_NN_PRETRAINED_CASE_H
#define WF_TESTS_NN_PRETRAINED_CASE_H

#include "parallel/models/gpt/pretrained.h"
#include "tests/nn/model_ranks.h"
#include "tests/nn/safetensors_file.h"

enum { FOLDER = 256 };

typedef struct pretrained {
    const char *folder;
    safetensors *file; /* tokens and logits */
    double off;        /* the largest difference of a logit on rank 0, in largest logits */
    char saved[FOLDER];
    const char *dtype, *like;
    const char *reason; /* loading has to fail for it; NULL: it works */
} pretrained;

/* Bodies of a model_test, whose argument is a pretrained. */
wf_status compare_logits(model_rank *r, pretrained *p);
wf_status load_and_compare(model_rank *r, void *arg);
wf_status load_and_save(model_rank *r, void *arg);

/* Returns true where every tensor of one folder is in the other, with the same dtype, shape and
   bytes. */
bool same_tensors(const char *a, const char *b);

/* Removes a folder that has to be there. */
void remove_folder(const char *folder);

#endif
