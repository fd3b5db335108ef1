/*
 * nn/text/tokenizer/young_internal.h - characters that PCRE2 may not know yet, as classes of
 * regular expressions.
 */
#ifndef WF_NN_TEXT_TOKENIZER_YOUNG_INTERNAL_H
#define WF_NN_TEXT_TOKENIZER_YOUNG_INTERNAL_H

#include "nn/text/tokenizer/tokenizer.h"

/* The Unicode of young.def. */
enum { WF_TOK_YOUNG_UNICODE = 16 };

/* Returns true where young characters have a property, of n bytes: a general category, L&,
   Alphabetic or Han. */
bool wf_tok_young_has(const char *property, size_t n);

/* Returns true for a property of unassigned characters, which the young ones no longer have. */
bool wf_tok_young_lacks(const char *property, size_t n);

/* Appends the ranges of characters that have it, as of a class: "\x{897}\x{1c89}-\x{1c8a}".
   False: out of memory. */
bool wf_tok_young_write(const char *property, size_t n, wf_tok_bytes *to);

#endif
