/* nn/layers/lora.h - low-rank adaptation: linears of a model, and experts of mixtures, get
   adapters, and all else is frozen (Hu et al. 2021). */
#ifndef WF_NN_LAYERS_LORA_H
#define WF_NN_LAYERS_LORA_H

#include "nn/layers/moe.h"

WF_BEGIN_DECLS

#define WF_NN_ALL_LINEAR "all-linear"
#define WF_NN_EXPERTS    "experts"

typedef struct wf_nn_lora_options {
    int64_t rank;
    double alpha;         /* adapters are scaled by alpha / rank */
    bool rank_stabilized; /* or by alpha / sqrt(rank) (Kalajdzievski 2023) */
    float dropout; /* the share of A's input that is dropped in training, not of experts */
    int site;      /* the first dropout site that no other module has */
    /* Names of linears, with commas in between: "q,v"; WF_NN_ALL_LINEAR: all but heads, of
       which experts are none; WF_NN_EXPERTS: those of all mixtures. */
    const char *targets;
    /* Parameters that are trained whole beside adapters: paths as wf_nn_freeze takes them, with
       commas in between, or NULL. */
    const char *train;
} wf_nn_lora_options;

/**
 * wf_nn_lora - adapts the linears of a model with these names, and experts (wf_nn_moe_adapt),
 * and freezes every other parameter but `train`
 *
 * @param root  named, not planned; it is renamed
 * Errors:  WF_EINVAL: rank below 1, alpha or dropout out of range, no linear of such a name, a
 *          head that is tied to its embedding, no parameter at a path of `train`; WF_ENOMEM
 */
WF_API wf_status wf_nn_lora(wf_nn_module *root, const wf_nn_lora_options *options);

WF_END_DECLS

#endif
