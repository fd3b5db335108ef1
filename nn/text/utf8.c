/* nn/text/utf8.c - see the header. The ranges are those of the Unicode standard, table 3-7. */
#include "nn/text/utf8_internal.h"
#include <stdbool.h>
#include <string.h>

int wf_text_utf8_take(const uint8_t *bytes, size_t n, int *wrong)
{
    uint8_t first = bytes[0], low = 0x80, high = 0xbf;
    int length = wf_text_utf8_bytes(first);

    *wrong = 1;
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : low;
    high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : high;
    for (int i = 1; i < length; i++) {
        if ((size_t)i == n || bytes[i] < low || bytes[i] > high) {
            *wrong = i;
            return 0;
        }
        low = 0x80;
        high = 0xbf;
    }
    return length;
}

/* Returns the bytes of a character of two or three bytes, of those that are valid by their
   second and third byte alone; else 0. */
static inline int take_common(const uint8_t *bytes)
{
    bool second = (bytes[1] & 0xc0) == 0x80, third = (bytes[2] & 0xc0) == 0x80;

    if (bytes[0] >= 0xc2 && bytes[0] < 0xe0)
        return second ? 2 : 0;
    return bytes[0] > 0xe0 && bytes[0] < 0xf0 && bytes[0] != 0xed && second && third ? 3 : 0;
}

size_t wf_text_utf8_valid(const uint8_t *bytes, size_t n)
{
    size_t at = 0;
    int wrong;

    while (at < n) {
        uint64_t eight;
        int length;

        if (n - at >= 8) {
            memcpy(&eight, bytes + at, 8);
            if (!(eight & 0x8080808080808080u)) {
                at += 8;
                continue;
            }
        }
        length = n - at >= 3 ? take_common(bytes + at) : 0;
        if (!length)
            length = wf_text_utf8_take(bytes + at, n - at, &wrong);
        if (!length)
            return at;
        at += (size_t)length;
    }
    return at;
}

uint32_t wf_text_utf8_decode(const uint8_t *bytes)
{
    int length = wf_text_utf8_bytes(bytes[0]);
    uint32_t code = length == 1 ? bytes[0] : bytes[0] & (0xffu >> (length + 1));

    for (int i = 1; i < length; i++)
        code = code << 6 | (bytes[i] & 0x3f);
    return code;
}

int wf_text_utf8_encode(uint32_t code, uint8_t bytes[4])
{
    int length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;

    for (int i = length - 1; i > 0; i--) {
        bytes[i] = (uint8_t)(0x80 | (code & 0x3f));
        code >>= 6;
    }
    bytes[0] = (uint8_t)(length == 1 ? code : (0xf00u >> length & 0xff) | code);
    return length;
}
