/* parallel/generate/engine_internal.h - passes of an engine, and its captured decode steps. */
#ifndef WF_PARALLEL_GENERATE_ENGINE_INTERNAL_H
#define WF_PARALLEL_GENERATE_ENGINE_INTERNAL_H

#include "parallel/generate/engine.h"

/* Makes a tensor of token ids [batch, count], and writes it; a plan looks at no ids. */
wf_tensor *wf_gen_engine_tokens(wf_gen_engine *e, int64_t batch, int64_t count);
void wf_gen_engine_write(wf_tensor *t, const int32_t *ids);

/* Runs the model on tokens at the positions of the cache, and returns its logits, or features
   where they are not wanted. sums: NULL, or set to their wf_nn_logsumexp. */
wf_tensor *wf_gen_engine_forward(wf_gen_engine *e, wf_tensor *t, bool wanted, wf_tensor **sums);

/* Reads the numbers of a tensor that ranks may hold parts of; of a pipeline, ranks of its last
   stage hold them. A plan reads none. */
void wf_gen_engine_share(wf_gen_engine *e, wf_tensor *t, int64_t count, float *to);

/* Runs the model on tokens at these cache positions, stored as in training. wanted: logits are
   returned. */
wf_status wf_gen_engine_run(wf_gen_engine *e, int64_t batch, int64_t count, const int32_t *ids,
                            const wf_nn_cache_position *sequence, bool wanted, float *logits,
                            float *logsumexp);

/* Runs a decode step as wf_gen_engine_run does, by a graph from the second one with these
   rows on. */
wf_status wf_gen_decode(wf_gen_engine *e, int64_t rows, const int32_t *ids,
                        const wf_nn_cache_position *sequence, float *logits, float *logsumexp);

/* Frees the captured step and what it reads and leaves. */
void wf_gen_decode_forget(wf_gen_engine *e);

#endif
