/* kernels/rope_scaling.c - see the header. */
#include "kernels/rope_scaling.h"
#include <stdio.h>
#include <string.h>

const char *wf_rope_scaling_wrong(const wf_rope_scaling *s)
{
    if (s->kind != WF_ROPE_UNSCALED && !(s->factor > 0))
        return "its factor must be greater than 0";
    if (s->kind == WF_ROPE_LLAMA3 &&
        !(s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor))
        return "its low_freq_factor must be greater than 0, and its high_freq_factor greater "
               "than that";
    if (s->beta_fast < 0 || s->beta_slow < 0 || s->attention_factor < 0)
        return "its beta_fast, beta_slow and attention_factor must not be below 0";
    if (s->kind >= WF_ROPE_LLAMA3 && !(s->original_positions > 0))
        return "its original length must be greater than 0";
    return NULL;
}

static void parse_yarn(const char *text, wf_rope_scaling *s)
{
    int end = -1, all = -1;

    if (sscanf(text, "yarn:%lf,%lf%n,%lf,%lf,%lf%n", &s->factor, &s->original_positions, &end,
               &s->beta_fast, &s->beta_slow, &s->attention_factor, &all) >= 2 &&
        ((end > 0 && !text[end]) || (all > 0 && !text[all])))
        s->kind = WF_ROPE_YARN;
}

bool wf_rope_scaling_parse(const char *text, wf_rope_scaling *s)
{
    int end = -1;

    memset(s, 0, sizeof *s);
    if (strcmp(text, "none") == 0)
        return true;
    if (sscanf(text, "linear:%lf%n", &s->factor, &end) == 1 && end > 0 && !text[end])
        s->kind = WF_ROPE_LINEAR;
    else if (sscanf(text, "llama3:%lf,%lf,%lf,%lf%n", &s->factor, &s->low_freq_factor,
                    &s->high_freq_factor, &s->original_positions, &end) == 4 &&
             end > 0 && !text[end])
        s->kind = WF_ROPE_LLAMA3;
    else
        parse_yarn(text, s);
    return s->kind != WF_ROPE_UNSCALED && !wf_rope_scaling_wrong(s);
}

char *wf_rope_scaling_print(const wf_rope_scaling *s, char text[WF_ROPE_SCALING_TEXT])
{
    if (s->kind == WF_ROPE_LLAMA3)
        snprintf(text, WF_ROPE_SCALING_TEXT, "llama3:%.9g,%.9g,%.9g,%.15g", s->factor,
                 s->low_freq_factor, s->high_freq_factor, s->original_positions);
    else if (s->kind == WF_ROPE_YARN &&
             (s->beta_fast > 0 || s->beta_slow > 0 || s->attention_factor > 0))
        snprintf(text, WF_ROPE_SCALING_TEXT, "yarn:%.9g,%.15g,%.9g,%.9g,%.15g", s->factor,
                 s->original_positions, s->beta_fast, s->beta_slow, s->attention_factor);
    else if (s->kind == WF_ROPE_YARN)
        snprintf(text, WF_ROPE_SCALING_TEXT, "yarn:%.9g,%.15g", s->factor,
                 s->original_positions);
    else if (s->kind == WF_ROPE_LINEAR)
        snprintf(text, WF_ROPE_SCALING_TEXT, "linear:%.9g", s->factor);
    else
        snprintf(text, WF_ROPE_SCALING_TEXT, "none");
    return text;
}
