/* nn/text/jinja/escape.c - escapes of text constants, as Python has them; UTF-8. */
#include "nn/text/jinja/run_internal.h"

bool jinja_is_utf8(const char *text, size_t bytes)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t character;

    for (size_t i = 0, n; i < bytes; i += n) {
        const unsigned char first = (unsigned char)text[i];

        n = jinja_character(text + i, bytes - i, &character);
        if (n == 1 ? first >= 0x80
                   : first < 0xc2 || first > 0xf4 || character < least[n] ||
                         character > 0x10ffff || (character >= 0xd800 && character < 0xe000))
            return false;
        for (size_t k = 1; k < n; k++)
            if (((unsigned char)text[i + k] & 0xc0) != 0x80)
                return false;
    }
    return true;
}

/* Reads hexadecimal digits; false: they are too few, or no character. */
static bool hexadecimal(const char *text, size_t bytes, size_t digits, uint32_t *character)
{
    *character = 0;
    for (size_t i = 0; i < digits; i++) {
        const char c = i < bytes ? text[i] : 0;

        if (c >= '0' && c <= '9')
            *character = *character * 16 + (uint32_t)(c - '0');
        else if ((c | 32) >= 'a' && (c | 32) <= 'f')
            *character = *character * 16 + (uint32_t)((c | 32) - 'a' + 10);
        else
            return false;
    }
    return *character <= 0x10ffff && !(*character >= 0xd800 && *character < 0xe000);
}

/* Reads the escape after a backslash and returns its bytes; 0: it is none that can be read. */
static size_t escape(const char *text, size_t bytes, char **to)
{
    static const char from[] = "\\'\"abfnrtv", with[] = "\\'\"\a\b\f\n\r\t\v";
    const char c = *text, *found = c ? strchr(from, c) : NULL;
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t character = 0;
    size_t n = 0;

    if (c == '\n')
        return 1;
    if (found) {
        *(*to)++ = with[found - from];
        return 1;
    }
    if (c == 'N' || (unsigned char)c >= 0x80 ||
        (digits && !hexadecimal(text + 1, bytes - 1, digits, &character)))
        return 0;
    for (; c >= '0' && c <= '7' && n < 3 && n < bytes && text[n] >= '0' && text[n] <= '7'; n++)
        character = character * 8 + (uint32_t)(text[n] - '0');
    if (!digits && n == 0) { /* the backslash stays */
        *(*to)++ = '\\';
        *(*to)++ = c;
        return 1;
    }
    *to += jinja_put_utf8(*to, character);
    return digits ? digits + 1 : n;
}

const char *jinja_unescape(const char *text, size_t bytes, char *data, size_t *written)
{
    char *to = data;

    for (size_t i = 0, n; i < bytes; i += n) {
        n = 1;
        if (text[i] != '\\') {
            *to++ = text[i];
            continue;
        }
        n = i + 1 < bytes ? escape(text + i + 1, bytes - i - 1, &to) : 0;
        if (n == 0)
            return "a text has an escape that is not supported, or is no character";
        n++;
    }
    *written = (size_t)(to - data);
    return NULL;
}
