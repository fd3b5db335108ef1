/* kernels/rope_scaling.c - see the header. */
#include "kernels/rope_scaling.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The numbers between which scalings lie. Beyond them angles leave the numbers that floats
   hold. */
static const double LEAST = 1e-6, MOST = 1e12;

/* Returns true for a number that is given and that no scaling has. */
static bool is_beyond(double number)
{
    return number != 0 && !(number >= LEAST && number <= MOST);
}

const char *wf_rope_scaling_wrong(const wf_rope_scaling *s)
{
    if (s->kind != WF_ROPE_UNSCALED && s->kind != WF_ROPE_LONG && !(s->factor > 0))
        return "its factor must be greater than 0";
    if (s->kind == WF_ROPE_LLAMA3 &&
        !(s->low_freq_factor > 0 && s->high_freq_factor >= s->low_freq_factor))
        return "its low_freq_factor must be greater than 0, and its high_freq_factor not below "
               "that";
    if (s->beta_fast < 0 || s->beta_slow < 0 || s->attention_factor < 0)
        return "its beta_fast, beta_slow and attention_factor must not be below 0";
    if (s->kind >= WF_ROPE_LLAMA3 && !(s->original_positions > 0))
        return "its original length must be greater than 0";
    if (s->kind == WF_ROPE_DYNAMIC && !(s->factor >= 1))
        return "its factor must be 1 or more";
    if (s->kind == WF_ROPE_LONG && !(s->original_positions > 1 && s->factor >= 0))
        return "its original length must be greater than 1, and its factor not below 0";
    if (is_beyond(s->factor) || is_beyond(s->low_freq_factor) ||
        is_beyond(s->high_freq_factor) || is_beyond(s->original_positions) ||
        is_beyond(s->beta_fast) || is_beyond(s->beta_slow) || is_beyond(s->attention_factor))
        return "its numbers must be from 1e-6 to 1e12";
    return NULL;
}

const char *wf_rope_factors_wrong(const wf_rope_factors *f, int64_t pairs)
{
    if (!f || f->count != pairs || pairs > WF_ROPE_PAIRS)
        return "it needs a short and a long factor for each pair of features that is rotated, "
               "at most 128 of each";
    for (int64_t i = 0; i < pairs; i++)
        if (!(f->short_factor[i] > 0) || is_beyond((double)f->short_factor[i]) ||
            !(f->long_factor[i] > 0) || is_beyond((double)f->long_factor[i]))
            return "its short and long factors must be greater than 0, from 1e-6 to 1e12";
    return NULL;
}

const char *wf_rope_features_wrong(const wf_rope_scaling *s, const wf_rope_factors *f,
                                   int64_t features)
{
    const char *wrong = wf_rope_scaling_wrong(s);

    if (wrong)
        return wrong;
    if (s->kind == WF_ROPE_DYNAMIC && (features <= 2 || features > 2 * WF_ROPE_PAIRS))
        return "dynamic scaling is of 4 to 256 features that rotate: the first pair stays";
    return s->kind == WF_ROPE_LONG ? wf_rope_factors_wrong(f, features / 2) : NULL;
}

static void parse_yarn(const char *text, wf_rope_scaling *s)
{
    int end = -1, all = -1;

    if (sscanf(text, "yarn:%lf,%lf%n,%lf,%lf,%lf%n", &s->factor, &s->original_positions, &end,
               &s->beta_fast, &s->beta_slow, &s->attention_factor, &all) >= 2 &&
        ((end > 0 && !text[end]) || (all > 0 && !text[all])))
        s->kind = WF_ROPE_YARN;
}

/* Numbers with commas between them, up to a character that is none of theirs; how many, or -1:
   too many, or no number. */
static int64_t parse_list(const char **text, float list[WF_ROPE_PAIRS])
{
    for (int64_t n = 0; n < WF_ROPE_PAIRS;) {
        char *end;

        list[n++] = strtof(*text, &end);
        if (end == *text)
            return -1;
        *text = end;
        if (**text != ',')
            return n;
        ++*text;
    }
    return -1;
}

static void parse_long(const char *text, wf_rope_scaling *s, wf_rope_factors *f)
{
    int end = -1, all = -1;
    int64_t count;

    if (sscanf(text, "longrope:%lf%n,%lf,%lf%n", &s->original_positions, &end, &s->factor,
               &s->attention_factor, &all) < 1)
        return;
    text += all > 0 ? all : end;
    if (*text++ != ':')
        return;
    count = parse_list(&text, f->short_factor);
    if (*text++ != ':' || parse_list(&text, f->long_factor) != count || *text)
        return;
    f->count = count;
    if (!wf_rope_factors_wrong(f, count))
        s->kind = WF_ROPE_LONG;
}

bool wf_rope_scaling_parse(const char *text, wf_rope_scaling *s, wf_rope_factors *f)
{
    int end = -1;

    memset(s, 0, sizeof *s);
    memset(f, 0, sizeof *f);
    if (strcmp(text, "none") == 0)
        return true;
    if (sscanf(text, "linear:%lf%n", &s->factor, &end) == 1 && end > 0 && !text[end])
        s->kind = WF_ROPE_LINEAR;
    else if (sscanf(text, "llama3:%lf,%lf,%lf,%lf%n", &s->factor, &s->low_freq_factor,
                    &s->high_freq_factor, &s->original_positions, &end) == 4 &&
             end > 0 && !text[end])
        s->kind = WF_ROPE_LLAMA3;
    else if (sscanf(text, "dynamic:%lf,%lf%n", &s->factor, &s->original_positions, &end) == 2 &&
             end > 0 && !text[end])
        s->kind = WF_ROPE_DYNAMIC;
    else if (strncmp(text, "longrope:", 9) == 0)
        parse_long(text, s, f);
    else
        parse_yarn(text, s);
    return s->kind != WF_ROPE_UNSCALED && !wf_rope_scaling_wrong(s);
}

static size_t print_list(const float *list, int64_t count, char *text, size_t used)
{
    for (int64_t i = 0; i < count && used < WF_ROPE_SCALING_TEXT; i++)
        used += (size_t)snprintf(text + used, WF_ROPE_SCALING_TEXT - used, "%c%.9g",
                                 i ? ',' : ':', (double)list[i]);
    return used;
}

static void print_long(const wf_rope_scaling *s, const wf_rope_factors *f, char *text)
{
    size_t used =
        (size_t)snprintf(text, WF_ROPE_SCALING_TEXT, "longrope:%.15g", s->original_positions);

    if (s->factor > 0 || s->attention_factor > 0)
        used += (size_t)snprintf(text + used, WF_ROPE_SCALING_TEXT - used, ",%.15g,%.15g",
                                 s->factor, s->attention_factor);
    used = print_list(f->short_factor, f->count, text, used);
    print_list(f->long_factor, f->count, text, used);
}

char *wf_rope_scaling_print(const wf_rope_scaling *s, const wf_rope_factors *f,
                            char text[WF_ROPE_SCALING_TEXT])
{
    if (s->kind == WF_ROPE_LONG)
        print_long(s, f, text);
    else if (s->kind == WF_ROPE_LLAMA3)
        snprintf(text, WF_ROPE_SCALING_TEXT, "llama3:%.9g,%.9g,%.9g,%.15g", s->factor,
                 s->low_freq_factor, s->high_freq_factor, s->original_positions);
    else if (s->kind == WF_ROPE_YARN &&
             (s->beta_fast > 0 || s->beta_slow > 0 || s->attention_factor > 0))
        snprintf(text, WF_ROPE_SCALING_TEXT, "yarn:%.9g,%.15g,%.9g,%.9g,%.15g", s->factor,
                 s->original_positions, s->beta_fast, s->beta_slow, s->attention_factor);
    else if (s->kind == WF_ROPE_YARN)
        snprintf(text, WF_ROPE_SCALING_TEXT, "yarn:%.9g,%.15g", s->factor,
                 s->original_positions);
    else if (s->kind == WF_ROPE_DYNAMIC)
        snprintf(text, WF_ROPE_SCALING_TEXT, "dynamic:%.9g,%.15g", s->factor,
                 s->original_positions);
    else if (s->kind == WF_ROPE_LINEAR)
        snprintf(text, WF_ROPE_SCALING_TEXT, "linear:%.9g", s->factor);
    else
        snprintf(text, WF_ROPE_SCALING_TEXT, "none");
    return text;
}
