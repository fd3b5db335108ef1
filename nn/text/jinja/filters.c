/* nn/text/jinja/filters.c - filters of texts and numbers, and the tests. */
#include "nn/text/jinja/run_internal.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>

static value plain(wf_jinja_run *run, const char *filter, value v)
{
    v = jinja_string(run, v);
    if (v.kind == WF_JINJA_MARKUP)
        jinja_unsupported(run, "%s of a text that is marked as safe is not supported", filter);
    return v;
}

static value trim(wf_jinja_run *run, value v, const value *args)
{
    v = jinja_string(run, v);
    if (v.kind == WF_JINJA_MARKUP && jinja_is_text(args[0]))
        jinja_unsupported(
            run, "trim of characters of a text that is marked as safe is not supported");
    return jinja_strip(run, v, args[0], true, true);
}

static value upper(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, plain(run, "upper", v), 'u');
}

static value lower(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, plain(run, "lower", v), 'l');
}

static value capitalize(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, plain(run, "capitalize", v), 'c');
}

static value title(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, plain(run, "title", v), 'w');
}

static value string(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_string(run, v);
}

static value replace(wf_jinja_run *run, value v, const value *args)
{
    int64_t count = -1;

    if (jinja_is_integer(args[2]))
        count = jinja_integer_of(args[2]);
    else if (args[2].kind != WF_JINJA_MISSING && args[2].kind != WF_JINJA_NONE)
        jinja_fail(run, "replace: count is a %s", jinja_type(args[2]));
    return jinja_replace(run, jinja_string(run, v), jinja_string(run, args[0]),
                         jinja_string(run, args[1]), count);
}

static value safe(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    v = jinja_string(run, v);
    v.kind = WF_JINJA_MARKUP;
    return v;
}

static value tojson(wf_jinja_run *run, value v, const value *args)
{
    return jinja_json(run, v, args);
}

static value default_(wf_jinja_run *run, value v, const value *args)
{
    if (v.kind != WF_JINJA_UNDEFINED && !(jinja_truth(run, args[1]) && !jinja_truth(run, v)))
        return v;
    return args[0].kind == WF_JINJA_MISSING ? wf_jinja_text(run, "", 0) : args[0];
}

static value indent(wf_jinja_run *run, value v, const value *args)
{
    const bool first = jinja_truth(run, args[1]), blank = jinja_truth(run, args[2]);
    jinja_builder b = {.run = run}, with = {.run = run};
    const jinja_list *lines;

    if (v.kind != WF_JINJA_TEXT)
        jinja_unsupported(run, "indent of a %s is not supported", jinja_type(v));
    if (jinja_is_text(args[0])) {
        jinja_build(&with, args[0].text, args[0].bytes);
    } else {
        int64_t width = args[0].kind == WF_JINJA_MISSING ? 4
                        : jinja_is_integer(args[0])      ? jinja_integer_of(args[0])
                                                         : -1;

        if (width < 0 || width > 1000)
            jinja_unsupported(run, "indent by this width is not supported");
        for (int64_t i = 0; i < width; i++)
            jinja_build(&with, " ", 1);
    }
    jinja_build(&b, v.text, v.bytes);
    jinja_build(&b, "\n", 1);
    lines = jinja_split_lines(run, jinja_built(&b), false).list;
    b = (jinja_builder){.run = run};
    for (size_t i = 0; i < lines->count; i++) {
        if (i)
            jinja_build(&b, "\n", 1);
        if (i ? blank || lines->items[i].bytes : first)
            jinja_build(&b, with.data, with.bytes);
        jinja_build(&b, lines->items[i].text, lines->items[i].bytes);
    }
    return jinja_built(&b);
}

/* Reads a text as a number, as Python does but for underscores; false: it is none. */
static bool read_number(wf_jinja_run *run, value v, bool whole, int64_t *integer, double *real)
{
    char copy[64], *end;

    v = jinja_strip(run, v, wf_jinja_none(), true, true);
    if (v.bytes == 0 || v.bytes >= sizeof copy || memchr(v.text, 'x', v.bytes) ||
        memchr(v.text, 'X', v.bytes) || memchr(v.text, 0, v.bytes))
        return false;
    if (memchr(v.text, '_', v.bytes))
        jinja_unsupported(run, "numbers with _ in texts are not supported");
    memcpy(copy, v.text, v.bytes);
    copy[v.bytes] = '\0';
    errno = 0;
    if (whole)
        *integer = strtoll(copy, &end, 10);
    else
        *real = strtod(copy, &end);
    if (whole && errno == ERANGE)
        jinja_unsupported(run, "whole numbers beyond 64 bits are not supported");
    return *end == '\0' && end != copy && *end != '(';
}

static value int_(wf_jinja_run *run, value v, const value *args)
{
    int64_t integer = 0;
    double real = NAN;

    if (args[1].kind != WF_JINJA_MISSING)
        jinja_unsupported(run, "int with a base is not supported");
    if (jinja_is_integer(v))
        return wf_jinja_integer(jinja_integer_of(v));
    if (v.kind == WF_JINJA_TEXT && read_number(run, v, true, &integer, &real))
        return wf_jinja_integer(integer);
    if (v.kind == WF_JINJA_REAL)
        real = v.real;
    else if (v.kind != WF_JINJA_TEXT || !read_number(run, v, false, &integer, &real))
        real = NAN;
    if (isnan(real) || isinf(real))
        return args[0].kind == WF_JINJA_MISSING ? wf_jinja_integer(0) : args[0];
    if (fabs(real) >= 9e18)
        jinja_unsupported(run, "whole numbers beyond 64 bits are not supported");
    return wf_jinja_integer((int64_t)real);
}

static value float_(wf_jinja_run *run, value v, const value *args)
{
    int64_t integer;
    double real;

    if (jinja_is_number(v))
        return wf_jinja_real(jinja_real_of(v));
    if (v.kind == WF_JINJA_TEXT && read_number(run, v, false, &integer, &real))
        return wf_jinja_real(real);
    return args[0].kind == WF_JINJA_MISSING ? wf_jinja_real(0) : args[0];
}

static value abs_(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    if (v.kind == WF_JINJA_REAL)
        return wf_jinja_real(fabs(v.real));
    if (!jinja_is_integer(v) || jinja_integer_of(v) == INT64_MIN)
        jinja_fail(run, "abs of a %s is not possible", jinja_type(v));
    return wf_jinja_integer(llabs(jinja_integer_of(v)));
}

const jinja_row jinja_filters[] = {
    {"trim", "|chars", trim},
    {"upper", "", upper},
    {"lower", "", lower},
    {"capitalize", "", capitalize},
    {"title", "", title},
    {"string", "", string},
    {"replace", "old new|count", replace},
    {"safe", "", safe},
    {"tojson", "|ensure_ascii indent separators sort_keys", tojson},
    {"default", "|default_value boolean", default_},
    {"d", "|default_value boolean", default_},
    {"indent", "|width first blank", indent},
    {"int", "|default base", int_},
    {"float", "|default", float_},
    {"abs", "", abs_},
    {NULL, NULL, NULL}};

#define TEST(name, condition)                                                                  \
    static value test_##name(wf_jinja_run *run, value v, const value *args)                    \
    {                                                                                          \
        (void)run;                                                                             \
        (void)args;                                                                            \
        return wf_jinja_bool(condition);                                                       \
    }

TEST(defined, v.kind != WF_JINJA_UNDEFINED)
TEST(undefined, v.kind == WF_JINJA_UNDEFINED)
TEST(none, v.kind == WF_JINJA_NONE)
TEST(boolean, v.kind == WF_JINJA_BOOL)
TEST(true, v.kind == WF_JINJA_BOOL && v.truth)
TEST(false, v.kind == WF_JINJA_BOOL && !v.truth)
TEST(string, jinja_is_text(v))
TEST(mapping, v.kind == WF_JINJA_DICT)
TEST(number, jinja_is_number(v))
TEST(integer, v.kind == WF_JINJA_INTEGER)
TEST(float, v.kind == WF_JINJA_REAL)
TEST(iterable, jinja_is_text(v) || jinja_is_list(v) || v.kind == WF_JINJA_DICT ||
                   v.kind == WF_JINJA_UNDEFINED || v.kind == WF_JINJA_LOOP)
TEST(sequence, jinja_is_text(v) || v.kind == WF_JINJA_LIST || v.kind == WF_JINJA_TUPLE ||
                   v.kind == WF_JINJA_RANGE || v.kind == WF_JINJA_DICT ||
                   v.kind == WF_JINJA_UNDEFINED)
TEST(callable, v.kind == WF_JINJA_MACRO || v.kind == WF_JINJA_FUNCTION ||
                   v.kind == WF_JINJA_METHOD || v.kind == WF_JINJA_UNDEFINED ||
                   v.kind == WF_JINJA_LOOP)
TEST(in, jinja_contains(run, args[0], v))
TEST(eq, jinja_compare(run, JINJA_OP_EQ, v, args[0]))
TEST(ne, jinja_compare(run, JINJA_OP_NE, v, args[0]))
TEST(lt, jinja_compare(run, '<', v, args[0]))
TEST(le, jinja_compare(run, JINJA_OP_LE, v, args[0]))
TEST(gt, jinja_compare(run, '>', v, args[0]))
TEST(ge, jinja_compare(run, JINJA_OP_GE, v, args[0]))
TEST(divisibleby, jinja_integer_of(jinja_binary(run, '%', v, args[0])) == 0)
TEST(odd, jinja_equal(run, jinja_binary(run, '%', v, wf_jinja_integer(2)), wf_jinja_integer(1)))
TEST(even,
     jinja_equal(run, jinja_binary(run, '%', v, wf_jinja_integer(2)), wf_jinja_integer(0)))

const jinja_row jinja_tests[] = {{"defined", "", test_defined},
                                 {"undefined", "", test_undefined},
                                 {"none", "", test_none},
                                 {"boolean", "", test_boolean},
                                 {"true", "", test_true},
                                 {"false", "", test_false},
                                 {"string", "", test_string},
                                 {"mapping", "", test_mapping},
                                 {"number", "", test_number},
                                 {"integer", "", test_integer},
                                 {"float", "", test_float},
                                 {"iterable", "", test_iterable},
                                 {"sequence", "", test_sequence},
                                 {"callable", "", test_callable},
                                 {"in", "seq", test_in},
                                 {"equalto", "b", test_eq},
                                 {"eq", "b", test_eq},
                                 {"==", "b", test_eq},
                                 {"ne", "b", test_ne},
                                 {"!=", "b", test_ne},
                                 {"lt", "b", test_lt},
                                 {"lessthan", "b", test_lt},
                                 {"<", "b", test_lt},
                                 {"le", "b", test_le},
                                 {"<=", "b", test_le},
                                 {"gt", "b", test_gt},
                                 {"greaterthan", "b", test_gt},
                                 {">", "b", test_gt},
                                 {"ge", "b", test_ge},
                                 {">=", "b", test_ge},
                                 {"divisibleby", "num", test_divisibleby},
                                 {"odd", "", test_odd},
                                 {"even", "", test_even},
                                 {NULL, NULL, NULL}};

static const jinja_row *find(const jinja_row *rows, const char *name)
{
    while (rows->name && strcmp(rows->name, name) != 0)
        rows++;
    return rows->name ? rows : NULL;
}

const jinja_row *jinja_find_filter(const char *name)
{
    const jinja_row *row = find(jinja_filters, name);

    return row ? row : find(jinja_list_filters, name);
}

const jinja_row *jinja_find_test(const char *name)
{
    return find(jinja_tests, name);
}
