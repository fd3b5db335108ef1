/* parallel/models/gpt/gguf_source.c - sizes and numbers among a GGUF file's keys; see
   gguf_source_internal.h. */
#include "parallel/models/gpt/gguf_source_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const char *wf_gguf_full_key(const wf_gguf_source *s, const char *key, char text[WF_GGUF_KEY])
{
    snprintf(text, WF_GGUF_KEY, "%s.%s", s->arch, key);
    return text;
}

int64_t wf_gguf_size_or(wf_gguf_source *s, const char *key, int64_t standard)
{
    char text[WF_GGUF_KEY];
    const wf_par_gguf_key *k = wf_par_gguf_find(s->g, wf_gguf_full_key(s, key, text),
                                                WF_PAR_GGUF_I64, false, s->error);
    int64_t value = k ? *(const int64_t *)k->values : standard;

    if (s->error->code == WF_OK && (value < 1 || value > INT32_MAX))
        wf_error_set(s->error, WF_EDATA,
                     "%.900s: key \"%s\" is %s, and has to be a number from 1 on", s->path,
                     text, k ? "out of its bounds" : "missing");
    return value;
}

/* The shortest decimal of what was rounded to a float: 3.7 where the file has 3.70000005.
   Configs say decimals. */
static double as_decimal(double x)
{
    char text[32] = "";
    const float rounded = (float)x;

    if (!isfinite(x) || (double)rounded != x)
        return x;
    for (int digits = 6; digits <= 9 && (digits == 6 || strtof(text, NULL) != rounded);
         digits++)
        snprintf(text, sizeof text, "%.*g", digits, x);
    return strtod(text, NULL);
}

double wf_gguf_number_or(wf_gguf_source *s, const char *key, double standard)
{
    char text[WF_GGUF_KEY];
    const wf_par_gguf_key *k = wf_par_gguf_find(s->g, wf_gguf_full_key(s, key, text),
                                                WF_PAR_GGUF_F64, false, s->error);
    double value = k ? as_decimal(*(const double *)k->values) : standard;

    if (s->error->code == WF_OK && !k && isnan(value))
        wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is missing", s->path, text);
    if (s->error->code == WF_OK && (!isfinite(value) || value < 0))
        wf_error_set(s->error, WF_EDATA, "%.900s: key \"%s\" is no number from 0 on", s->path,
                     text);
    return value;
}
