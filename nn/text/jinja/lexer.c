/* nn/text/jinja/lexer.c - a source as tokens, with Jinja's rules for white space around
   tags. */
#include "nn/text/jinja/run_internal.h"
#include <stdlib.h>

/* The position of a scanner in a source. */
typedef struct scanner {
    jinja_reader *r;
    const char *text;
    size_t bytes, at, counted, line_start;
    uint32_t line;
    char open[JINJA_MOST_NESTING]; /* brackets that are not closed */
    int opened;
} scanner;

static jinja_token *add(scanner *s, jinja_token_kind kind, size_t begin, size_t end)
{
    jinja_reader *r = s->r;
    jinja_token *t;

    if (r->count == r->room) {
        uint32_t room = 2 * r->room + 256;
        jinja_token *more = jinja_reader_take(r, room * sizeof *more);

        if (r->count)
            memcpy(more, r->tokens, r->count * sizeof *more);
        r->tokens = more;
        r->room = room;
    }
    for (; s->counted < begin; s->counted++)
        if (s->text[s->counted] == '\n') {
            s->line++;
            s->line_start = s->counted + 1;
        }
    t = &r->tokens[r->count++];
    *t = (jinja_token){.kind = kind,
                       .line = s->line,
                       .column = (uint32_t)(begin - s->line_start) + 1,
                       .text = s->text + begin,
                       .bytes = (uint32_t)(end - begin)};
    return t;
}

/* An error at the byte where the scanner is. */
#define REFUSE(s, status, ...)                                                                 \
    do {                                                                                       \
        const jinja_token *here_ = add(s, JINJA_END, (s)->at, (s)->at);                        \
        jinja_refuse((s)->r, status, here_->line, here_->column, __VA_ARGS__);                 \
    } while (0)

/* Returns where white space that begins at a byte ends. */
static size_t after_space(const scanner *s, size_t at)
{
    uint32_t character;

    while (at < s->bytes) {
        size_t n = jinja_character(s->text + at, s->bytes - at, &character);

        if (!jinja_is_space(character))
            break;
        at += n;
    }
    return at;
}

static size_t before_space(const scanner *s, size_t begin, size_t end)
{
    while (end > begin) {
        size_t at = end - 1;
        uint32_t character;

        while (at > begin && ((unsigned char)s->text[at] & 0xc0) == 0x80)
            at--;
        jinja_character(s->text + at, end - at, &character);
        if (!jinja_is_space(character))
            break;
        end = at;
    }
    return end;
}

static bool stands(const scanner *s, size_t at, const char *word)
{
    size_t n = strlen(word);

    return at <= s->bytes && n <= s->bytes - at && memcmp(s->text + at, word, n) == 0;
}

/* Returns the end of a closing mark at a byte, with what it takes of the text after it; 0:
   there is none. */
static size_t closing(const scanner *s, size_t at, const char *mark, bool trim)
{
    if (stands(s, at, "-") && stands(s, at + 1, mark))
        return after_space(s, at + 1 + strlen(mark));
    if (trim && stands(s, at, "+") && stands(s, at + 1, mark))
        return at + 1 + strlen(mark);
    if (!stands(s, at, mark))
        return 0;
    at += strlen(mark);
    return trim && stands(s, at, "\n") ? at + 1 : at;
}

static void add_data(scanner *s, size_t begin, size_t end)
{
    jinja_token *t;

    if (begin == end)
        return;
    t = add(s, JINJA_DATA, begin, end);
    t->value = (wf_jinja_value){
        .kind = WF_JINJA_TEXT, .bytes = (uint32_t)(end - begin), .text = s->text + begin};
}

/* Adds the text in front of a tag, without the white space that the tag takes. */
static void add_text_before(scanner *s, size_t begin, size_t tag, char sign, bool variable)
{
    size_t end = tag, line = tag;

    if (sign == '-') {
        end = before_space(s, begin, tag);
    } else if (sign != '+' && !variable) {
        while (line > begin && s->text[line - 1] != '\n')
            line--;
        if ((line > begin || begin == 0 || s->text[begin - 1] == '\n') &&
            after_space(s, line) >= tag)
            end = line;
    }
    add_data(s, begin, end);
}

static void skip_comment(scanner *s, size_t at)
{
    for (size_t i = at; i < s->bytes; i++) {
        size_t end = closing(s, i, "#}", true);

        if (end) {
            s->at = end;
            return;
        }
    }
    REFUSE(s, WF_EDATA, "a comment has no end: #} is missing");
}

/* Returns the end of `{% word %}` at a byte after its sign; 0: something else stands there. */
static size_t word_tag(const scanner *s, size_t at, const char *word, bool trim)
{
    at = after_space(s, at);
    if (!stands(s, at, word))
        return 0;
    return closing(s, after_space(s, at + strlen(word)), "%}", trim);
}

static char sign_at(const scanner *s, size_t at)
{
    return at < s->bytes && (s->text[at] == '-' || s->text[at] == '+') ? s->text[at] : 0;
}

/* Adds what stands in a raw block as it is. */
static void add_raw(scanner *s, size_t begin)
{
    for (size_t i = begin; i < s->bytes; i++) {
        char sign = sign_at(s, i + 2);
        size_t end;

        if (!stands(s, i, "{%") || !(end = word_tag(s, i + 2 + (sign != 0), "endraw", true)))
            continue;
        add_text_before(s, begin, i, sign, false);
        s->at = end;
        return;
    }
    REFUSE(s, WF_EDATA, "a raw block has no end: {%% endraw %%} is missing");
}

static void add_text(scanner *s)
{
    const char quote = s->text[s->at];
    size_t begin = s->at + 1, end = begin;
    const char *wrong;
    jinja_token *t;
    char *data;
    size_t bytes;

    while (end < s->bytes && s->text[end] != quote)
        end += s->text[end] == '\\' ? 2 : 1;
    if (end >= s->bytes)
        REFUSE(s, WF_EDATA, "a text has no end: %c is missing", quote);
    data = jinja_reader_take(s->r, end - begin + 1);
    wrong = jinja_unescape(s->text + begin, end - begin, data, &bytes);
    if (wrong)
        REFUSE(s, WF_EDATA, "%s", wrong);
    t = add(s, JINJA_CONSTANT, s->at, end + 1);
    t->value = (wf_jinja_value){.kind = WF_JINJA_TEXT, .bytes = (uint32_t)bytes, .text = data};
    s->at = end + 1;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static size_t digits(const scanner *s, size_t at)
{
    while (at < s->bytes &&
           (is_digit(s->text[at]) ||
            (s->text[at] == '_' && at + 1 < s->bytes && is_digit(s->text[at + 1]))))
        at++;
    return at;
}

static void add_number(scanner *s)
{
    const jinja_token *last = s->r->count ? &s->r->tokens[s->r->count - 1] : NULL;
    const bool after_dot = last && jinja_is_operator(last, ".");
    size_t end = digits(s, s->at), power;
    bool real = false;
    char copy[64], *stop;
    size_t n = 0;
    jinja_token *t;

    if (!after_dot && stands(s, end, ".") && end + 1 < s->bytes && is_digit(s->text[end + 1])) {
        end = digits(s, end + 1);
        real = true;
    }
    power = end + 1;
    if (power < s->bytes && (s->text[power] == '+' || s->text[power] == '-'))
        power++;
    if (!after_dot && end < s->bytes && (s->text[end] | 32) == 'e' && power < s->bytes &&
        is_digit(s->text[power])) {
        end = digits(s, power);
        real = true;
    }
    for (size_t i = s->at; i < end && n + 1 < sizeof copy; i++)
        if (s->text[i] != '_')
            copy[n++] = s->text[i];
    copy[n] = '\0';
    if (n + 1 == sizeof copy ||
        (!real && (n > 18 || (n > 1 && strspn(copy, "0") < n && copy[0] == '0'))) ||
        (end < s->bytes && (s->text[end] | 32) >= 'a' && (s->text[end] | 32) <= 'z'))
        REFUSE(s, WF_EUNSUPPORTED, "a number of this form is not supported: %.40s", copy);
    t = add(s, JINJA_CONSTANT, s->at, end);
    t->value =
        real ? wf_jinja_real(strtod(copy, &stop)) : wf_jinja_integer(strtoll(copy, &stop, 10));
    s->at = end;
}

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
}

static void add_name(scanner *s)
{
    size_t end = s->at;
    jinja_token *t;

    while (end < s->bytes && is_name_byte(s->text[end]))
        end++;
    t = add(s, JINJA_NAME, s->at, end);
    t->text = jinja_intern(s->r, s->text + s->at, end - s->at);
    s->at = end;
}

static void add_operator(scanner *s)
{
    static const char *const known[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", NULL};
    int i = 0;
    char c;

    while (known[i] && !stands(s, s->at, known[i]))
        i++;
    if (!known[i])
        REFUSE(s, WF_EDATA, "the byte 0x%02x means nothing here",
               (unsigned char)s->text[s->at]);
    c = *known[i];
    if (c == '(' || c == '[' || c == '{') {
        if (s->opened == JINJA_MOST_NESTING)
            REFUSE(s, WF_EDATA, "brackets are nested deeper than %d", JINJA_MOST_NESTING);
        s->open[s->opened++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if ((c == ')' || c == ']' || c == '}') &&
               (s->opened == 0 || s->open[--s->opened] != c)) {
        REFUSE(s, WF_EDATA, "%c closes no bracket", c);
    }
    add(s, JINJA_OPERATOR, s->at, s->at + strlen(known[i]));
    s->at += strlen(known[i]);
}

/* Reads a tag up to its closing mark. */
static void add_tag(scanner *s, bool variable)
{
    const char *mark = variable ? "}}" : "%}";

    for (;;) {
        size_t end;

        s->at = after_space(s, s->at);
        if (s->at >= s->bytes)
            REFUSE(s, WF_EDATA, "a tag has no end: %s is missing", mark);
        end = s->opened ? 0 : closing(s, s->at, mark, !variable);
        if (end) {
            add(s, variable ? JINJA_VARIABLE_END : JINJA_BLOCK_END, s->at, end);
            s->at = end;
            return;
        }
        if (is_digit(s->text[s->at]))
            add_number(s);
        else if (is_name_byte(s->text[s->at]))
            add_name(s);
        else if (s->text[s->at] == '"' || s->text[s->at] == '\'')
            add_text(s);
        else
            add_operator(s);
    }
}

/* Copies a source with \n at the end of each line, without the last one. */
static void normalize(jinja_reader *r, scanner *s)
{
    char *to = jinja_reader_take(r, r->bytes + 1);

    s->text = to;
    for (size_t i = 0; i < r->bytes; i++) {
        *to++ = r->source[i] == '\r' ? '\n' : r->source[i];
        if (r->source[i] == '\r' && i + 1 < r->bytes && r->source[i + 1] == '\n')
            i++;
    }
    s->bytes = (size_t)(to - s->text);
    if (s->bytes && s->text[s->bytes - 1] == '\n')
        s->bytes--;
}

void jinja_lex(jinja_reader *r)
{
    scanner s = {.r = r, .line = 1};

    normalize(r, &s);
    while (s.at < s.bytes) {
        size_t tag = s.at, end;
        char sign, kind;

        while (tag < s.bytes && !(s.text[tag] == '{' && tag + 1 < s.bytes &&
                                  strchr("%{#", s.text[tag + 1]) && s.text[tag + 1]))
            tag++;
        kind = tag < s.bytes ? s.text[tag + 1] : 0;
        sign = sign_at(&s, tag + 2);
        add_text_before(&s, s.at, tag, kind ? sign : '+', kind == '{');
        s.at = tag + 2 + (sign != 0);
        if (!kind) {
            break;
        } else if (kind == '#') {
            skip_comment(&s, s.at);
        } else if (kind == '%' && (end = word_tag(&s, s.at, "raw", false))) {
            add_raw(&s, end);
        } else {
            add(&s, kind == '{' ? JINJA_VARIABLE_BEGIN : JINJA_BLOCK_BEGIN, tag, s.at);
            add_tag(&s, kind == '{');
        }
    }
    s.at = s.bytes;
    add(&s, JINJA_END, s.bytes, s.bytes);
}
