/*
 * parallel/generate/batch.h - texts that are generated many at a time: a prompt takes a slot as
 * soon as one is free, and leaves it when its text ends, whatever the others do.
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
    const char *const *stops; /* strings that end a text, and are no part of it */
    int64_t n_stops;
    const wf_tok *tokenizer;        /* NULL: ids without a text, and no stops */
    int64_t size;                   /* ids that may be drawn: those below */
    bool logprobs, prompt_logprobs; /* log probabilities of what was generated; of the prompt */
    int64_t top;                    /* so many of the likeliest have theirs noted too */
} wf_gen_options;

/* What goes in. */
typedef struct wf_gen_prompt {
    const int32_t *ids; /* at least one */
    int64_t count;
    uint64_t stream; /* random numbers are drawn from it */
} wf_gen_prompt;

/* What comes out. Log probabilities are those of the model, before penalties and temperature,
   with the bits of the losses that a trainer has of the same tokens. */
typedef struct wf_gen_text {
    int64_t index; /* its prompt's */
    int32_t *ids;  /* the prompt's, then those generated; one that ends it is the last */
    int64_t count, prompt;
    /* at the places of ids[1] .. ids[count - 1]; the prompt's where asked for; or NULL */
    float *logprob;
    int32_t *top;       /* [count][options.top], for generated ones; or NULL */
    float *top_logprob; /* [count][options.top], or NULL */
    wf_tok_bytes text;  /* what was generated, without what ends it */
    wf_tok_stream stream;
    /* NULL: it goes on; "stop": an end or a stop string; "length": no more was asked for */
    const char *finish;
} wf_gen_text;

/** wf_gen_text_free - frees what a text has and zeroes it; NULL is allowed. */
WF_API void wf_gen_text_free(wf_gen_text *t);

/** wf_gen_text_settled - returns how many bytes of t->text no stop string can still take
 * back */
WF_API size_t wf_gen_text_settled(const wf_gen_options *o, const wf_gen_text *t);

typedef struct wf_gen_events {
    void (*token)(void *arg, const wf_gen_text *t); /* after each token; NULL: nobody listens */
    void (*finished)(
        void *arg,
        wf_gen_text *t); /* may keep what it has, and then clears it (NULL: nobody) */
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

WF_END_DECLS

#endif
