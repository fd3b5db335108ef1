/* nn/text/utf8_internal.h - characters as bytes, and bytes that are none. */
#ifndef WF_NN_TEXT_UTF8_INTERNAL_H
#define WF_NN_TEXT_UTF8_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

/*
 * Takes the character at the beginning of n >= 1 bytes: returns how many bytes it has, at most
 * 4. 0: there is none, and *wrong is how many bytes are no part of one, as Unicode's "maximal
 *    subparts" has it, at least 1; where the bytes end before the character does, that is all
 *    of them.
 */
int wf_text_utf8_take(const uint8_t *bytes, size_t n, int *wrong);

/* Returns how many bytes from the beginning on are whole characters. */
size_t wf_text_utf8_valid(const uint8_t *bytes, size_t n);

/* Return, for valid text, the bytes of a character by its first one; its code point; and encode
   one, with its number of bytes. */
static inline int wf_text_utf8_bytes(uint8_t first)
{
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}

uint32_t wf_text_utf8_decode(const uint8_t *bytes);
int wf_text_utf8_encode(uint32_t code, uint8_t bytes[4]);

#endif
