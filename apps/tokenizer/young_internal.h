/*
 * apps/tokenizer/young_internal.h - characters that PCRE2 may not know yet, as classes of regular expressions.
 */
#ifndef WF_APPS_TOKENIZER_YOUNG_INTERNAL_H
#define WF_APPS_TOKENIZER_YOUNG_INTERNAL_H

#include "apps/tokenizer/tokenizer.h"

/* The Unicode of young.def. */
enum { APP_YOUNG_UNICODE = 16 };

/* Whether young characters have a property, of n bytes: a general category, L&, Alphabetic or Han. */
bool app_young_has(const char *property, size_t n);

/* Whether it is a property of characters that are assigned to nothing, which the young ones no longer have. */
bool app_young_lacks(const char *property, size_t n);

/* Appends the ranges of those that have it, as of a class: "\x{897}\x{1c89}-\x{1c8a}". False: out of memory. */
bool app_young_spell(const char *property, size_t n, app_tokenizer_bytes *to);

#endif
