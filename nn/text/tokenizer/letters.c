/* nn/text/tokenizer/letters.c - bytes as the letters that GPT-2 writes them with, and as
   base64. */
#include "nn/text/tokenizer/load_internal.h"
#include "nn/text/utf8_internal.h"

/* Returns whether a byte is its own letter, as printable ones of Latin-1 are; the others, in
   order, are U+0100 and on. */
static bool itself(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

int wf_tok_letter_of_byte(uint8_t byte, uint8_t out[4])
{
    uint32_t code = byte;

    if (!itself(byte)) {
        code = 256;
        for (int b = 0; b < byte; b++)
            code += !itself(b);
    }
    return wf_text_utf8_encode(code, out);
}

/* Returns the byte of a letter, or -1. */
static int byte_of(uint32_t code)
{
    static const uint8_t first = 33; /* U+0100 to U+0120 are bytes 0 to 32 */

    if (code < 256)
        return itself((int)code) ? (int)code : -1;
    code -= 256;
    if (code < first)
        return (int)code;
    code -= first;
    if (code < 34)
        return 127 + (int)code;
    return code == 34 ? 173 : -1;
}

int64_t wf_tok_letters_to_bytes(const char *text, size_t bytes, char *out)
{
    const uint8_t *from = (const uint8_t *)text, *end = from + bytes;
    int64_t count = 0;

    while (from < end) {
        int byte = byte_of(wf_text_utf8_decode(from));

        if (byte < 0)
            return -1;
        out[count++] = (char)byte;
        from += wf_text_utf8_bytes(*from);
    }
    return count;
}

static int digit_of(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

int64_t wf_tok_base64(const char *text, size_t bytes, char *out)
{
    uint32_t bits = 0;
    int64_t count = 0;
    int held = 0;

    if (bytes % 4)
        return -1;
    while (bytes && text[bytes - 1] == '=' && held < 2) {
        bytes--;
        held++;
    }
    held = 0;
    for (size_t i = 0; i < bytes; i++) {
        int digit = digit_of(text[i]);

        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            out[count++] = (char)(bits >> held);
        }
    }
    return count;
}
