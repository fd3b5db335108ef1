/*
 * nn/text/tokenizer/match.c - the next match of a pattern, in steps that the text's length
 * bounds.
 *
 * PCRE2 sees a window of the text, and says where it would have to read on. What it says
 * otherwise holds for all of the text (PCRE2_PARTIAL_HARD). Where it would have to read on, the
 * match is tried at that byte alone, in larger windows, and its walk over the text is counted.
 */
#include "nn/text/tokenizer/tokenizer_internal.h"
#include "nn/text/utf8_internal.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A text may take STEPS steps, of about a nanosecond, and STEPS_OF_A_BYTE more for each of its
   bytes; each try of the next part of a pattern costs STEPS_OF_A_TRY. */
enum { STEPS_OF_A_BYTE = 1024, STEPS_OF_A_TRY = 16 };
static const uint64_t STEPS = 1 << 29;

wf_status wf_tok_pattern_slow(const wf_tok_pattern *pattern, wf_error *error, size_t at,
                              size_t n)
{
    enum { SHOWN = 60 };
    char shown[SHOWN + 4];
    size_t length = strnlen(pattern->text, SHOWN + 1);

    if (length > SHOWN)
        for (length = SHOWN; ((unsigned char)pattern->text[length] & 0xc0) == 0x80;)
            length--;
    memcpy(shown, pattern->text, length);
    strcpy(shown + length, pattern->text[length] ? "..." : "");
    return wf_error_set(
        error, WF_EDATA,
        "the tokenizer's pattern %s takes too long in a text of %zu bytes, at byte %zu: it "
        "reads far more of it than one word; cut the text into shorter documents",
        shown, n, at);
}

void wf_tok_matcher_begin(wf_tok_matcher *m, size_t n)
{
    m->steps = 0;
    m->most = STEPS + STEPS_OF_A_BYTE * (uint64_t)n;
}

#if !WEFT_HAS_PCRE2

bool wf_tok_matcher_open(wf_tok_matcher *m)
{
    *m = (wf_tok_matcher){0};
    return true;
}

void wf_tok_matcher_close(wf_tok_matcher *m)
{
    (void)m;
}

int wf_tok_pattern_find(const wf_tok_pattern *pattern, wf_tok_matcher *m, const uint8_t *text,
                        size_t n, size_t from, size_t *begin, size_t *end)
{
    (void)pattern, (void)m, (void)text, (void)n, (void)from, (void)begin, (void)end;
    return -1;
}

#else
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* PCRE2's stack for its compiled code. What does not fit takes its interpreter, which has a
   heap, of KiB. */
enum { STACK_FIRST = 32 << 10, STACK_MOST = 16 << 20, HEAP_MOST = 1 << 20, GROWTH = 8 };

/* Paths that PCRE2 tries at one position: in a window, beyond which they are counted, and
   then. */
enum { WAYS = 64 * WF_TOK_WINDOW, WAYS_COUNTED = 10000000 };

/* Counts the steps to the position where the next part of a pattern is tried. Called by
   PCRE2. */
static int walk(pcre2_callout_block *block, void *arg)
{
    wf_tok_matcher *m = arg;
    const char *at = (const char *)block->subject + block->current_position;

    m->steps += STEPS_OF_A_TRY + (uint64_t)(at > m->at ? at - m->at : m->at - at);
    m->at = at;
    return m->steps > m->most ? PCRE2_ERROR_CALLOUT : 0;
}

bool wf_tok_matcher_open(wf_tok_matcher *m)
{
    *m = (wf_tok_matcher){.window = WF_TOK_WINDOW};
    wf_tok_matcher_begin(m, 0);
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(STACK_FIRST, STACK_MOST, NULL);
    if (m->context && m->stack)
        pcre2_jit_stack_assign(m->context, NULL, m->stack);
    if (m->context)
        pcre2_set_heap_limit(m->context, HEAP_MOST);
    return m->data && m->context && m->stack;
}

void wf_tok_matcher_close(wf_tok_matcher *m)
{
    pcre2_match_data_free(m->data);
    pcre2_match_context_free(m->context);
    pcre2_jit_stack_free(m->stack);
    *m = (wf_tok_matcher){0};
}

/* Returns the end of a window from a byte on: where a character begins, or the text ends. */
static size_t window_end(const uint8_t *text, size_t n, size_t from, size_t bytes)
{
    size_t end = n - from > bytes ? from + bytes : n;

    while (end < n && (text[end] & 0xc0) == 0x80)
        end++;
    return end;
}

/* Matches in the text up to `end`, which is a window's where more follows, and tries at most
   `ways` paths. */
static int match(const pcre2_code *code, wf_tok_matcher *m, const uint8_t *text, size_t n,
                 size_t end, size_t from, uint32_t ways)
{
    const uint32_t options = PCRE2_NO_UTF_CHECK | (end < n ? PCRE2_PARTIAL_HARD : 0);
    int result;

    pcre2_set_match_limit(m->context, ways);
    result = pcre2_match(code, text, end, from, options, m->data, m->context);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)
        result =
            pcre2_match(code, text, end, from, options | PCRE2_NO_JIT, m->data, m->context);
    return result;
}

/* Matches at one position, in windows that grow, and counts. */
static int match_counted(const wf_tok_pattern *pattern, wf_tok_matcher *m, const uint8_t *text,
                         size_t n, size_t at)
{
    int result = PCRE2_ERROR_PARTIAL;

    pcre2_set_callout(m->context, walk, m);
    for (size_t bytes = m->window; result == PCRE2_ERROR_PARTIAL;) {
        bytes = bytes > n / GROWTH ? n : bytes * GROWTH;
        m->at = (const char *)text + at;
        result = match(pattern->counted, m, text, n, window_end(text, n, at, bytes), at,
                       WAYS_COUNTED);
    }
    pcre2_set_callout(m->context, NULL, NULL);
    return result;
}

int wf_tok_pattern_find(const wf_tok_pattern *pattern, wf_tok_matcher *m, const uint8_t *text,
                        size_t n, size_t from, size_t *begin, size_t *end)
{
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(m->data);
    int result = PCRE2_ERROR_NOMATCH;

    while (result == PCRE2_ERROR_NOMATCH) {
        size_t window = window_end(text, n, from, m->window);

        result = match(pattern->code, m, text, n, window, from, WAYS);
        if (result >= 0)
            break;
        if (result == PCRE2_ERROR_NOMATCH) {
            if (window == n)
                return 0;
            from = window;
            continue;
        }
        if (result == PCRE2_ERROR_PARTIAL)
            from = found[0];
        result = match_counted(pattern, m, text, n, from);
        if (result == PCRE2_ERROR_NOMATCH)
            from += (size_t)wf_text_utf8_bytes(text[from]);
        if (from >= n)
            return 0;
    }
    if (result < 0)
        return -1;
    *begin = found[0];
    *end = found[1];
    return 1;
}

#endif
