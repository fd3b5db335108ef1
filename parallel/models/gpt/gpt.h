/*
 * parallel/models/gpt/gpt.h - GPT-2 and Llama in parallel: their sharding plan, and their loss
 * as a trainer takes it. The modules are nn/models/gpt/gpt.h; files of Hugging Face,
 * pretrained.h.
 */
#ifndef WF_PARALLEL_MODELS_GPT_GPT_H
#define WF_PARALLEL_MODELS_GPT_GPT_H

#include "nn/documents.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/simulate/cost.h"
#include "parallel/shard/sharding_plan.h"
#include "parallel/train/train.h"

WF_BEGIN_DECLS

/** wf_par_gpt_plan - the rules of tensor (and sequence) parallelism of wf_nn_gpt, for all
 * families. */
extern WF_API const wf_par_rule wf_par_gpt_plan[];

/** wf_par_gpt_make - makes a rank's model, planned; a wf_par_model_function whose arg is a
 * wf_nn_gpt_config. Owner: the caller, wf_nn_free; NULL: the reason is in the context */
WF_API wf_nn_module *wf_par_gpt_make(wf_par *par, void *config);

/** wf_par_gpt_sizes - returns the sizes by which layouts of a model are simulated
 * (wf_par_job.sizes), for sequences of `tokens` tokens */
WF_API wf_sim_model wf_par_gpt_sizes(const wf_nn_gpt_config *config, int64_t tokens);

/** wf_par_gpt_loss - computes the loss of wf_nn_gpt, as a wf_par_loss_function, for batches of
 * WF_PAR_GPT_FIELDS or WF_PAR_GPT_DOCUMENT_FIELDS. */
WF_API wf_tensor *wf_par_gpt_loss(wf_nn_module *model, const wf_par_batch *batch);

/** wf_par_gpt_head_loss - computes the end of wf_par_gpt_loss, after the last step of the
 * chain: the loss of the features x (wf_nn_gpt_head_loss). */
WF_API wf_tensor *wf_par_gpt_head_loss(wf_nn_module *model, wf_tensor *x,
                                       const wf_par_batch *batch);

/** wf_par_gpt_documents - returns the documents of a batch of WF_PAR_GPT_DOCUMENT_FIELDS, as a
 * wf_par_documents_function; none for other fields. */
WF_API wf_nn_documents wf_par_gpt_documents(const wf_par_batch *batch);

/* The fields that it reads, for wf_par_train_options.field: sequences of tokens, and the token
   that follows each. */
/* clang-format off */
#define WF_PAR_GPT_FIELDS(length)                        \
    {{"tokens", WF_I32, {{(length), 1, WF_CHUNKS_8}}}, \
     {"targets", WF_I32, {{(length), 1, WF_CHUNKS_8}}}}
/* The same of sequences that hold several documents (nn/documents.h): also the first token of
   each one's document, and its position in it. */
#define WF_PAR_GPT_DOCUMENT_FIELDS(length)               \
    {{"tokens", WF_I32, {{(length), 1, WF_CHUNKS_8}}},  \
     {"targets", WF_I32, {{(length), 1, WF_CHUNKS_8}}}, \
     {"first", WF_I32, {{(length), 1, WF_CHUNKS_8}}},  \
     {"positions", WF_I32, {{(length), 1, WF_CHUNKS_8}}}}
/* clang-format on */

WF_END_DECLS

#endif
