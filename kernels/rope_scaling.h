/* kernels/rope_scaling.h - scaling of rotary position embeddings (RoPE) for long sequences. */
#ifndef WF_KERNELS_ROPE_SCALING_H
#define WF_KERNELS_ROPE_SCALING_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_rope_scaling - the rotation in long sequences of a model that was trained on short
 * ones. */
typedef enum wf_rope_scaling_kind {
    WF_ROPE_UNSCALED,
    WF_ROPE_LINEAR, /* every frequency divided by factor (Chen et al. 2023) */
    /* as in Llama 3.1: frequencies of more than high_freq_factor rotations in the original
       length stay, those of less than low_freq_factor are divided, and those between are
       interpolated */
    WF_ROPE_LLAMA3,
    /* (Peng et al. 2023) frequencies of more than beta_fast rotations in the original length
       stay, those of less than beta_slow are divided, and those between, in whole indices, are
       interpolated; cosines and sines are multiplied with the attention factor */
    WF_ROPE_YARN,
    /* LongRoPE (Ding et al. 2024): each frequency is divided by a factor of its own, one in
       texts up to the original length and another in longer ones (wf_rope_factors); cosines and
       sines are multiplied with the attention factor in both */
    WF_ROPE_LONG,
    /* NTK by length (bloc97 and emozilla 2023), as transformers compute it: in texts
       of more tokens n than the original length o the base grows by a power of factor * n / o -
       factor + 1, so that the slowest frequency is divided by that and the fastest stays */
    WF_ROPE_DYNAMIC,
    /* (Llama 4, for blocks without positions) nothing rotates: heads at position p are
       multiplied with 1 + factor * ln(1 + floor((p + 1) / original_positions)) */
    WF_ROPE_TEMPERATURE
} wf_rope_scaling_kind;

typedef struct wf_rope_scaling {
    wf_rope_scaling_kind kind;
    /* WF_ROPE_LONG: the longest text over the original length, 0: as if it were 1 */
    double factor;
    union {
        double low_freq_factor; /* WF_ROPE_LLAMA3 */
        /* WF_ROPE_DYNAMIC: tokens of the texts; 0: those that wf_rope is given, and of
           wf_rope_at up to each token itself, where these are more. No property of a model */
        double length;
    };
    double high_freq_factor;     /* WF_ROPE_LLAMA3 */
    double original_positions;   /* all but WF_ROPE_LINEAR's */
    double beta_fast, beta_slow; /* WF_ROPE_YARN; 0: 32 and 1 */
    /* 0: 0.1 ln(factor) + 1 of WF_ROPE_YARN, sqrt(1 + ln(factor) / ln(original_positions)) of
       WF_ROPE_LONG */
    double attention_factor;
} wf_rope_scaling;

enum { WF_ROPE_PAIRS = 128 }; /* pairs with factors of their own, at most */

/** wf_rope_factors - the divisors of the frequency of each pair for WF_ROPE_LONG. */
typedef struct wf_rope_factors {
    int64_t count;                     /* pairs of a head that rotate */
    float short_factor[WF_ROPE_PAIRS]; /* in texts of original_positions tokens and fewer */
    float long_factor[WF_ROPE_PAIRS];  /* in longer ones */
} wf_rope_factors;

/** wf_rope_scaling_wrong - describes the first wrong number of a scaling; NULL: none. Owner:
 * static string. */
WF_API const char *wf_rope_scaling_wrong(const wf_rope_scaling *scaling);

/** wf_rope_factors_wrong - describes the first wrong factor for `pairs` pairs; NULL: none.
 * Owner: static string. */
WF_API const char *wf_rope_factors_wrong(const wf_rope_factors *factors, int64_t pairs);

/** wf_rope_features_wrong - describes what is wrong with a scaling, and with its factors where
 * it has such, for this many rotated features of a head; NULL: nothing. Owner: static string.
 */
WF_API const char *wf_rope_features_wrong(const wf_rope_scaling *scaling,
                                          const wf_rope_factors *factors, int64_t features);

enum { WF_ROPE_SCALING_TEXT = 4096 };

/**
 * wf_rope_scaling_parse - parses "none", "linear:FACTOR", "llama3:FACTOR,LOW,HIGH,POSITIONS",
 * "dynamic:FACTOR,POSITIONS", "yarn:FACTOR,POSITIONS",
 * "yarn:FACTOR,POSITIONS,FAST,SLOW,ATTENTION",
 * "longrope:POSITIONS:SHORT,SHORT,..:LONG,LONG,.." or
 * "longrope:POSITIONS,FACTOR,ATTENTION:SHORT,..:LONG,..", whose lists have a number for each
 * pair
 *
 * Returns: false where it is none of these, or a number is not one that wf_rope takes
 */
WF_API bool wf_rope_scaling_parse(const char *text, wf_rope_scaling *scaling,
                                  wf_rope_factors *factors);

/** wf_rope_scaling_print - writes a scaling in the notation of wf_rope_scaling_parse; returns
 * text. */
WF_API char *wf_rope_scaling_print(const wf_rope_scaling *scaling,
                                   const wf_rope_factors *factors,
                                   char text[WF_ROPE_SCALING_TEXT]);

typedef struct wf_rope_options {
    double base;
    wf_rope_scaling scaling; /* zeros: none */
    int32_t features; /* the first ones of each head, which rotate, an even number; 0: all */
    bool neighbours;  /* pairs are the features 2i and 2i + 1, not i and i + half of them */
    /* WF_ROPE_LONG: these, which have to stay as long as a gradient may be taken; or NULL */
    const wf_rope_factors *factors;
} wf_rope_options;

WF_END_DECLS

#endif
