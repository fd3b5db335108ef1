/* kernels/rope_scaling.h - how rotary position embeddings are scaled for long sequences. */
#ifndef WF_KERNELS_ROPE_SCALING_H
#define WF_KERNELS_ROPE_SCALING_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/** wf_rope_scaling - how a model that was trained on short sequences turns in long ones. */
typedef enum wf_rope_scaling_kind {
    WF_ROPE_UNSCALED,
    WF_ROPE_LINEAR, /* every frequency divided by factor (Chen et al. 2023) */
    WF_ROPE_LLAMA3, /* as Llama 3.1 has it: frequencies of more than high_freq_factor turns in the original length stay, those
                       of less than low_freq_factor are divided, and between them it goes over */
    WF_ROPE_YARN /* (Peng et al. 2023) frequencies of more than beta_fast turns in the original length stay, those of less
                    than beta_slow are divided, and between them, in whole indices, it goes over; cosines and sines are
                    multiplied with the attention factor */
} wf_rope_scaling_kind;

typedef struct wf_rope_scaling {
    wf_rope_scaling_kind kind;
    double factor;
    double low_freq_factor, high_freq_factor; /* WF_ROPE_LLAMA3 */
    double original_positions;                /* WF_ROPE_LLAMA3, WF_ROPE_YARN */
    double beta_fast, beta_slow;              /* WF_ROPE_YARN; 0: 32 and 1 */
    double attention_factor;                  /* WF_ROPE_YARN; 0: 0.1 ln(factor) + 1 */
} wf_rope_scaling;

/** wf_rope_scaling_wrong - what is wrong with its numbers; NULL: nothing. Owner: static string. */
WF_API const char *wf_rope_scaling_wrong(const wf_rope_scaling *scaling);

enum { WF_ROPE_SCALING_TEXT = 128 };

/** wf_rope_scaling_parse - from "none", "linear:FACTOR", "llama3:FACTOR,LOW,HIGH,POSITIONS", "yarn:FACTOR,POSITIONS" or
 * "yarn:FACTOR,POSITIONS,FAST,SLOW,ATTENTION"; false: it is none of these, or a number is not one that wf_rope takes. */
WF_API bool wf_rope_scaling_parse(const char *text, wf_rope_scaling *scaling);

/** wf_rope_scaling_print - the way back; returns text. */
WF_API char *wf_rope_scaling_print(const wf_rope_scaling *scaling,
                                   char text[WF_ROPE_SCALING_TEXT]);

typedef struct wf_rope_options {
    double base;
    wf_rope_scaling scaling; /* zeros: none */
} wf_rope_options;

WF_END_DECLS

#endif
