/* parallel/check/names.c - sets of parameters and factors as text; findings of a report. */
#include "parallel/check/check_internal.h"
#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PATTERNS = 32, SHOWN = 3 };

wf_check_finding *wf_check_add(wf_check_report *report, const char *id, wf_error *error)
{
    wf_check_finding *grown =
        realloc(report->finding, (size_t)(report->findings + 1) * sizeof *grown);

    if (!grown) {
        wf_error_set(error, WF_ENOMEM, "no memory for a finding");
        return NULL;
    }
    report->finding = grown;
    grown += report->findings++;
    memset(grown, 0, sizeof *grown);
    snprintf(grown->id, sizeof grown->id, "%s", id);
    return grown;
}

/* A name with the numbers of its layer and expert as *. */
static void pattern_of(const char *name, char pattern[256])
{
    const char *c = name;
    size_t n = 0;

    while (*c && n < 255) {
        if (*c == '.' && isdigit((unsigned char)c[1])) {
            const char *end = c + 1;

            while (isdigit((unsigned char)*end))
                end++;
            pattern[n++] = '.';
            if (n < 255)
                pattern[n++] = '*';
            c = end;
            continue;
        }
        pattern[n++] = *c++;
    }
    pattern[n] = 0;
}

int64_t wf_check_name_set(const wf_check_reference *r, wf_check_is *is, const void *arg,
                          char *text, size_t size)
{
    char pattern[256];
    const char *first[PATTERNS];
    int64_t count[PATTERNS], total = 0;
    int n = 0;
    size_t used = 0;

    for (int64_t i = 0; i < r->count; i++) {
        int k = 0;

        if (!is(&r->tensor[i], arg))
            continue;
        total++;
        pattern_of(r->tensor[i].name, pattern);
        for (; k < n; k++) {
            char other[256];

            pattern_of(first[k], other);
            if (strcmp(other, pattern) == 0)
                break;
        }
        if (k == PATTERNS)
            continue;
        count[k] = k == n ? 1 : count[k] + 1;
        if (k == n)
            first[n++] = r->tensor[i].name;
    }
    if (total == r->count && total > 1) {
        snprintf(text, size, "all %lld parameters", (long long)total);
        return total;
    }
    *text = 0;
    for (int k = 0; k < n && k < SHOWN && used < size; k++) {
        pattern_of(first[k], pattern);
        used += (size_t)(count[k] > 1 ? snprintf(text + used, size - used, "%s%s (%lld)",
                                                 k ? ", " : "", pattern, (long long)count[k])
                                      : snprintf(text + used, size - used, "%s%s",
                                                 k ? ", " : "", first[k]));
    }
    if (n > SHOWN && used < size)
        snprintf(text + used, size - used, " and %lld more",
                 (long long)(total - count[0] - count[1] - count[2]));
    return total;
}

/* A count that a factor may be, and its word. */
static const char *count_word(double f, const wf_check_numbers *n, double slack)
{
    const struct {
        int64_t count;
        const char *word;
    } known[] = {{n->dp, " = dp"},
                 {n->tp, " = tp"},
                 {n->micro_batches, " = micro-batches"},
                 {n->dp * n->micro_batches, " = dp x micro-batches"},
                 {n->dp * n->tp, " = dp x tp"},
                 {n->sequences, " = sequences of the batch"}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].count > 1 && fabs(f / (double)known[i].count - 1) <= slack)
            return known[i].word;
    return "";
}

/* Ratios of the batch's tokens. */
static const char *token_word(double f, const wf_check_numbers *n, double slack)
{
    const double counted = (double)n->counted, all = (double)n->all;
    const double predicted = (double)(n->sequences * (n->tokens - 1));
    const struct {
        double ratio;
        const char *word;
    } known[] = {
        {counted, "the tokens that count: a sum of losses, not a mean"},
        {counted / all, "tokens that count / all tokens of the batch: those that do not count "
                        "are in the mean's divisor"},
        {counted / predicted,
         "tokens that count / all tokens with a next one: those that do not "
         "count are in the mean's divisor"},
        {all / counted, "all tokens / tokens that count"},
        {1 / counted, "1 / tokens that count: divided by them twice"},
    };

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(known[i].ratio - 1) > 2 * slack && fabs(f / known[i].ratio - 1) <= slack)
            return known[i].word;
    return NULL;
}

const char *wf_check_factor_name(double factor, const wf_check_numbers *n, char text[96])
{
    const double slack = 2 * n->tolerance < 5e-3 ? 2 * n->tolerance : 5e-3;
    const double f = fabs(factor), big = f < 1 ? 1 / f : f, whole = round(big);
    const char *word = token_word(factor, n, slack), *minus = factor < 0 ? "-" : "";
    const char *over = f < 1 ? "1 / " : "";

    *text = 0;
    if (fabs(f - 1) <= slack && factor < 0)
        snprintf(text, 96, "-1");
    else if (word)
        snprintf(text, 96, "%s", word);
    else if (whole >= 2 && whole <= 4096 && fabs(big / whole - 1) <= slack)
        snprintf(text, 96, "%s%s%lld%s", minus, over, (long long)whole,
                 count_word(whole, n, slack));
    else if (big > 1.2 && round(big * big) <= 64 &&
             fabs(big * big / round(big * big) - 1) <= slack)
        snprintf(text, 96, "%s%ssqrt(%lld%s)", minus, over, (long long)round(big * big),
                 count_word(round(big * big), n, slack));
    return text;
}
