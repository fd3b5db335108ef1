/*
 * parallel/generate/batch.h - batched generation (continuous batching): a prompt takes a slot
 * as soon as one is free, and leaves it when its text ends, independently of the others.
 *
 * A text is a function of the model, its prompt, the options and its stream of random numbers
 * alone: neither the other texts, nor slots, chunks, threads or ranks change a bit of it.
 */
#ifndef WF_PARALLEL_GENERATE_BATCH_H
#define WF_PARALLEL_GENERATE_BATCH_H

#include "parallel/generate/engine.h"
#include "parallel/generate/sampling.h"
#include "nn/text/tokenizer/tokenizer.h"

WF_BEGIN_DECLS

typedef struct wf_gen_options {
    wf_gen_sampling sampling;
    uint64_t seed;
    int64_t most;        /* tokens that are generated, at most */
    const int32_t *ends; /* ids that end a text */
    int64_t n_ends;
    const char *const *stops; /* strings that end a text, and are not part of it */
    int64_t n_stops;
    const wf_tok *tokenizer; /* NULL: ids without a text, and no stops */
    int64_t size;            /* ids that may be drawn: those below */
    /* record log probabilities of generated tokens; of the prompt */
    bool logprobs, prompt_logprobs;
    int64_t top; /* record this number of the likeliest tokens too */
} wf_gen_options;

/* An input. */
typedef struct wf_gen_prompt {
    const int32_t *ids; /* at least one */
    int64_t count;
    uint64_t stream; /* random numbers are drawn from it */
} wf_gen_prompt;

/* An output. Log probabilities are those of the model, before penalties and temperature, with
   the bits of the losses that a trainer has of the same tokens. */
typedef struct wf_gen_text {
    int64_t index; /* its prompt's */
    int32_t *ids;  /* the prompt's, then those generated; the token that ends it is the last */
    int64_t count, prompt;
    /* one for each of ids[1] .. ids[count - 1]; the prompt's where asked for; or NULL */
    float *logprob;
    int32_t *top;       /* [count][options.top], for generated ones; or NULL */
    float *top_logprob; /* [count][options.top], or NULL */
    wf_tok_bytes text;  /* the generated text, without the string that ends it */
    wf_tok_stream stream;
    /* NULL: unfinished; "stop": an end id or a stop string; "length": options.most is
       reached */
    const char *finish;
} wf_gen_text;

/** wf_gen_text_free - frees the arrays of a text and zeroes it; NULL is allowed. */
WF_API void wf_gen_text_free(wf_gen_text *t);

/** wf_gen_text_settled - returns the bytes of t->text that no stop string can still remove,
 * whole characters as of wf_tok_whole */
WF_API size_t wf_gen_text_settled(const wf_gen_options *o, const wf_gen_text *t);

typedef struct wf_gen_events {
    void (*token)(void *arg, const wf_gen_text *t); /* after each token; NULL: none */
    void (*finished)(
        void *arg, wf_gen_text *t); /* may keep the arrays, and then clears them (NULL: none) */
    void *arg;
} wf_gen_events;

/**
 * wf_gen_run - generates texts first, first + step, .. of `count` prompts (continuous batching)
 *
 * @param prompts  [count]
 * Collective over the engine's mesh. Errors: in the engine's context
 */
WF_API wf_status wf_gen_run(wf_gen_engine *e, const wf_gen_options *o,
                            const wf_gen_prompt *prompts, int64_t count, int64_t first,
                            int64_t step, const wf_gen_events *events);

/**
 * wf_gen_logprobs - computes the log probabilities of the tokens of a text, each given those
 * before it, with the bits of a trainer's losses
 *
 * @param slot     takes the first `count` of them
 * @param length   tokens of the whole text that is to be in the slot
 * @param ids      [count + 1]
 * @param logprob  [count + 1]: at i that of ids[i]; the first one stays as it is
 * Collective over the engine's mesh. Errors: in the engine's context
 */
WF_API wf_status wf_gen_logprobs(wf_gen_engine *e, int64_t slot, int64_t length,
                                 const int32_t *ids, int64_t count, float *logprob);

/**
 * wf_gen_continue - continues one prompt by a model that is not trained meanwhile (no dropout)
 *
 * @param engine   its par, model, positions; slots are 1
 * @param o        its tokenizer encodes the prompt; size 0: all ids of that
 * @param text     owner: the caller, wf_gen_text_free, also after errors
 * Collective over the mesh: every rank has the text. Errors: in the context
 */
WF_API wf_status wf_gen_continue(const wf_gen_engine_options *engine, const wf_gen_options *o,
                                 const char *prompt, wf_gen_text *text);

WF_END_DECLS

#endif
