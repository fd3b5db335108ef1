/* apps/setup.c - the flags as the library's options, for a run and for its plan. */
#include "apps/setup.h"
#include <string.h>

wf_par_options wf_setup_rank(const wf_options *o, bool plan)
{
    const char *reshard = o->reshard_after_forward, *accumulate = o->accumulate;

    return (wf_par_options){.tp = (int)o->tp,
                            .dp = (int)o->dp,
                            .strategy = o->strategy,
                            .dp_replicate = (int)o->dp_replicate,
                            .shard_group_size = (int)o->shard_group_size,
                            .wrap_type = o->wrap_type,
                            .wrap_min_params = o->wrap_min_params,
                            .prefetch = (int)o->prefetch,
                            .reshard = strcmp(reshard, "always") == 0  ? WF_PAR_RESHARD_ALWAYS
                                       : strcmp(reshard, "never") == 0 ? WF_PAR_RESHARD_NEVER
                                                                       : WF_PAR_RESHARD_DEFAULT,
                            .accumulate = strcmp(accumulate, "local") == 0     ? WF_PAR_LOCAL
                                          : strcmp(accumulate, "reduced") == 0 ? WF_PAR_REDUCED
                                                                               : WF_PAR_AUTO,
                            .sequence_parallel = o->sequence_parallel,
                            .threads = (int)o->threads_per_rank,
                            .seed = (uint64_t)o->seed,
                            .exact_off = !o->exact,
                            .plan = plan,
                            /* a plan goes on, to say how much would be enough */
                            .memory_limit = plan ? 0 : (size_t)o->device_memory};
}

wf_nn_gpt_config wf_setup_model(const wf_options *o)
{
    return (wf_nn_gpt_config){.arch = strcmp(o->arch, "llama") == 0 ? WF_NN_LLAMA : WF_NN_GPT2,
                              .vocabulary = o->vocab_size,
                              .positions = o->positions,
                              .layers = o->n_layer,
                              .heads = o->n_head,
                              .kv_heads = o->n_kv_head,
                              .width = o->n_embd,
                              .ffn = o->ffn,
                              .dropout = (float)o->dropout,
                              .eps = (float)o->norm_eps,
                              .rope_base = o->rope_base};
}

wf_par_train_options wf_setup_training(const wf_options *o)
{
    return (wf_par_train_options){
        .global_batch = o->global_batch_size,
        .micro_batch = o->micro_batch_size,
        .seq_len = o->seq_len,
        .clip = (float)o->clip_grad,
        .optimizer = {.method = strcmp(o->optimizer, "sgd") == 0 ? WF_NN_SGD : WF_NN_ADAMW,
                      .beta1 = (float)o->beta1,
                      .beta2 = (float)o->beta2,
                      .eps = (float)o->eps,
                      .weight_decay = (float)o->weight_decay},
        .schedule = {.lr = o->lr,
                     .min_lr = o->min_lr,
                     .warmup = o->warmup_steps,
                     .steps = o->steps},
        .loss = wf_par_gpt_loss};
}
