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
    if (s->kind == WF_ROPE_LLAMA3 && !(s->original_positions > 0))
        return "its original length must be greater than 0";
    return NULL;
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
    return s->kind != WF_ROPE_UNSCALED && !wf_rope_scaling_wrong(s);
}

char *wf_rope_scaling_print(const wf_rope_scaling *s, char text[WF_ROPE_SCALING_TEXT])
{
    if (s->kind == WF_ROPE_LLAMA3)
        snprintf(text, WF_ROPE_SCALING_TEXT, "llama3:%.9g,%.9g,%.9g,%.15g", s->factor,
                 s->low_freq_factor, s->high_freq_factor, s->original_positions);
    else if (s->kind == WF_ROPE_LINEAR)
        snprintf(text, WF_ROPE_SCALING_TEXT, "linear:%.9g", s->factor);
    else
        snprintf(text, WF_ROPE_SCALING_TEXT, "none");
    return text;
}
