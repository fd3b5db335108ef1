/* nn/text/jinja/write.c - values as texts: str and repr of Python, JSON as Python's json.dumps
   has it. */
#include "nn/text/jinja/run_internal.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Writes a number as Python's repr does: the fewest digits that are read as the same. */
size_t jinja_real_text(double real, char to[40])
{
    char digits[40], *e;
    int precision = 0, exponent, n;
    size_t bytes = 0;

    if (isnan(real) || isinf(real))
        return (size_t)snprintf(to, 40, "%s", isnan(real) ? "nan" : real < 0 ? "-inf" : "inf");
    do
        snprintf(digits, sizeof digits, "%.*e", precision, real);
    while (strtod(digits, NULL) != real && precision++ < 17);
    e = strchr(digits, 'e');
    exponent = (int)strtol(e + 1, NULL, 10);
    *e = '\0';
    if (exponent < -4 || exponent >= 16)
        return (size_t)snprintf(to, 40, "%se%c%02d", digits, exponent < 0 ? '-' : '+',
                                abs(exponent));
    n = precision - exponent > 1 ? precision - exponent : 1;
    if (precision <= exponent)
        n = 1;
    bytes = (size_t)snprintf(to, 40, "%.*f", n, real);
    return bytes;
}

static void build_real(jinja_builder *b, double real, bool json)
{
    char text[40];

    jinja_real_text(real, text);
    if (json && (isnan(real) || isinf(real)))
        snprintf(text, sizeof text, "%s",
                 isnan(real) ? "NaN"
                 : real < 0  ? "-Infinity"
                             : "Infinity");
    jinja_build_word(b, text);
}

/* Says whether Python's repr writes a character as it is; characters that Unicode does not have
   are taken for such. */
static bool is_printable(uint32_t c)
{
    static const uint32_t hidden[][2] = {
        {0x7f, 0xa0},       {0xad, 0xad},       {0x600, 0x605},     {0x61c, 0x61c},
        {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
        {0x1680, 0x1680},   {0x180e, 0x180e},   {0x2000, 0x200f},   {0x2028, 0x202f},
        {0x205f, 0x206f},   {0x3000, 0x3000},   {0xd800, 0xf8ff},   {0xfeff, 0xfeff},
        {0xfff0, 0xfffb},   {0xfffe, 0xffff},   {0x110bd, 0x110bd}, {0x110cd, 0x110cd},
        {0x13430, 0x1343f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0000, 0x10ffff}};

    if (c < 0x20)
        return false;
    for (size_t i = 0; i < sizeof hidden / sizeof *hidden; i++)
        if (c >= hidden[i][0] && c <= hidden[i][1])
            return c >= 0xe0100 && c <= 0xe01ef;
    return true;
}

static void build_quoted(jinja_builder *b, value v)
{
    const bool single = v.bytes && memchr(v.text, '\'', v.bytes),
               both = v.bytes && memchr(v.text, '"', v.bytes);
    const char quote = single && !both ? '"' : '\'';

    jinja_build(b, &quote, 1);
    for (size_t i = 0, n; i < v.bytes; i += n) {
        uint32_t c;
        char text[16];

        n = jinja_character(v.text + i, v.bytes - i, &c);
        if (c == (uint32_t)quote || c == '\\')
            snprintf(text, sizeof text, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(text, sizeof text, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (is_printable(c))
            snprintf(text, sizeof text, "%.*s", (int)n, v.text + i);
        else
            snprintf(text, sizeof text,
                     c < 0x100     ? "\\x%02" PRIx32
                     : c < 0x10000 ? "\\u%04" PRIx32
                                   : "\\U%08" PRIx32,
                     c);
        jinja_build_word(b, text);
    }
    jinja_build(b, &quote, 1);
}

static void build_items(jinja_builder *b, const jinja_list *list, const char *open,
                        const char *close)
{
    jinja_build_word(b, open);
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            jinja_build_word(b, ", ");
        jinja_build_repr(b, list->items[i]);
    }
    jinja_build_word(b, close);
}

static void build_dict(jinja_builder *b, const jinja_dict *dict)
{
    jinja_build_word(b, "{");
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            jinja_build_word(b, ", ");
        dict->entries[i].read = true;
        jinja_build_repr(b, dict->entries[i].key);
        jinja_build_word(b, ": ");
        jinja_build_repr(b, dict->entries[i].value);
    }
    jinja_build_word(b, "}");
}

void jinja_build_repr(jinja_builder *b, value v)
{
    char text[32];

    jinja_work(b->run, 0);
    jinja_deeper(b->run);
    switch (v.kind) {
    case WF_JINJA_UNDEFINED:
        jinja_build_word(b, "Undefined");
        break;
    case WF_JINJA_NONE:
        jinja_build_word(b, "None");
        break;
    case WF_JINJA_BOOL:
        jinja_build_word(b, v.truth ? "True" : "False");
        break;
    case WF_JINJA_INTEGER:
        snprintf(text, sizeof text, "%" PRId64, v.integer);
        jinja_build_word(b, text);
        break;
    case WF_JINJA_REAL:
        build_real(b, v.real, false);
        break;
    case WF_JINJA_TEXT:
        build_quoted(b, v);
        break;
    case WF_JINJA_LIST:
        build_items(b, v.list, "[", "]");
        break;
    case WF_JINJA_TUPLE:
        build_items(b, v.list, "(", v.list->count == 1 ? ",)" : ")");
        break;
    case WF_JINJA_VIEW:
        jinja_build_word(b, v.list->name);
        build_items(b, v.list, "([", "])");
        break;
    case WF_JINJA_DICT:
        build_dict(b, v.dict);
        break;
    default:
        jinja_unsupported(b->run, "a %s as text is not supported", jinja_type(v));
    }
    b->run->depth--;
}

value jinja_string(wf_jinja_run *run, value v)
{
    jinja_builder b = {.run = run};

    if (jinja_is_text(v))
        return v;
    if (v.kind == WF_JINJA_UNDEFINED)
        return wf_jinja_text(run, "", 0);
    jinja_build_repr(&b, v);
    return jinja_built(&b);
}

typedef struct json {
    jinja_builder b;
    bool ascii, sort;
    const char *indent; /* NULL: all in one line */
    size_t indent_bytes;
    value between, colon;
} json;

static void build_json_text(json *j, value v)
{
    jinja_build_word(&j->b, "\"");
    for (size_t i = 0, n; i < v.bytes; i += n) {
        static const char plain[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
        const char *found;
        uint32_t c;
        char text[16];

        n = jinja_character(v.text + i, v.bytes - i, &c);
        if (c && c < 0x80 && (found = strchr(plain, (int)c)))
            snprintf(text, sizeof text, "\\%c", letter[found - plain]);
        else if (c < 0x20 || (j->ascii && c > 0x7e && c < 0x10000))
            snprintf(text, sizeof text, "\\u%04" PRIx32, c);
        else if (j->ascii && c >= 0x10000)
            snprintf(text, sizeof text, "\\u%04" PRIx32 "\\u%04" PRIx32,
                     0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
        else {
            jinja_build(&j->b, v.text + i, n);
            continue;
        }
        jinja_build_word(&j->b, text);
    }
    jinja_build_word(&j->b, "\"");
}

static void json_line(json *j, int level)
{
    if (!j->indent)
        return;
    jinja_build_word(&j->b, "\n");
    for (int i = 0; i < level; i++)
        jinja_build(&j->b, j->indent, j->indent_bytes);
}

static void build_json(json *j, value v, int level);

static void build_json_list(json *j, const jinja_list *list, int level)
{
    jinja_build_word(&j->b, "[");
    for (size_t i = 0; i < list->count; i++) {
        if (i)
            jinja_build(&j->b, j->between.text, j->between.bytes);
        json_line(j, level + 1);
        build_json(j, list->items[i], level + 1);
    }
    if (list->count)
        json_line(j, level);
    jinja_build_word(&j->b, "]");
}

static void build_json_key(json *j, value key)
{
    if (jinja_is_text(key)) {
        build_json_text(j, key);
        return;
    }
    jinja_build_word(&j->b, "\"");
    build_json(j, key, 0);
    jinja_build_word(&j->b, "\"");
}

static int by_key(const void *a, const void *b)
{
    const jinja_entry *x = *(jinja_entry *const *)a, *y = *(jinja_entry *const *)b;
    const uint32_t n = x->key.bytes < y->key.bytes ? x->key.bytes : y->key.bytes;
    const int order = n ? memcmp(x->key.text, y->key.text, n) : 0;

    return order ? order : (x->key.bytes > y->key.bytes) - (x->key.bytes < y->key.bytes);
}

static void build_json_dict(json *j, jinja_dict *dict, int level)
{
    jinja_entry **order = jinja_take(j->b.run, (dict->count + 1) * sizeof *order);

    for (size_t i = 0; i < dict->count; i++) {
        order[i] = &dict->entries[i];
        order[i]->read = true;
        if (j->sort && !jinja_is_text(order[i]->key))
            jinja_unsupported(j->b.run, "sorting keys that are no texts is not supported");
    }
    if (j->sort)
        qsort(order, dict->count, sizeof *order, by_key);
    jinja_build_word(&j->b, "{");
    for (size_t i = 0; i < dict->count; i++) {
        if (i)
            jinja_build(&j->b, j->between.text, j->between.bytes);
        json_line(j, level + 1);
        build_json_key(j, order[i]->key);
        jinja_build(&j->b, j->colon.text, j->colon.bytes);
        build_json(j, order[i]->value, level + 1);
    }
    if (dict->count)
        json_line(j, level);
    jinja_build_word(&j->b, "}");
}

static void build_json(json *j, value v, int level)
{
    jinja_work(j->b.run, 0);
    jinja_deeper(j->b.run);
    if (jinja_is_text(v))
        build_json_text(j, v);
    else if (v.kind == WF_JINJA_NONE)
        jinja_build_word(&j->b, "null");
    else if (v.kind == WF_JINJA_BOOL)
        jinja_build_word(&j->b, v.truth ? "true" : "false");
    else if (v.kind == WF_JINJA_INTEGER)
        jinja_build_repr(&j->b, v);
    else if (v.kind == WF_JINJA_REAL)
        build_real(&j->b, v.real, true);
    else if (v.kind == WF_JINJA_LIST || v.kind == WF_JINJA_TUPLE)
        build_json_list(j, v.list, level);
    else if (v.kind == WF_JINJA_DICT)
        build_json_dict(j, v.dict, level);
    else
        jinja_fail(j->b.run, "tojson: a %s%s%.80s is no JSON", jinja_type(v),
                   v.kind == WF_JINJA_UNDEFINED ? " " : "",
                   v.kind == WF_JINJA_UNDEFINED ? v.text : "");
    j->b.run->depth--;
}

/* Takes the indentation of tojson: a number of blanks, or a text. */
static void take_indent(json *j, value indent)
{
    if (jinja_is_text(indent)) {
        j->indent = indent.text;
        j->indent_bytes = indent.bytes;
    } else if (jinja_is_integer(indent)) {
        int64_t n = jinja_integer_of(indent);

        n = n < 0 ? 0 : n;
        if (n > 100)
            jinja_unsupported(j->b.run, "tojson: an indent beyond 100 is not supported");
        j->indent = memset(jinja_take(j->b.run, (size_t)n + 1), ' ', (size_t)n);
        j->indent_bytes = (size_t)n;
    } else if (indent.kind != WF_JINJA_NONE && indent.kind != WF_JINJA_MISSING) {
        jinja_fail(j->b.run, "tojson: indent is a %s", jinja_type(indent));
    }
}

value jinja_json(wf_jinja_run *run, value v, const value *args)
{
    json j = {.b = {.run = run}, .colon = wf_jinja_text(run, ": ", 2)};

    j.ascii = jinja_truth(run, args[0]);
    take_indent(&j, args[1]);
    j.between = wf_jinja_text(run, ", ", j.indent ? 1 : 2);
    if (args[2].kind != WF_JINJA_MISSING && args[2].kind != WF_JINJA_NONE) {
        if ((args[2].kind != WF_JINJA_LIST && args[2].kind != WF_JINJA_TUPLE) ||
            args[2].list->count != 2 || !jinja_is_text(args[2].list->items[0]) ||
            !jinja_is_text(args[2].list->items[1]))
            jinja_fail(run, "tojson: separators are to be two texts");
        j.between = args[2].list->items[0];
        j.colon = args[2].list->items[1];
    }
    j.sort = jinja_truth(run, args[3]);
    build_json(&j, v, 0);
    return jinja_built(&j.b);
}
