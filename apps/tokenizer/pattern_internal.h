/*
 * apps/tokenizer/pattern_internal.h - regular expressions by which text is cut in words.
 *
 * PCRE2 matches them; those that most models have are recognised, and matched by hand, with the classes that PCRE2 has of
 * characters. They are read as the tokenizers that they come from read them: \s is Unicode's White_Space.
 */
#ifndef WF_APPS_TOKENIZER_PATTERN_INTERNAL_H
#define WF_APPS_TOKENIZER_PATTERN_INTERNAL_H

#include "core/status.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Classes of characters. A letter of no case, or of a modifier, is APP_LETTER, a mark APP_MARK and APP_OTHER. */
enum {
    APP_UPPER = 1, /* title case, too */
    APP_LOWER = 2,
    APP_LETTER = APP_UPPER | APP_LOWER,
    APP_NUMBER = 4,
    APP_SPACE = 8,
    APP_LINE_END = 16, /* \r and \n */
    APP_MARK = 32,
    APP_OTHER = 64
};

/* Characters below have a class: those of planes 0 to 3, as no letter is above. */
enum { APP_CLASSES = 0x40000 };

/* The classes of the first APP_CLASSES characters; NULL: out of memory. Owner: the caller, free. */
uint8_t *app_classes_new(void);

/* How a known pattern begins to match at a place of a text, by hand: where the match ends, or 0 where a character without a
   class has to be looked at. Never called at the end. */
typedef struct app_scan app_scan;
typedef size_t (*app_scan_at)(const app_scan *scan, const uint8_t *classes, const uint8_t *text,
                              size_t n, size_t at);
struct app_scan {
    app_scan_at at;
    int most_digits;     /* so many are together, where a pattern limits it */
    bool contractions;   /* 's and the like, in any case */
    bool slash;          /* goes on behind a line end */
    bool trailing_whole; /* white space that ends the text is together */
};

/* NULL: no known pattern. Those that are known match somewhere at every place. */
const app_scan *app_scan_find(const char *pattern, size_t bytes);

/* The pattern of a row of patterns.def; NULL: there is no such row. */
const char *app_scan_pattern(const char *name);

typedef struct app_pattern {
    void *code;
    const app_scan *scan; /* NULL: the pattern is not known */
    uint8_t *classes;     /* for `scan` */
    char *text;           /* as it was given */
} app_pattern;

/* How ^ and $ are read: as Rust does, or as Ruby does, line by line. */
typedef enum app_pattern_syntax { APP_PATTERN_RUST, APP_PATTERN_RUBY } app_pattern_syntax;

/*
 * NULL: done, else what is wrong, for behind the place in a file; *unsupported: that it is nothing wrong, but
 * not known here. app_pattern_free in any case.
 */
const char *app_pattern_compile(app_pattern *pattern, const char *text, size_t bytes,
                                app_pattern_syntax syntax, bool *unsupported);
void app_pattern_free(app_pattern *pattern);

/* What a thread needs to match. */
typedef struct app_matcher {
    void *data, *context, *stack;
} app_matcher;

bool app_matcher_open(app_matcher *m);
void app_matcher_close(app_matcher *m);

/* The first match from a place of valid text on: 1, 0 there is none, -1 it takes too long. */
int app_pattern_find(const app_pattern *pattern, const app_matcher *m, const uint8_t *text,
                     size_t n, size_t from, size_t *begin, size_t *end);

/* Where the match that begins at `at` ends; `at` where there is none. */
static inline size_t app_pattern_scan(const app_pattern *pattern, const uint8_t *text, size_t n,
                                      size_t at)
{
    return pattern->scan ? pattern->scan->at(pattern->scan, pattern->classes, text, n, at) : 0;
}

#endif
