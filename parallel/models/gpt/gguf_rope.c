/* parallel/models/gpt/gguf_rope.c - scalings of RoPE as llama.cpp has them, and back; see the header. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How many turns pair i of a head makes in so many positions. */
static double turns_of(const wf_nn_gpt_config *m, int64_t i, double positions)
{
    static const double turn = 6.283185307179586;

    return positions * pow(m->rope_base, -2.0 * (double)i / (double)m->head_dim) / turn;
}

/* As kernels/rope.c scales: what is slow is divided, what is fast stays, and between them it goes over. */
void wf_gguf_rope_factors(const wf_nn_gpt_config *model, float *factors)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const wf_rope_scaling *s = &m.rope_scaling;

    for (int64_t i = 0; i < m.head_dim / 2; i++) {
        double kept = (turns_of(&m, i, s->original_positions) - s->low_freq_factor) /
                      (s->high_freq_factor - s->low_freq_factor);

        kept = kept < 0 ? 0 : kept > 1 ? 1 : kept;
        factors[i] = (float)(1 / ((1 - kept) / s->factor + kept));
    }
}

double wf_gguf_attention_factor(const wf_nn_gpt_config *model)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const wf_rope_scaling *s = &m.rope_scaling;

    if (s->attention_factor > 0)
        return s->attention_factor;
    return s->factor > 1 ? sqrt(1 + log(s->factor) / log(s->original_positions)) : 1;
}

/* Whether a scaling has the factors, up to a rounding or two. */
static bool gives(const wf_nn_gpt_config *m, const float *factors, int64_t count)
{
    float *ours = malloc((size_t)count * sizeof *ours);
    bool same = ours;

    if (ours)
        wf_gguf_rope_factors(m, ours);
    for (int64_t i = 0; same && i < count; i++)
        same = fabsf(ours[i] - factors[i]) <= 1e-6f * fabsf(factors[i]);
    free(ours);
    return same;
}

/* A number with so many decimal digits, as a config.json would have it. */
static double rounded(double x, int digits)
{
    char text[40];

    snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/*
 * What is kept of a frequency is a line over turns where factors go over, and is the same where positions and both
 * bounds are multiplied with one number: so the lower bound is 1, as in all of Meta's configs. The upper one is 4, as
 * there, or what two factors on the line say; one of them then gives the positions.
 */
bool wf_gguf_find_scaling(wf_nn_gpt_config *model, const float *factors)
{
    wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    wf_rope_scaling *s = &m.rope_scaling;
    const int64_t count = m.head_dim / 2;
    const double factor = count ? (double)factors[count - 1] : 0;
    double turns[2], kept[2], rate;
    int found = 0;

    *s = (wf_rope_scaling){.kind = WF_ROPE_LLAMA3,
                           .factor = factor,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .original_positions = 8192};
    if (!(factor > 1 && factor < 1e6))
        return false;
    for (int64_t i = 0; i < count && found < 2; i++)
        if (factors[i] > 1 && (double)factors[i] < factor) {
            turns[found] = turns_of(&m, i, 1);
            kept[found++] = (1 / (double)factors[i] - 1 / factor) / (1 - 1 / factor);
        }
    for (int attempt = 0; attempt <= found; attempt++) {
        if (attempt == 2) {
            rate = (kept[0] - kept[1]) / (turns[0] - turns[1]);
            s->high_freq_factor = rounded(1 + 1 / (rate * turns[0] - kept[0]), 5);
        }
        if (attempt > 0)
            s->original_positions = round((kept[0] * (s->high_freq_factor - 1) + 1) / turns[0]);
        if (!wf_rope_scaling_wrong(s) && gives(&m, factors, count)) {
            model->rope_scaling = *s;
            return true;
        }
    }
    return false;
}
