/*
 * parallel/models/gpt/lora.h - adapters (LoRA) of a GPT in PEFT's formats: names of modules,
 * files, and merging.
 *
 * A folder of adapters has adapter_config.json and adapter_model.safetensors, as PEFT's
 * save_pretrained writes and from_pretrained reads them (PEFT 0.21). Of a tied model, an
 * embedding that is trained whole is the head too; PEFT calls that "ensure_weight_tying".
 * Without it PEFT trains a copy of the one and leaves the other, as an untied model does.
 * Families whose files have several linears in one tensor (GPT-2's c_attn, Phi-3's qkv_proj)
 * share one factor A among them there, which adapters of each linear are not. Experts are
 * adapted together, as PEFT does by "target_parameters": experts.gate_up_proj, whose gate and
 * up share an A, and experts.down_proj.
 */
#ifndef WF_PARALLEL_MODELS_GPT_LORA_H
#define WF_PARALLEL_MODELS_GPT_LORA_H

#include "nn/layers/lora.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/run.h"

WF_BEGIN_DECLS

enum { WF_PAR_LORA_NAMES = 512 };

/* The settings of a model's adapters. */
typedef struct wf_par_lora {
    int64_t rank; /* 0: none */
    double alpha, dropout;
    bool rank_stabilized;
    /* For a folder of PEFT: it trains the embedding and the head as separate parameters, so
       that the model has to be built untied (wf_nn_gpt_config.tied false) whatever the base
       is. */
    bool untied;
    /* With commas in between. Targets: the end of a linear's path ("q"), that of its name in
       transformers ("q_proj"), WF_NN_ALL_LINEAR or WF_NN_EXPERTS. Modules: ends of names in
       transformers ("norm": all that end so), else paths as of wf_nn_freeze; "" or "none": no
       module. */
    char targets[WF_PAR_LORA_NAMES], modules_to_save[WF_PAR_LORA_NAMES];
} wf_par_lora;

/**
 * wf_par_lora_apply - gives a model its adapters, and freezes all else (wf_nn_lora)
 *
 * Errors:  WF_EINVAL, WF_ENOMEM in the context; nothing where the rank is 0
 */
WF_API wf_status wf_par_lora_apply(wf_nn_gpt *model, const wf_par_lora *lora);

/**
 * wf_par_lora_same - returns true where two lists of names give a model the same adapters and
 * train the same beside them, however they are written: "q,v" and "v_proj, q_proj"
 *
 * Rank, scale and dropout are not compared. Collective: no. Errors: none; false where one of
 * them names what the model does not have, and without memory
 */
WF_API bool wf_par_lora_same(const wf_nn_gpt_config *config, const wf_par_lora *a,
                             const wf_par_lora *b);

/**
 * wf_par_lora_config - reads the settings of the adapters in a folder of PEFT
 *
 * Collective:  no
 * Errors:      WF_EIO, WF_EDATA, WF_EUNSUPPORTED (another kind of adapter, or one that computes
 *              something else)
 */
WF_API wf_status wf_par_lora_config(const char *folder, wf_par_lora *lora, wf_error *error);

/**
 * wf_par_lora_load - fills the adapters of a model, and other trained parameters, from a folder
 * of PEFT
 *
 * @param model  adapted as the folder says, planned and materialised
 * Layout:       any; a rank reads its own parts
 * Collective:   no
 * Errors:       in the context: WF_EIO, WF_EDATA (a tensor is missing, has another shape or
 *               type, or belongs to nothing that is trained), WF_EINVAL (the model is tied, and
 *               wf_par_lora.untied), WF_EUNSUPPORTED, WF_ENOMEM
 */
WF_API wf_status wf_par_lora_load(wf_par *par, wf_nn_gpt *model, const char *folder);

/**
 * wf_par_lora_save - writes the trained parameters of an adapted model as a folder that PEFT
 * loads
 *
 * @param folder  made where it is missing; adapters in it are replaced
 * @param base    NULL, or the path at which PEFT is to find the base model
 * @param like    NULL, or the folder of that model here, whose family it is
 * Layout:        any; one tensor at a time is made whole
 * Collective:    over the world; the first rank writes
 * Errors:        in the context, on all ranks: WF_EIO, WF_EUNSUPPORTED (a family that cannot be
 *                written so), WF_ENOMEM
 */
WF_API wf_status wf_par_lora_save(wf_par *par, wf_nn_gpt *model, const wf_par_lora *lora,
                                  const char *folder, const char *base, const char *like);

/**
 * wf_par_lora_merge - merges adapters: W becomes W + scale B A, and B zero, so that the model
 * computes the same without its adapters: wf_par_pretrained_save leaves them out
 *
 * Sums are taken in double and rounded once. Layout: any. Collective: over the world. Errors:
 * WF_ENOMEM
 */
WF_API wf_status wf_par_lora_merge(wf_par *par, wf_nn_gpt *model);

/**
 * wf_par_lora_base - computes the digest of all frozen parameters, their values as `as` would
 * store them: identifies the base that adapters are for
 *
 * Layout:  any, which does not show. Collective: over the world. Errors: WF_ENOMEM and those of
 *          communication
 */
WF_API wf_status wf_par_lora_base(wf_par *par, wf_nn_gpt *model, wf_dtype as, uint64_t *digest);

/* Keys of a checkpoint of adapters for their base: its digest, and its path. */
#define WF_PAR_SAVED_BASE_DIGEST "base_digest"
#define WF_PAR_SAVED_BASE        "base"

WF_END_DECLS

#endif
