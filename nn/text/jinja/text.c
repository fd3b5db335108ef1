/* nn/text/jinja/text.c - texts as Python has them: characters, white space, cutting,
   replacing. */
#include "nn/text/jinja/run_internal.h"
#include <stdio.h>

bool jinja_is_space(uint32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

size_t jinja_character(const char *text, size_t bytes, uint32_t *character)
{
    const unsigned char first = (unsigned char)*text;
    size_t n = first < 0xc0 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;

    *character = n == 1 ? first : first & (0x7f >> n);
    if (n > bytes)
        n = bytes;
    for (size_t i = 1; i < n; i++)
        *character = *character << 6 | ((unsigned char)text[i] & 0x3f);
    return n;
}

size_t jinja_put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        to[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        to[0] = (char)(0xc0 | c >> 6);
        to[1] = (char)(0x80 | (c & 0x3f));
        return 2;
    }
    if (c < 0x10000) {
        to[0] = (char)(0xe0 | c >> 12);
        to[1] = (char)(0x80 | (c >> 6 & 0x3f));
        to[2] = (char)(0x80 | (c & 0x3f));
        return 3;
    }
    to[0] = (char)(0xf0 | c >> 18);
    to[1] = (char)(0x80 | (c >> 12 & 0x3f));
    to[2] = (char)(0x80 | (c >> 6 & 0x3f));
    to[3] = (char)(0x80 | (c & 0x3f));
    return 4;
}

size_t jinja_characters(wf_jinja_run *run, value text)
{
    size_t count = 0;

    jinja_work(run, text.bytes);
    for (size_t i = 0; i < text.bytes; i++)
        count += ((unsigned char)text.text[i] & 0xc0) != 0x80;
    return count;
}

value jinja_text_copy(wf_jinja_run *run, const char *text, size_t bytes)
{
    char *copy = jinja_take(run, bytes + 1);

    if (bytes)
        memcpy(copy, text, bytes);
    return wf_jinja_text(run, copy, bytes);
}

value jinja_text_format(wf_jinja_run *run, const char *format, ...)
{
    char text[256];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return jinja_text_copy(run, text, strlen(text));
}

void jinja_build(jinja_builder *b, const char *text, size_t bytes)
{
    if (b->bytes + bytes > b->room) {
        size_t room = 2 * (b->bytes + bytes) + 32;
        char *data = jinja_take(b->run, room);

        if (b->bytes)
            memcpy(data, b->data, b->bytes);
        b->data = data;
        b->room = room;
    }
    if (bytes)
        memcpy(b->data + b->bytes, text, bytes);
    b->bytes += bytes;
    jinja_work(b->run, bytes);
}

void jinja_build_word(jinja_builder *b, const char *word)
{
    jinja_build(b, word, strlen(word));
}

value jinja_built(const jinja_builder *b)
{
    return wf_jinja_text(b->run, b->data ? b->data : "", b->bytes);
}

/* Returns where a text stands in another one, from a byte on. It costs steps for what was
   looked at: bytes, and positions where the first byte matches. */
const char *jinja_search(wf_jinja_run *run, value text, value what, size_t from)
{
    enum { TRIES_OF_A_STEP = 16 };
    const char *found = what.bytes ? NULL : text.text + from;
    size_t i = from, tries = 0;

    for (; !found && what.bytes <= text.bytes && i <= text.bytes - what.bytes; i++) {
        const char *at = memchr(text.text + i, what.text[0], text.bytes - what.bytes - i + 1);

        i = at ? (size_t)(at - text.text) : text.bytes - what.bytes;
        tries += 1 + what.bytes / 64;
        if (at && memcmp(at, what.text, what.bytes) == 0)
            found = at;
    }
    jinja_work(run, i - from);
    run->steps += tries / TRIES_OF_A_STEP;
    return found;
}

static bool is_stripped(wf_jinja_run *run, const char *at, size_t bytes, value characters)
{
    uint32_t character;

    if (!jinja_is_text(characters)) {
        jinja_character(at, bytes, &character);
        return jinja_is_space(character);
    }
    return jinja_search(run, characters,
                        (value){.kind = WF_JINJA_TEXT, .bytes = (uint32_t)bytes, .text = at},
                        0);
}

value jinja_strip(wf_jinja_run *run, value text, value characters, bool left, bool right)
{
    uint32_t character;

    if (!jinja_is_text(characters) && characters.kind != WF_JINJA_NONE &&
        characters.kind != WF_JINJA_MISSING)
        jinja_fail(run, "what is stripped has to be a text, not a %s", jinja_type(characters));
    jinja_work(run, text.bytes);
    while (left && text.bytes) {
        size_t n = jinja_character(text.text, text.bytes, &character);

        if (!is_stripped(run, text.text, n, characters))
            break;
        text.text += n;
        text.bytes -= (uint32_t)n;
    }
    while (right && text.bytes) {
        uint32_t n = 1;

        while (n < text.bytes && ((unsigned char)text.text[text.bytes - n] & 0xc0) == 0x80)
            n++;
        if (!is_stripped(run, text.text + text.bytes - n, n, characters))
            break;
        text.bytes -= n;
    }
    return text;
}

static value part(value text, size_t begin, size_t end)
{
    return (value){
        .kind = WF_JINJA_TEXT, .bytes = (uint32_t)(end - begin), .text = text.text + begin};
}

/* Splits at stretches of white space, of which there is none at the ends. */
static value split_words(wf_jinja_run *run, value text, int64_t most)
{
    value list = wf_jinja_list(run);
    uint32_t character;

    jinja_work(run, text.bytes);
    for (size_t i = 0, n, begin;; wf_jinja_list_add(run, list, part(text, begin, i))) {
        for (; i < text.bytes; i += n) {
            n = jinja_character(text.text + i, text.bytes - i, &character);
            if (!jinja_is_space(character))
                break;
        }
        if (i == text.bytes)
            return list;
        begin = i;
        if (most >= 0 && list.list->count == (size_t)most) {
            wf_jinja_list_add(run, list, part(text, begin, text.bytes));
            return list;
        }
        for (; i < text.bytes; i += n) {
            n = jinja_character(text.text + i, text.bytes - i, &character);
            if (jinja_is_space(character))
                break;
        }
    }
}

value jinja_split(wf_jinja_run *run, value text, value separator, int64_t most)
{
    value list;
    const char *found;
    size_t begin = 0;

    if (!jinja_is_text(separator))
        return split_words(run, text, most);
    if (separator.bytes == 0)
        jinja_fail(run, "split needs a separator that is not empty");
    list = wf_jinja_list(run);
    while ((most < 0 || list.list->count < (size_t)most) &&
           (found = jinja_search(run, text, separator, begin))) {
        size_t end = (size_t)(found - text.text);

        wf_jinja_list_add(run, list, part(text, begin, end));
        begin = end + separator.bytes;
    }
    wf_jinja_list_add(run, list, part(text, begin, text.bytes));
    return list;
}

static bool ends_line(uint32_t c)
{
    return (c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
           c == 0x2029;
}

value jinja_split_lines(wf_jinja_run *run, value text, bool ends)
{
    value list = wf_jinja_list(run);
    uint32_t character;

    jinja_work(run, text.bytes);
    for (size_t i = 0, n, begin = 0; i < text.bytes; i += n) {
        n = jinja_character(text.text + i, text.bytes - i, &character);
        if (ends_line(character)) {
            if (character == '\r' && i + 1 < text.bytes && text.text[i + 1] == '\n')
                n = 2;
            wf_jinja_list_add(run, list, part(text, begin, ends ? i + n : i));
            begin = i + n;
        } else if (i + n == text.bytes) {
            wf_jinja_list_add(run, list, part(text, begin, text.bytes));
        }
    }
    return list;
}

value jinja_replace(wf_jinja_run *run, value text, value old, value with, int64_t most)
{
    jinja_builder b = {.run = run};
    const char *found;
    size_t at = 0;
    uint32_t character;

    while (most != 0 && (found = jinja_search(run, text, old, at))) {
        size_t end = (size_t)(found - text.text);

        jinja_build(&b, text.text + at, end - at);
        jinja_build(&b, with.text, with.bytes);
        at = end + old.bytes;
        most -= most > 0;
        if (old.bytes == 0) { /* in front of each character, and at the end */
            if (at == text.bytes)
                return jinja_built(&b);
            end = at + jinja_character(text.text + at, text.bytes - at, &character);
            jinja_build(&b, text.text + at, end - at);
            at = end;
        }
    }
    jinja_build(&b, text.text + at, text.bytes - at);
    return jinja_built(&b);
}

/* Says whether a byte stands where Jinja's filter `title`, or Python's title, begins a word. */
static bool begins_word(const char *text, size_t at, char how)
{
    const char c = at ? text[at - 1] : ' ';

    if (how == 'w')
        return at == 0 || strchr("-({[<", c) || jinja_is_space((unsigned char)c);
    return !((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'));
}

value jinja_case(wf_jinja_run *run, value text, char how)
{
    char *to = jinja_take(run, text.bytes + 1);

    jinja_work(run, text.bytes);
    for (size_t i = 0; i < text.bytes; i++) {
        const char c = text.text[i];
        const bool upper = how == 'u' || (how == 'c' && i == 0) ||
                           ((how == 't' || how == 'w') && begins_word(text.text, i, how));

        if ((unsigned char)c >= 0x80)
            jinja_unsupported(
                run, "upper and lower case of characters beyond ASCII are not supported");
        to[i] = upper && c >= 'a' && c <= 'z'    ? c - 32
                : !upper && c >= 'A' && c <= 'Z' ? c + 32
                                                 : c;
    }
    return wf_jinja_text(run, to, text.bytes);
}

value jinja_escape(wf_jinja_run *run, value text)
{
    jinja_builder b = {.run = run};

    for (size_t i = 0; i < text.bytes; i++) {
        const char c = text.text[i];
        const char *word = c == '&'    ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '\'' ? "&#39;"
                           : c == '"'  ? "&#34;"
                                       : NULL;

        if (word)
            jinja_build_word(&b, word);
        else
            jinja_build(&b, &c, 1);
    }
    return jinja_built(&b);
}

/* Writes a text with %s, %d, %i, %r and %%. */
value jinja_formatted(wf_jinja_run *run, value format, value given)
{
    const value one = {.kind = WF_JINJA_TUPLE,
                       .list = &(jinja_list){.items = &given, .count = 1}};
    const jinja_list *args = given.kind == WF_JINJA_TUPLE ? given.list : one.list;
    jinja_builder b = {.run = run};
    size_t next = 0;

    if (given.kind == WF_JINJA_DICT)
        jinja_unsupported(run, "%% of a text and a dictionary is not supported");
    for (size_t i = 0; i < format.bytes; i++) {
        const char c = format.text[i], kind = i + 1 < format.bytes ? format.text[i + 1] : 0;
        value text;

        if (c != '%') {
            jinja_build(&b, &c, 1);
            continue;
        }
        i++;
        if (kind == '%') {
            jinja_build(&b, "%", 1);
            continue;
        }
        if (kind != 's' && kind != 'd' && kind != 'i' && kind != 'r')
            jinja_unsupported(run, "a format supports %%s, %%d, %%i, %%r and %%%% alone");
        if (next == args->count)
            jinja_fail(run, "a format has more fields than there are values");
        text = args->items[next++];
        if ((kind == 'd' || kind == 'i') && !jinja_is_integer(text))
            jinja_unsupported(run, "%%%c of a %s is not supported", kind, jinja_type(text));
        if (kind == 'd' || kind == 'i')
            text = wf_jinja_integer(jinja_integer_of(text));
        if (kind == 'r') {
            jinja_build_repr(&b, text);
        } else {
            text = jinja_string(run, text);
            jinja_build(&b, text.text, text.bytes);
        }
    }
    if (next < args->count)
        jinja_fail(run, "a format has fewer fields than there are values");
    return jinja_built(&b);
}
