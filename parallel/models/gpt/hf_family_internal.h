/*
 * parallel/models/gpt/hf_family_internal.h - families of transformers' models, and the rows of
 * hf_config.def as data: the keys of their config.json. Not installed.
 */
#ifndef WF_PARALLEL_MODELS_GPT_HF_FAMILY_INTERNAL_H
#define WF_PARALLEL_MODELS_GPT_HF_FAMILY_INTERNAL_H

#include "nn/models/gpt/gpt.h"

/* A family by number, WF_HF_FAMILY_llama. `all` is an ancestor of each, `none` is no family. */
typedef enum wf_hf_family_id {
    WF_HF_FAMILY_all = -2,
    WF_HF_FAMILY_none,
#define FAMILY(type, ...) WF_HF_FAMILY_##type,
#include "nn/models/gpt/families.def"
#undef FAMILY
} wf_hf_family_id;

typedef struct wf_hf_family {
    const char *type, *class;
    wf_hf_family_id parent;
    const char *base;
} wf_hf_family;

typedef enum wf_hf_kind {
    WF_HF_INT,
    WF_HF_COUNT,
    WF_HF_WINDOW,
    WF_HF_SWITCH,
    WF_HF_REAL,
    WF_HF_WHOLE,
    WF_HF_CAP,
    WF_HF_ROOT,
    WF_HF_INVERSE,
    WF_HF_BOOL,
    WF_HF_WORD,
    WF_HF_SKIP,
    WF_HF_FACTORS,
    WF_HF_LAYER_TYPES,
    WF_HF_SPARSE_STEP,
    WF_HF_MIXED_LAYERS,
    WF_HF_DENSE_LAYERS,
    WF_HF_MUST,
    WF_HF_EACH,
    WF_HF_IGNORE,
    WF_HF_WRITE_ONLY
} wf_hf_kind;

typedef struct wf_hf_key {
    wf_hf_family_id family;
    wf_hf_kind kind;
    const char *key, *others;
    size_t offset, size; /* the field's, in wf_nn_gpt_config */
    double least, most;
    const char *words, *standard;
} wf_hf_key;

enum { WF_HF_PATH = 96, WF_HF_ROWS = 512 /* no family has as many */ };

/* Return a family by model_type, NULL: there is none; by number from 0, NULL after the last. */
const wf_hf_family *wf_hf_family_find(const char *type);
const wf_hf_family *wf_hf_family_at(int i);

/* Returns the number of steps from a family up to another, whose rows it inherits: 0 itself, 1
   its parent, ..; -1: it is no ancestor. WF_HF_FAMILY_all is above all. */
int wf_hf_family_distance(const wf_hf_family *family, wf_hf_family_id other);

/* Lists the rows that are a family's, in the order of all; returns how many. */
int wf_hf_keys(const wf_hf_family *family, const wf_hf_key *rows[WF_HF_ROWS]);

/* Writes the next path of a row's value: its key, then others. `cursor` is NULL at first; false
   after the last one. */
bool wf_hf_key_path(const wf_hf_key *row, const char **cursor, char path[WF_HF_PATH]);

/* Return true where a row of the family has a value at a path ("a.b" is b of the object a), or
   values below it. */
bool wf_hf_key_known(const wf_hf_family *family, const char *path);
bool wf_hf_key_has_members(const wf_hf_family *family, const char *path);

/* All families, as "gpt2, llama, .. and qwen3". */
void wf_hf_family_list(char *text, size_t size);

#endif
