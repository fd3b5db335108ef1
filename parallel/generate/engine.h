/*
 * parallel/generate/engine.h - an inference engine: tokens of texts go through the model once,
 * and keys and values stay in a KV cache (nn/cache.h).
 *
 * The ranks of a mesh call the same functions with the same tokens, and get the same numbers.
 */
#ifndef WF_PARALLEL_GENERATE_ENGINE_H
#define WF_PARALLEL_GENERATE_ENGINE_H

#include "core/graph.h"
#include "nn/cache.h"
#include "nn/models/gpt/gpt.h"
#include "parallel/train/train.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

typedef struct wf_gen_engine_options {
    wf_par *par;
    wf_nn_gpt *model; /* materialised */
    wf_par_trainer
        *pipelined; /* the trainer of a model in stages; NULL: every rank has all of it */
    int64_t slots, positions; /* texts at once; tokens of each, at most */
    int64_t chunk;            /* tokens of a prompt that are computed together; 0: 512 */
    /* replay decode steps as graphs of the device: parameters keep their values while the
       engine is open (wf_gen_engine_uncaptured) */
    bool cuda_graph;
} wf_gen_engine_options;

/* A captured decode step: what it reads, written before each run, and what a run leaves. */
typedef struct wf_gen_decode_graph {
    /* texts of the last step, which ran op by op where there is no graph; 0: none */
    int64_t rows;
    bool sums; /* it makes logsumexp as well */
    wf_nn_cache_tokens at;
    wf_tensor *tokens, *logits, *logsumexp; /* retained */
    wf_graph *graph;
} wf_gen_decode_graph;

typedef struct wf_gen_engine {
    wf_gen_engine_options o;
    wf_context *ctx;
    wf_nn_cache *cache;
    int64_t vocabulary;
    /* [slots]: 1 where the text of a slot is longer than the original length of WF_ROPE_LONG,
       and its length where it is longer than that of WF_ROPE_DYNAMIC, or -1 where tokens had
       several; 0: neither */
    int64_t *scaled_for;
    wf_gen_decode_graph decode; /* has the batch shape of the last decode step */
} wf_gen_engine;

/* A text's last token: its slot, its position in the text, its id. The tokens before it are in
   the slot, and of WF_ROPE_DYNAMIC stay as they were; `before` has their ids, for where the
   text becomes longer than the original length of WF_ROPE_LONG, and all of it is recomputed,
   as transformers do. NULL in a plan. */
typedef struct wf_gen_engine_row {
    int64_t slot, position;
    int32_t id;
    const int32_t *before;
} wf_gen_engine_row;

/**
 * wf_gen_engine_uncaptured - returns why decode steps cannot be graphs of the device
 * (wf_gen_engine_options.cuda_graph); NULL: they can
 */
WF_API const char *wf_gen_engine_uncaptured(const wf_gen_engine_options *options);

/**
 * wf_gen_engine_open - makes the KV cache of a model
 *
 * Owner:   the caller, wf_gen_engine_close in any case. Collective over the mesh, as all below
 *          that compute.
 * Errors:  in the context, as of all below; WF_EUNSUPPORTED (cuda_graph, and steps cannot be
 *          captured)
 */
WF_API wf_status wf_gen_engine_open(wf_gen_engine *e, const wf_gen_engine_options *options);

/** wf_gen_engine_close - frees the cache; a zeroed engine is allowed. */
WF_API void wf_gen_engine_close(wf_gen_engine *e);

/**
 * wf_gen_engine_prefill - computes tokens of a prompt and keeps their keys and values
 *
 * @param slot       of the text; it has the tokens before `first`
 * @param length     tokens of the whole text
 * @param ids        [count], tokens first .. first + count - 1; NULL in a plan
 * @param logits     NULL, or [count][vocabulary]: of the token after each
 * @param logsumexp  NULL, or [count]
 */
WF_API wf_status wf_gen_engine_prefill(wf_gen_engine *e, int64_t slot, int64_t length,
                                       int64_t first, const int32_t *ids, int64_t count,
                                       float *logits, float *logsumexp);

/* Tokens of one of several texts that go through the model together: their slot and position,
   and the length of the text. */
typedef struct wf_gen_engine_part {
    int64_t slot, length, first;
    const int32_t *ids;
} wf_gen_engine_part;

/**
 * wf_gen_engine_prefill_together - prefills several texts in one pass, `count` tokens of each
 *
 * @param wanted     compute logits, also in a plan, where the arrays are NULL
 * @param logits     [parts][count][vocabulary]
 * @param logsumexp  [parts][count]
 */
WF_API wf_status wf_gen_engine_prefill_together(wf_gen_engine *e, int64_t parts,
                                                const wf_gen_engine_part *part, int64_t count,
                                                bool wanted, float *logits, float *logsumexp);

/** wf_gen_engine_keeps - returns true where the content of a slot serves a text of `length`
 * tokens that begins with the same ones */
WF_API bool wf_gen_engine_keeps(const wf_gen_engine *e, int64_t slot, int64_t length);

/** wf_gen_engine_together - returns the most tokens that are computed together of a text that
 * begins with `prompt` tokens and continues, chunks aside */
WF_API int64_t wf_gen_engine_together(const wf_gen_engine *e, int64_t prompt);

/**
 * wf_gen_engine_next - computes one more token of each text (a decode step)
 *
 * With cuda_graph the first step of a number of rows runs op by op, the second one is
 * captured, and it and all that follow are one launch, until a step has another number of rows:
 * numbers have the same bits. A graph keeps its memory meanwhile, counted as WF_MEMORY_GRAPH.
 *
 * @param row        [rows], the last token of each text
 * @param logits     [rows][vocabulary], of the token that comes next; NULL in a plan
 * @param logsumexp  [rows], see wf_nn_logsumexp, or NULL
 */
WF_API wf_status wf_gen_engine_next(wf_gen_engine *e, int64_t rows,
                                    const wf_gen_engine_row *row, float *logits,
                                    float *logsumexp);

WF_END_DECLS

#endif
