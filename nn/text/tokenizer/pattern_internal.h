/*
 * nn/text/tokenizer/pattern_internal.h - regular expressions by which text is cut in words.
 *
 * PCRE2 matches them; those that most models have are recognised, and matched by hand, with the
 * classes that PCRE2 has of characters. They are read as the tokenizers that they come from
 * read them: \s is Unicode's White_Space.
 */
#ifndef WF_NN_TEXT_TOKENIZER_PATTERN_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_PATTERN_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Classes of characters. A letter of no case, or of a modifier, is WF_TOK_LETTER, a mark
   WF_TOK_MARK and WF_TOK_OTHER. */
enum {
    WF_TOK_UPPER = 1, /* title case, too */
    WF_TOK_LOWER = 2,
    WF_TOK_LETTER = WF_TOK_UPPER | WF_TOK_LOWER,
    WF_TOK_NUMBER = 4,
    WF_TOK_SPACE = 8,
    WF_TOK_LINE_END = 16, /* \r and \n */
    WF_TOK_MARK = 32,
    WF_TOK_OTHER = 64
};

/* Characters below have a class: those of planes 0 to 3, as no letter is above. */
enum { WF_TOK_CLASSES = 0x40000 };

/* Returns the classes of the first WF_TOK_CLASSES characters; NULL: out of memory. Owner: the
   caller, free. */
uint8_t *wf_tok_classes_new(void);

/* Matches a known pattern at a position of a text, by hand: returns where the match ends, or 0
   where a character without a class has to be read. Never called at the end. */
typedef struct wf_tok_scan wf_tok_scan;
typedef size_t (*wf_tok_scan_at)(const wf_tok_scan *scan, const uint8_t *classes,
                                 const uint8_t *text, size_t n, size_t at);
struct wf_tok_scan {
    wf_tok_scan_at at;
    int most_digits;     /* digits that are together, where a pattern limits it */
    bool contractions;   /* 's and the like, in any case */
    bool slash;          /* continues after a line end */
    bool trailing_whole; /* white space that ends the text is together */
};

/* Finds the scanner of a pattern; NULL: it is not known. Known ones match from every byte
   on. */
const wf_tok_scan *wf_tok_scan_find(const char *pattern, size_t bytes);

/* Returns the pattern of a row of patterns.def; NULL: there is no such row. */
const char *wf_tok_scan_pattern(const char *name);

typedef struct wf_tok_pattern {
    void *code;
    void *counted;           /* the same, which matches at one position, and counts its steps */
    const wf_tok_scan *scan; /* NULL: the pattern is not known */
    uint8_t *classes;        /* for `scan` */
    char *text;              /* as it was given */
} wf_tok_pattern;

/* The meaning of ^ and $: as in Rust, or as in Ruby, line by line. */
typedef enum wf_tok_pattern_syntax {
    WF_TOK_PATTERN_RUST,
    WF_TOK_PATTERN_RUBY
} wf_tok_pattern_syntax;

/*
 * Compiles a pattern. Returns NULL, or the error, as text after the position in a file;
 * *unsupported: the pattern is valid, but not supported. wf_tok_pattern_free in any case.
 */
const char *wf_tok_pattern_compile(wf_tok_pattern *pattern, const char *text, size_t bytes,
                                   wf_tok_pattern_syntax syntax, bool *unsupported);
void wf_tok_pattern_free(wf_tok_pattern *pattern);

/* Bytes of a text that are looked at first; a match that needs more is counted. */
enum { WF_TOK_WINDOW = 512 };

/* The state of a thread that matches. */
typedef struct wf_tok_matcher {
    void *data, *context, *stack;
    size_t window;        /* WF_TOK_WINDOW; no other one finds anything else */
    uint64_t steps, most; /* steps of counted matches in this text; the limit */
    const char *at;       /* the position that a counted match has reached */
} wf_tok_matcher;

bool wf_tok_matcher_open(wf_tok_matcher *m);
void wf_tok_matcher_close(wf_tok_matcher *m);
/* Begins another text, of n bytes, whose patterns may take as many steps more as it allows. */
void wf_tok_matcher_begin(wf_tok_matcher *m, size_t n);

/*
 * Finds the first match from a byte of valid text on: 1, 0 there is none, -1 it takes too long,
 * as a pattern does that looks at all of a text from each of its bytes, or tries ever more
 * paths.
 */
int wf_tok_pattern_find(const wf_tok_pattern *pattern, wf_tok_matcher *m, const uint8_t *text,
                        size_t n, size_t from, size_t *begin, size_t *end);

/* Sets the error of the last: WF_EDATA, with the pattern, the position and the text's
   length. */
wf_status wf_tok_pattern_slow(const wf_tok_pattern *pattern, wf_error *error, size_t at,
                              size_t n);

/* Returns the end of the match that begins at `at`; `at` where there is none. */
static inline size_t wf_tok_pattern_scan(const wf_tok_pattern *pattern, const uint8_t *text,
                                         size_t n, size_t at)
{
    return pattern->scan ? pattern->scan->at(pattern->scan, pattern->classes, text, n, at) : 0;
}

#endif
