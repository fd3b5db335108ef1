/*
 * parallel/generate/sampling.h - sampling: draws the next token, given the logits of all: on
 * the host, in double, so that every rank draws the same one.
 */
#ifndef WF_PARALLEL_GENERATE_SAMPLING_H
#define WF_PARALLEL_GENERATE_SAMPLING_H

#include "core/export.h"
#include <stdint.h>

WF_BEGIN_DECLS

/* Applied in this order, as transformers do; a token is then drawn from the softmax of the
   remaining logits. */
typedef struct wf_gen_sampling {
    /* logits of ids that the text has: divided by it, or multiplied where below 0; 1: none
       (Keskar et al. 2019) */
    double repetition_penalty;
    double presence_penalty;  /* less for an id that was generated before; 0: none */
    double frequency_penalty; /* less for each time that it was; 0: none */
    /* divisor of logits; 0: greedy, the likeliest token, the first one of several */
    double temperature;
    int64_t top_k; /* keep the k likeliest, and those as likely as the last of them; 0: all */
    /* keep the likeliest whose probabilities sum up to this; 1: all (Holtzman et al. 2020) */
    double top_p;
    /* keep those at least this times as likely as the likeliest; 0: all (Nguyen et al. 2024) */
    double min_p;
} wf_gen_sampling;

/* A text so far: its prompt and what was generated. */
typedef struct wf_gen_sampling_text {
    const int32_t *ids;
    int64_t count, prompt; /* the first `prompt` are not generated */
} wf_gen_sampling_text;

/* An entry of the scratch memory of a draw, one per logit. Owner: caller, free. */
typedef struct wf_gen_sampling_candidate {
    double score; /* log of its probability, but for a constant */
    int32_t id,
        seen; /* times that the text has it: twice those generated, and 1 for the prompt's */
} wf_gen_sampling_candidate;

/**
 * wf_gen_sampling_filter - finds the tokens that may be drawn, the likeliest first
 *
 * @param logits  [size]
 * @param room    [size]
 * Temperature is above 0. Returns: their number; their probabilities are exp(score - score of
 * the first) over the sum of these
 */
WF_API int64_t wf_gen_sampling_filter(const wf_gen_sampling *s,
                                      const wf_gen_sampling_text *text, const float *logits,
                                      int64_t size, wf_gen_sampling_candidate *room);

/** wf_gen_sampling_draw - returns the token at `uniform`, in [0, 1), of their probabilities in
 * the order of ids */
WF_API int32_t wf_gen_sampling_draw(const wf_gen_sampling *s, const wf_gen_sampling_text *text,
                                    const float *logits, int64_t size, double uniform,
                                    wf_gen_sampling_candidate *room);

/** wf_gen_sampling_top - fills ids with those of the `count` largest logits, the first one of
 * several that are equal first; room: [size] */
WF_API void wf_gen_sampling_top(const float *logits, int64_t size, int64_t count, int32_t *ids,
                                wf_gen_sampling_candidate *room);

WF_END_DECLS

#endif
