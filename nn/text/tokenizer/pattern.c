/* nn/text/tokenizer/pattern.c - see the header. */
#include "nn/text/tokenizer/tokenizer_internal.h"
#include "nn/text/tokenizer/young_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !WEFT_HAS_PCRE2

const char *wf_tok_pattern_compile(wf_tok_pattern *pattern, const char *text, size_t bytes,
                                   wf_tok_pattern_syntax syntax, bool *unsupported)
{
    (void)text, (void)bytes, (void)syntax;
    *pattern = (wf_tok_pattern){0};
    *unsupported = true;
    return "this needs PCRE2, which was not there when this program was built (Debian: "
           "libpcre2-dev)";
}

void wf_tok_pattern_free(wf_tok_pattern *pattern)
{
    (void)pattern;
}

#else
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Unicode's White_Space. What PCRE2 takes for it has U+180E too. */
#define SPACES                                                                                 \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"         \
    "\\x{202f}\\x{205f}\\x{3000}"

enum { MOST_PATTERN = 1 << 14 };

/* Returns the refusal of a construct that two of these syntaxes read differently, or NULL. */
static const char *differs(const char *at, bool in_class)
{
    if (*at == '\\' && at[1] && strchr("wWbBhHRXKGC", at[1]))
        return "a pattern with \\w, \\W, \\b, \\B, \\h, \\R, \\X, \\K, \\G or \\C is not "
               "supported";
    if (in_class && (strncmp(at, "&&", 2) == 0 || (*at == '[' && at[1] != ':')))
        return "a pattern with a class inside a class is not supported";
    return NULL;
}

/* A pattern that is being translated for PCRE2. */
typedef struct spelling {
    const char *at, *end;
    wf_tok_bytes to;
    bool in_class, young; /* young: characters that PCRE2 does not know are listed */
    bool lines;           /* ^ begins each line */
    bool ok;
} spelling;

static void add(spelling *s, const char *text, size_t bytes)
{
    s->ok = s->ok && wf_tok_bytes_add(&s->to, text, bytes);
}

static void add_text(spelling *s, const char *text)
{
    add(s, text, strlen(text));
}

/* \s or \S with its characters. In a class \S stays: PCRE2 takes U+180E for white space
   there. */
static bool write_space(spelling *s)
{
    if (s->in_class && s->at[1] == 'S')
        return false;
    add_text(s, s->in_class ? SPACES : s->at[1] == 'S' ? "[^" SPACES "]" : "[" SPACES "]");
    s->at += 2;
    return true;
}

/* Writes a property with the characters that are younger than PCRE2's Unicode: \p{L}, \pL,
   \P{L}, \d. Returns NULL, or the error. */
static const char *write_property(spelling *s)
{
    const bool digit = s->at[1] == 'd' || s->at[1] == 'D';
    const char *name = digit ? "Nd" : s->at + 2, *end = s->at + 2;
    bool not = s->at[1] == 'P' || s->at[1] == 'D';
    size_t n = digit ? 2 : 1;

    if (!digit && *name == '{') {
        const char *brace = memchr(name, '}', (size_t)(s->end - name));

        if (!brace)
            return "a property without its end";
        name++;
        if (*name == '^') {
            not = !not ;
            name++;
        }
        n = (size_t)(brace - name);
        end = brace + 1;
    } else if (!digit) {
        end++;
    }
    if (wf_tok_young_lacks(name, n))
        return "a pattern of characters that are assigned to nothing is not supported: PCRE2's "
               "Unicode is older than its tokenizer's";
    if (wf_tok_young_has(name, n)) {
        if (not &&s->in_class)
            return "a pattern with \\P or \\D in a class is not supported: PCRE2's Unicode is "
                   "older than its tokenizer's";
        add_text(s, s->in_class ? "" : not ? "[^" : "[");
        if (digit)
            add_text(s, "\\p{Nd}");
        else {
            add_text(s, "\\p{");
            add(s, name, n);
            add_text(s, "}");
        }
        s->ok = s->ok && wf_tok_young_write(name, n, &s->to);
        add_text(s, s->in_class ? "" : "]");
    } else {
        add(s, s->at, (size_t)(end - s->at));
    }
    s->at = end;
    return NULL;
}

/* Writes \Z and the ^ of lines as PCRE2 can decide them at the end of a window, which it would
   take for the text's. Returns false where something else is next. */
static bool write_end(spelling *s)
{
    if (!s->in_class && s->at[0] == '\\' && s->at[1] == 'Z') {
        add_text(s, "(?=\\n?\\z)");
        s->at += 2;
        return true;
    }
    if (s->in_class || !s->lines || *s->at != '^')
        return false;
    add_text(s, "(?:\\A|(?<=\\n)(?!\\z))");
    s->at++;
    return true;
}

/* Writes the next construct, in PCRE2's syntax. Returns NULL, or the error. */
static const char *write_next(spelling *s)
{
    const char *wrong = differs(s->at, s->in_class);
    const bool escape = *s->at == '\\' && s->at + 1 < s->end;

    if (wrong || (escape && strchr("sS", s->at[1]) && write_space(s)) || write_end(s))
        return wrong;
    if (escape && s->young &&
        (strchr("dD", s->at[1]) || (strchr("pP", s->at[1]) && s->at + 2 < s->end)))
        return write_property(s);
    if (escape) {
        add(s, s->at, 2);
        s->at += 2;
        return NULL;
    }
    add(s, s->at, 1);
    if (!s->in_class && *s->at == '[') {
        s->in_class = true;
        if (s->at + 1 < s->end && s->at[1] == '^')
            add(s, ++s->at, 1);
    } else if (s->in_class && *s->at == ']') {
        s->in_class = false;
    }
    s->at++;
    return NULL;
}

/* Returns true where PCRE2 has Unicode from before the characters of young.def. */
static bool is_old(void)
{
    char version[64] = "";

    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
    return atoi(version) < WF_TOK_YOUNG_UNICODE;
}

/* Translates a pattern: lists \s, and the properties of young characters. Returns NULL, or the
   error. Owner: the caller. */
static const char *translate(const char *from, size_t bytes, bool lines, wf_tok_bytes *to)
{
    spelling s = {
        .at = from, .end = from + bytes, .young = is_old(), .lines = lines, .ok = true};
    const char *wrong = NULL;

    while (!wrong && s.at < s.end)
        wrong = write_next(&s);
    add(&s, "", 1);
    *to = s.to;
    return wrong || s.ok ? wrong : "out of memory";
}

static pcre2_code *compile(const char *spelled, uint32_t options)
{
    PCRE2_SIZE at;
    int why;
    pcre2_code *code =
        pcre2_compile((PCRE2_SPTR)spelled, PCRE2_ZERO_TERMINATED, options, &why, &at, NULL);

    if (code) /* slower without, and the same */
        pcre2_jit_compile(code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD);
    return code;
}

const char *wf_tok_pattern_compile(wf_tok_pattern *pattern, const char *text, size_t bytes,
                                   wf_tok_pattern_syntax syntax, bool *unsupported)
{
    const uint32_t options =
        PCRE2_UTF | PCRE2_UCP | PCRE2_NO_UTF_CHECK | PCRE2_NEVER_BACKSLASH_C |
        (syntax == WF_TOK_PATTERN_RUBY ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY);
    wf_tok_bytes spelled = {0};
    const char *wrong = bytes > MOST_PATTERN ? "a pattern has at most 16384 bytes"
                        : memchr(text, '\0', bytes)
                            ? "a pattern with NUL"
                            : translate(text, bytes, syntax == WF_TOK_PATTERN_RUBY, &spelled);
    uint32_t finds_nothing = 0;

    *pattern = (wf_tok_pattern){0};
    *unsupported = wrong && wf_tok_wrong_code(wrong) != WF_ENOMEM;
    if (!wrong) {
        pattern->code = compile(spelled.data, options);
        pattern->counted = compile(spelled.data, options | PCRE2_ANCHORED | PCRE2_AUTO_CALLOUT);
        wrong = pattern->code && pattern->counted ? NULL
                                                  : "no regular expression that PCRE2 can read";
    }
    wf_tok_bytes_free(&spelled);
    if (wrong)
        return wrong;
    pcre2_pattern_info(pattern->code, PCRE2_INFO_MATCHEMPTY, &finds_nothing);
    pattern->scan = wf_tok_scan_find(text, bytes);
    pattern->text = strndup(text, bytes);
    pattern->classes = pattern->scan ? wf_tok_classes_new() : NULL;
    if (!pattern->text || (pattern->scan && !pattern->classes))
        return "out of memory";
    *unsupported = finds_nothing != 0;
    return finds_nothing ? "a pattern that may find nothing is not supported" : NULL;
}

void wf_tok_pattern_free(wf_tok_pattern *pattern)
{
    pcre2_code_free(pattern->code);
    pcre2_code_free(pattern->counted);
    free(pattern->classes);
    free(pattern->text);
    *pattern = (wf_tok_pattern){0};
}

#endif
