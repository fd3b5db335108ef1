/*
 * apps/generate/sampling.h - which token comes next, given the logits of all: on the host, in double, so that
 * every rank draws the same one.
 */
#ifndef WF_APPS_GENERATE_SAMPLING_H
#define WF_APPS_GENERATE_SAMPLING_H

#include <stdint.h>

/* Applied in this order, as transformers do; a token is then drawn from the softmax of what is left. */
typedef struct app_sampling {
    double
        repetition_penalty; /* logits of ids that the text has: divided by it, or multiplied where below 0; 1:
                                  none (Keskar et al. 2019) */
    double presence_penalty;  /* less for an id that was generated before; 0: none */
    double frequency_penalty; /* less for each time that it was; 0: none */
    double
        temperature; /* logits are divided by it; 0: the likeliest token, the first one of several */
    int64_t top_k; /* the k likeliest, and those as likely as the last of them; 0: all */
    double
        top_p; /* the likeliest whose probabilities come to so much; 1: all (Holtzman et al. 2020) */
    double
        min_p; /* those at least so likely as this times the likeliest; 0: all (Nguyen et al. 2024) */
} app_sampling;

/* A text so far: its prompt and what was generated. */
typedef struct app_sampling_text {
    const int32_t *ids;
    int64_t count, prompt; /* the first `prompt` are not generated */
} app_sampling_text;

/* Room for a draw from so many logits. Owner: caller, free. */
typedef struct app_sampling_candidate {
    double score; /* log of what it is drawn with, but for a constant */
    int32_t id,
        seen; /* times that the text has it: twice those generated, and 1 for the prompt's */
} app_sampling_candidate;

/* The tokens that may be drawn, the likeliest first, of `size` logits; temperature is above 0. room: [size].
   Returns how many; their probabilities are exp(score - score of the first) over the sum of these. */
int64_t app_sampling_filter(const app_sampling *s, const app_sampling_text *text,
                            const float *logits, int64_t size, app_sampling_candidate *room);

/* The token at `uniform`, in [0, 1), of their probabilities in the order of ids. */
int32_t app_sampling_draw(const app_sampling *s, const app_sampling_text *text,
                          const float *logits, int64_t size, double uniform,
                          app_sampling_candidate *room);

/* The `count` largest logits, the first one of several that are equal first: fills ids. room: [size]. */
void app_sampling_top(const float *logits, int64_t size, int64_t count, int32_t *ids,
                      app_sampling_candidate *room);

#endif
