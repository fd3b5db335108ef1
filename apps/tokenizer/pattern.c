/* apps/tokenizer/pattern.c - see the header. */
#include "apps/tokenizer/pattern_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !WEFT_HAS_PCRE2

const char *app_pattern_compile(app_pattern *pattern, const char *text, size_t bytes,
                                app_pattern_syntax syntax, bool *unsupported)
{
    (void)text, (void)bytes, (void)syntax;
    *pattern = (app_pattern){0};
    *unsupported = true;
    return "this needs PCRE2, which was not there when this program was built (Debian: "
           "libpcre2-dev)";
}

void app_pattern_free(app_pattern *pattern)
{
    (void)pattern;
}

bool app_matcher_open(app_matcher *m)
{
    *m = (app_matcher){0};
    return true;
}

void app_matcher_close(app_matcher *m)
{
    (void)m;
}

int app_pattern_find(const app_pattern *pattern, const app_matcher *m, const uint8_t *text,
                     size_t n, size_t from, size_t *begin, size_t *end)
{
    (void)pattern, (void)m, (void)text, (void)n, (void)from, (void)begin, (void)end;
    return -1;
}

#else
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Unicode's White_Space. What PCRE2 takes for it has U+180E too. */
#define SPACES                                                                                 \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"         \
    "\\x{202f}\\x{205f}\\x{3000}"

/* PCRE2's stack for its compiled code. What does not fit takes its interpreter, which has a heap. */
enum { STACK_FIRST = 32 << 10, STACK_MOST = 16 << 20, MOST_PATTERN = 1 << 14 };

/* What two of these read in different ways. */
static const char *differs(const char *at, bool in_class)
{
    if (*at == '\\' && at[1] && strchr("wWbBhHRXKGC", at[1]))
        return "a pattern with \\w, \\W, \\b, \\B, \\h, \\R, \\X, \\K, \\G or \\C is not "
               "supported";
    if (in_class && (strncmp(at, "&&", 2) == 0 || (*at == '[' && at[1] != ':')))
        return "a pattern with a class inside a class is not supported";
    return NULL;
}

/* The pattern with \s spelled out, which `to` has room for. NULL, or what is wrong. */
static const char *translate(const char *from, size_t bytes, char *to)
{
    bool in_class = false;

    for (const char *end = from + bytes; from < end; from++) {
        const char *wrong = differs(from, in_class);
        bool space = from + 1 < end && from[0] == '\\' && (from[1] == 's' || from[1] == 'S');

        if (wrong)
            return wrong;
        if (space && (!in_class || from[1] == 's')) {
            to += sprintf(to, in_class ? "%s%s%s" : "[%s%s%s", from[1] == 'S' ? "^" : "",
                          SPACES, in_class ? "" : "]");
            from++;
            continue;
        }
        *to++ = *from;
        if (*from == '\\' && from + 1 < end)
            *to++ = *++from;
        else if (!in_class && *from == '[') {
            in_class = true;
            if (from[1] == '^')
                *to++ = *++from;
        } else if (in_class && *from == ']')
            in_class = false;
    }
    *to = '\0';
    return NULL;
}

const char *app_pattern_compile(app_pattern *pattern, const char *text, size_t bytes,
                                app_pattern_syntax syntax, bool *unsupported)
{
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C |
        (syntax == APP_PATTERN_RUBY ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
    char *spelled = bytes <= MOST_PATTERN ? malloc(bytes * sizeof SPACES + 8) : NULL;
    const char *wrong = "a pattern has at most 16384 bytes";
    uint32_t finds_nothing = 0;
    PCRE2_SIZE at;
    int why;

    *pattern = (app_pattern){0};
    *unsupported = false;
    if (!spelled)
        return bytes <= MOST_PATTERN ? "out of memory" : wrong;
    wrong = memchr(text, '\0', bytes) ? "a pattern with NUL" : translate(text, bytes, spelled);
    *unsupported = wrong != NULL;
    if (!wrong) {
        pattern->code =
            pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED, options, &why, &at, NULL);
        wrong = pattern->code ? NULL : "no regular expression that PCRE2 can read";
    }
    free(spelled);
    if (!pattern->code)
        return wrong;
    pcre2_jit_compile(pattern->code, PCRE2_JIT_COMPLETE); /* slower without, and the same */
    pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &finds_nothing);
    pattern->scan = app_scan_find(text, bytes);
    pattern->text = strndup(text, bytes);
    pattern->classes = pattern->scan ? app_classes_new() : NULL;
    if (!pattern->text || (pattern->scan && !pattern->classes))
        return "out of memory";
    *unsupported = finds_nothing != 0;
    return finds_nothing ? "a pattern that may find nothing is not supported" : NULL;
}

void app_pattern_free(app_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    free(pattern->classes);
    free(pattern->text);
    *pattern = (app_pattern){0};
}

bool app_matcher_open(app_matcher *m)
{
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (m->context && m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m->data && m->context && m->stack;
}

void app_matcher_close(app_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (app_matcher){0};
}

int app_pattern_find(const app_pattern *pattern, const app_matcher *m, const uint8_t *text,
                     size_t n, size_t from, size_t *begin, size_t *end)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    int result =
        pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK, m->data, m->context);

    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result = pcre2_match(pattern->code, text, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             m->data, m->context);
    if (result == PCRE2_ERROR_NOMATCH)
        return 0;
    if (result < 0)
        return -1;
    *begin = found[0];
    *end = found[1];
    return 1;
}

#endif
