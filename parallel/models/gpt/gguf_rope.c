/* parallel/models/gpt/gguf_rope.c - scalings of RoPE as llama.cpp has them, and back; see the
   header. */
#include "parallel/models/gpt/gguf_names_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Returns the number of rotations of pair i of a head over a number of positions. */
static double rotations_of(const wf_nn_gpt_config *m, int64_t i, double positions)
{
    static const double turn = 6.283185307179586;

    return positions * pow(m->rope_base, -2.0 * (double)i / (double)m->head_dim) / turn;
}

/* Computes factors as kernels/rope.c scales: low frequencies are divided, high ones stay, those
   between are interpolated. */
void wf_gguf_rope_factors(const wf_nn_gpt_config *model, float *factors)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    const wf_rope_scaling *s = &m.rope_scaling;

    for (int64_t i = 0; i < m.head_dim / 2; i++) {
        double turns = rotations_of(&m, i, s->original_positions);
        double between = s->high_freq_factor - s->low_freq_factor;
        double kept =
            between > 0 ? (turns - s->low_freq_factor) / between : turns >= s->high_freq_factor;

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

/* Returns a number rounded to `digits` decimal digits, as a config.json would have it. */
static double rounded(double x, int digits)
{
    char text[40];

    snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

/* Returns YaRN's own factor of cosines and sines. */
static double yarn_own(const wf_rope_scaling *s)
{
    return s->factor > 1 ? 0.1 * log(s->factor) + 1 : 1;
}

double wf_gguf_yarn_factor(const wf_nn_gpt_config *model)
{
    const wf_rope_scaling *s = &model->rope_scaling;

    return s->attention_factor > 0 ? s->attention_factor / yarn_own(s) : 1;
}

double wf_gguf_yarn_attention(const wf_nn_gpt_config *model, double by)
{
    const double own = yarn_own(&model->rope_scaling), factor = own * by;
    double shortest = factor;

    for (int digits = 3; digits <= 9; digits++) {
        shortest = rounded(factor, digits);
        if ((float)(shortest / own) == (float)by)
            return shortest;
    }
    return factor;
}

/* Returns true where a scaling has the factors, up to a rounding or two. */
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

/* The kept part of a frequency as a line over its rotations, which ends where all or nothing is
   kept. */
typedef struct line {
    const wf_nn_gpt_config *model;
    int64_t count, fast,
        slow; /* pairs before `fast` are kept, those from `slow` on are divided */
    double factor;
    const float *factors;
} line;

static double kept_of(const line *l, int64_t i)
{
    return (1 / (double)l->factors[i] - 1 / l->factor) / (1 - 1 / l->factor);
}

/* Returns the rotations of a pair in one position, also of pairs beyond the first or the last
   one. */
static double rotations_in_one(const line *l, int64_t i)
{
    return rotations_of(l->model, i, 1);
}

/* Finds the line through the pairs between, 1 at turns[0] and 0 at turns[1]: of several pairs
   through the first and the last; of one, or none, as steep as the pairs beside it need. */
static void find_line(const line *l, double turns[2])
{
    const double above = rotations_in_one(l, l->fast - 1), below = rotations_in_one(l, l->slow);
    double first, last, rate;

    turns[0] = above;
    turns[1] = below;
    if (l->slow == l->fast)
        return;
    first = rotations_in_one(l, l->fast);
    last = rotations_in_one(l, l->slow - 1);
    rate = fmax(kept_of(l, l->fast) / (first - below),
                (1 - kept_of(l, l->fast)) / (above - first));
    if (l->slow - l->fast > 1)
        rate = (kept_of(l, l->fast) - kept_of(l, l->slow - 1)) / (first - last);
    turns[0] = last + (1 - kept_of(l, l->slow - 1)) / rate;
    turns[1] = last - kept_of(l, l->slow - 1) / rate;
}

/*
 * The bounds and the original length are given up to one number that all are multiplied with.
 * As in all of Meta's configs, the lower bound is tried as 1 and the upper one as 4, and the
 * lower one as 1 with a whole length; else the length is 8192, and the bounds are what the line
 * says.
 */
bool wf_gguf_find_scaling(wf_nn_gpt_config *model, const float *factors)
{
    const wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    line l = {.model = &m, .count = m.head_dim / 2, .factors = factors};
    wf_nn_gpt_config found = m;
    double turns[2], length;

    l.factor = l.count ? (double)factors[l.count - 1] : 0;
    while (l.fast < l.count && factors[l.fast] == 1)
        l.fast++;
    if (l.fast == l.count || !(l.factor > 0 && l.factor < 1e6))
        return l.factor == 1; /* nothing is scaled */
    for (l.slow = l.fast; l.slow < l.count && (double)factors[l.slow] != l.factor;)
        l.slow++;
    find_line(&l, turns);
    length = round(1 / turns[1]);
    for (int attempt = 0; attempt < 4; attempt++) {
        const wf_rope_scaling scaling = {
            .kind = WF_ROPE_LLAMA3,
            .factor = l.factor,
            .original_positions = attempt == 0 || attempt == 3 ? 8192 : length,
            .low_freq_factor = attempt < 3 ? 1 : turns[1] * 8192,
            .high_freq_factor = attempt < 2    ? 4
                                : attempt == 2 ? rounded(turns[0] * length, 5)
                                               : turns[0] * 8192};

        found.rope_scaling = scaling;
        if (!wf_rope_scaling_wrong(&scaling) && gives(&found, factors, l.count)) {
            model->rope_scaling = scaling;
            return true;
        }
    }
    return false;
}
