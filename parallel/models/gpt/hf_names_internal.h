/*
 * parallel/models/gpt/hf_names_internal.h - where transformers keep a parameter of
 * nn/models/gpt/gpt.h: under which name, and in which shape, by the rows of hf_names.def.
 * GPT-2's linears (Conv1D) are [in, out]; a Llama's are [out, in] as Weft's, and its rotation
 * pairs i with i + half a head, as wf_rope does. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_NAMES_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_NAMES_INTERNAL_H

#include "nn/models/gpt/gpt.h"
#include "core/files/part_internal.h"
#include "parallel/models/gpt/hf_family_internal.h"

enum { WF_HF_NAME = 256 };

/* Element (o, i) of the parameter is theirs[offset + o, i], or theirs[i, offset + o]; (e, o, i)
   where its dim 1 is divided, theirs[e, offset + o, i], or theirs[e, i, offset + o]. */
typedef struct wf_hf_location {
    char name[WF_HF_NAME]; /* as LMHeadModel or ForCausalLM save it */
    const char
        *base;       /* the beginning of name that a model saved without its head leaves away */
    bool transposed; /* each matrix, where there are several */
    int64_t offset;
    int divided; /* the parameter's dim that the offset is of */
    /* 0, or rows of the parameter that lie side by side, as a head's do, and the distance in
       theirs from such a run to the next: row o is theirs[offset + o / run * stride + o %
       run] */
    int64_t run, stride;
    /* 0, or one tensor for each index of dim 0, whose number is E in the name: they lie one
       after the other where Weft writes them */
    int64_t pieces;
    /* factors of adapters of experts, whose tensor is [experts * rank, columns], or [rows, rank
       * experts], beginning at this row or column; of ours the rank is the last dim in the
       first case, dim 1 in the second, where a factor is the other one in theirs */
    bool factor_a, factor_b, factor_swapped;
    int64_t factor_row, factor_column;
    int ndim;
    int64_t shape[WF_MAX_DIMS]; /* the shape of theirs */
} wf_hf_location;

/* False where models of the family have no such parameter. */
bool wf_hf_location_of(const wf_hf_family *family, const wf_nn_gpt_config *model,
                       const wf_nn_parameter *parameter, wf_hf_location *location);

/* Finds the location of the tensor of one index of dim 0; `location` itself where there is one
   tensor. */
void wf_hf_location_piece(const wf_hf_location *location, int64_t i, wf_hf_location *one);

/* The name of the tensor that a parameter without a block's number lies in; false: the family
   has none. */
bool wf_hf_name_of(const wf_hf_family *family, const char *path, char name[WF_HF_NAME]);

/* Returns the position of a rank's part of the parameter in the file's tensor: [start, start +
   local) of each dim. */
wf_part wf_hf_part(const wf_hf_location *location, const wf_tensor *parameter);

/* Returns the row of theirs that row `row` of a rank's part is, and how many from it on lie
   side by side. */
int64_t wf_hf_row(const wf_hf_location *location, const wf_part *part, int64_t row,
                  int64_t *together);

/* Tensors of their files that are no parameters: masks and angles that older versions saved. */
bool wf_hf_idle(const char *name);

/* "block.N.norm1" against "block.3.norm1"; the number is put into *block. */
bool wf_hf_matches(const char *pattern, const char *path, int64_t *block);

/* "model.layers.N.mlp" with the number in it. */
void wf_hf_write_name(char text[WF_HF_NAME], const char *theirs, int64_t block);

#endif
