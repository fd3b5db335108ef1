/* nn/text/tokenizer/young.c - see the header. */
#include "nn/text/tokenizer/young_internal.h"
#include "nn/text/tokenizer/tokenizer_internal.h"
#include <stdio.h>
#include <string.h>

static const struct {
    uint32_t first, last;
    char category[3];
    bool han;
} rows[] = {
#define YOUNG(first, last, category, han) {first, last, category, han},
#include "nn/text/tokenizer/young.def"
#undef YOUNG
};

enum { ROWS = sizeof rows / sizeof *rows };

static bool is(const char *property, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(property, name, n) == 0;
}

/* Skips "Script=" and the like, up to the name. */
static void skip_prefix(const char **property, size_t *n)
{
    for (size_t i = 0; i < *n; i++)
        if ((*property)[i] == '=' || (*property)[i] == ':') {
            *property += i + 1;
            *n -= i + 1;
            return;
        }
}

static bool has(int row, const char *property, size_t n)
{
    const char *c = rows[row].category;

    skip_prefix(&property, &n);
    if (is(property, n, "Han"))
        return rows[row].han;
    if (is(property, n, "Alphabetic") || is(property, n, "Alpha"))
        return *c == 'L' || strcmp(c, "Nl") == 0;
    if (is(property, n, "L&") || is(property, n, "LC"))
        return *c == 'L' && strchr("ult", c[1]);
    return n >= 1 && n <= 2 && memcmp(property, c, n) == 0;
}

bool wf_tok_young_has(const char *property, size_t n)
{
    for (int i = 0; i < ROWS; i++)
        if (has(i, property, n))
            return true;
    return false;
}

bool wf_tok_young_lacks(const char *property, size_t n)
{
    return is(property, n, "C") || is(property, n, "Cn");
}

bool wf_tok_young_write(const char *property, size_t n, wf_tok_bytes *to)
{
    for (int i = 0; i < ROWS; i++) {
        char text[40];

        if (!has(i, property, n))
            continue;
        snprintf(text, sizeof text,
                 rows[i].first < rows[i].last ? "\\x{%x}-\\x{%x}" : "\\x{%x}", rows[i].first,
                 rows[i].last);
        if (!wf_tok_bytes_add(to, text, strlen(text)))
            return false;
    }
    return true;
}
