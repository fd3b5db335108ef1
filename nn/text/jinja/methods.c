/* nn/text/jinja/methods.c - methods of texts, dictionaries, lists and loops, as Python names
   them. */
#include "nn/text/jinja/run_internal.h"
#include <stdio.h>

static value text_of(wf_jinja_run *run, const char *method, value v)
{
    if (!jinja_is_text(v))
        jinja_fail(run, "%s needs a text, not a %s", method, jinja_type(v));
    return v;
}

static int64_t count_of(wf_jinja_run *run, value v)
{
    if (v.kind == WF_JINJA_MISSING)
        return -1;
    if (!jinja_is_integer(v))
        jinja_fail(run, "a number is needed, not a %s", jinja_type(v));
    return jinja_integer_of(v);
}

static value strip_both(wf_jinja_run *run, value v, const value *args)
{
    return jinja_strip(run, v, args[0], true, true);
}

static value lstrip(wf_jinja_run *run, value v, const value *args)
{
    return jinja_strip(run, v, args[0], true, false);
}

static value rstrip(wf_jinja_run *run, value v, const value *args)
{
    return jinja_strip(run, v, args[0], false, true);
}

static value separator(wf_jinja_run *run, value v)
{
    return v.kind == WF_JINJA_NONE || v.kind == WF_JINJA_MISSING ? wf_jinja_none()
                                                                 : text_of(run, "split", v);
}

static value split(wf_jinja_run *run, value v, const value *args)
{
    return jinja_split(run, v, separator(run, args[0]), count_of(run, args[1]));
}

/* Rejoins the first parts, so that `most` are cut off at the end. */
static value rsplit(wf_jinja_run *run, value v, const value *args)
{
    const value by = separator(run, args[0]);
    const int64_t most = count_of(run, args[1]);
    value list = jinja_split(run, v, by, -1), cut;
    size_t joined;

    if (most < 0 || list.list->count <= (size_t)most + 1)
        return list;
    if (!jinja_is_text(by))
        jinja_unsupported(run, "rsplit with a limit and without a separator is not supported");
    joined = list.list->count - (size_t)most;
    cut = wf_jinja_list(run);
    wf_jinja_list_add(run, cut,
                      wf_jinja_text(run, v.text,
                                    (size_t)(list.list->items[joined - 1].text +
                                             list.list->items[joined - 1].bytes - v.text)));
    for (size_t i = joined; i < list.list->count; i++)
        wf_jinja_list_add(run, cut, list.list->items[i]);
    return cut;
}

static value splitlines(wf_jinja_run *run, value v, const value *args)
{
    return jinja_split_lines(run, v, jinja_truth(run, args[0]));
}

static bool has_at(wf_jinja_run *run, value v, value what, bool end)
{
    if (what.kind == WF_JINJA_TUPLE) {
        for (size_t i = 0; i < what.list->count; i++)
            if (has_at(run, v, text_of(run, "startswith", what.list->items[i]), end))
                return true;
        return false;
    }
    text_of(run, end ? "endswith" : "startswith", what);
    jinja_work(run, what.bytes);
    return what.bytes <= v.bytes &&
           memcmp(end ? v.text + v.bytes - what.bytes : v.text, what.text, what.bytes) == 0;
}

static value startswith(wf_jinja_run *run, value v, const value *args)
{
    return wf_jinja_bool(has_at(run, v, args[0], false));
}

static value endswith(wf_jinja_run *run, value v, const value *args)
{
    return wf_jinja_bool(has_at(run, v, args[0], true));
}

static value removeprefix(wf_jinja_run *run, value v, const value *args)
{
    if (!has_at(run, v, text_of(run, "removeprefix", args[0]), false))
        return v;
    return wf_jinja_text(run, v.text + args[0].bytes, v.bytes - args[0].bytes);
}

static value removesuffix(wf_jinja_run *run, value v, const value *args)
{
    if (!has_at(run, v, text_of(run, "removesuffix", args[0]), true))
        return v;
    return wf_jinja_text(run, v.text, v.bytes - args[0].bytes);
}

static value upper(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, v, 'u');
}

static value lower(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, v, 'l');
}

static value capitalize(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, v, 'c');
}

static value title(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_case(run, v, 't');
}

static value replace(wf_jinja_run *run, value v, const value *args)
{
    return jinja_replace(run, v, text_of(run, "replace", args[0]),
                         text_of(run, "replace", args[1]), count_of(run, args[2]));
}

static value find(wf_jinja_run *run, value v, const value *args)
{
    const char *found = jinja_search(run, v, text_of(run, "find", args[0]), 0);

    if (!found)
        return wf_jinja_integer(-1);
    return wf_jinja_integer(
        (int64_t)jinja_characters(run, wf_jinja_text(run, v.text, (size_t)(found - v.text))));
}

static value count(wf_jinja_run *run, value v, const value *args)
{
    int64_t n = 0;

    if (!jinja_is_text(v)) {
        for (size_t i = 0; i < v.list->count; i++)
            n += jinja_equal(run, v.list->items[i], args[0]);
        return wf_jinja_integer(n);
    }
    if (text_of(run, "count", args[0]).bytes == 0)
        return wf_jinja_integer((int64_t)jinja_characters(run, v) + 1);
    return wf_jinja_integer((int64_t)jinja_split(run, v, args[0], -1).list->count - 1);
}

static value join(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list = jinja_iterate(run, args[0]);
    jinja_builder b = {.run = run};

    for (size_t i = 0; i < list->count; i++) {
        value item = text_of(run, "join", list->items[i]);

        if (i)
            jinja_build(&b, v.text, v.bytes);
        jinja_build(&b, item.text, item.bytes);
    }
    return jinja_built(&b);
}

/* Fields are {} and {0}: none with a name, a format or an attribute. */
static value format(wf_jinja_run *run, value v, const value *args)
{
    jinja_builder b = {.run = run};
    int next = 0;

    for (size_t i = 0; i < v.bytes; i++) {
        const char c = v.text[i], then = i + 1 < v.bytes ? v.text[i + 1] : 0;
        int number;
        value text;

        if ((c == '{' || c == '}') && then == c) {
            jinja_build(&b, &c, 1);
            i++;
            continue;
        }
        if (c != '{' && c != '}') {
            jinja_build(&b, &c, 1);
            continue;
        }
        if (c == '{' && then == '}') {
            number = next++;
            i++;
        } else if (c == '{' && then >= '0' && then < '0' + JINJA_MOST_ARGS && i + 2 < v.bytes &&
                   v.text[i + 2] == '}') {
            number = then - '0';
            i += 2;
        } else {
            jinja_unsupported(run, "format supports the fields {} and {0} to {7} alone");
        }
        if (number >= JINJA_MOST_ARGS || args[number].kind == WF_JINJA_MISSING)
            jinja_fail(run, "format: there is no argument %d", number);
        text = jinja_string(run, args[number]);
        jinja_build(&b, text.text, text.bytes);
    }
    return jinja_built(&b);
}

static value isdigit_(wf_jinja_run *run, value v, const value *args)
{
    bool all = v.bytes > 0;

    (void)args;
    for (size_t i = 0; i < v.bytes; i++) {
        if ((unsigned char)v.text[i] >= 0x80)
            jinja_unsupported(run, "isdigit of characters beyond ASCII is not supported");
        all = all && v.text[i] >= '0' && v.text[i] <= '9';
    }
    return wf_jinja_bool(all);
}

static value isspace_(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return wf_jinja_bool(v.bytes &&
                         jinja_strip(run, v, wf_jinja_none(), true, false).bytes == 0);
}

static value get(wf_jinja_run *run, value v, const value *args)
{
    const jinja_entry *e;

    jinja_check_key(run, args[0]);
    e = jinja_dict_find(v.dict, args[0], true);
    return e ? e->value : args[1].kind == WF_JINJA_MISSING ? wf_jinja_none() : args[1];
}

static value items(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_dict_view(run, v, 'i', WF_JINJA_VIEW);
}

static value keys(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_dict_view(run, v, 'k', WF_JINJA_VIEW);
}

static value values(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return jinja_dict_view(run, v, 'v', WF_JINJA_VIEW);
}

static value index_(wf_jinja_run *run, value v, const value *args)
{
    for (size_t i = 0; i < v.list->count; i++)
        if (jinja_equal(run, v.list->items[i], args[0]))
            return wf_jinja_integer((int64_t)i);
    jinja_fail(run, "index: the list does not have this value");
}

static value cycle(wf_jinja_run *run, value v, const value *args)
{
    size_t n = 0;

    while (n < JINJA_MOST_ARGS && args[n].kind != WF_JINJA_MISSING)
        n++;
    if (n == 0)
        jinja_fail(run, "loop.cycle needs values");
    return args[v.loop->at % n];
}

static value changed(wf_jinja_run *run, value v, const value *args)
{
    value now = jinja_list_of(run, WF_JINJA_TUPLE, JINJA_MOST_ARGS);

    for (int i = 0; i < JINJA_MOST_ARGS && args[i].kind != WF_JINJA_MISSING; i++)
        wf_jinja_list_add(run, now, args[i]);
    if (v.loop->changed.kind != WF_JINJA_MISSING && jinja_equal(run, v.loop->changed, now))
        return wf_jinja_bool(false);
    v.loop->changed = now;
    return wf_jinja_bool(true);
}

static const jinja_row text_rows[] = {{"strip", "|chars", strip_both},
                                      {"lstrip", "|chars", lstrip},
                                      {"rstrip", "|chars", rstrip},
                                      {"split", "|sep maxsplit", split},
                                      {"rsplit", "|sep maxsplit", rsplit},
                                      {"splitlines", "|keepends", splitlines},
                                      {"startswith", "prefix", startswith},
                                      {"endswith", "suffix", endswith},
                                      {"removeprefix", "prefix", removeprefix},
                                      {"removesuffix", "suffix", removesuffix},
                                      {"upper", "", upper},
                                      {"lower", "", lower},
                                      {"capitalize", "", capitalize},
                                      {"title", "", title},
                                      {"replace", "old new|count", replace},
                                      {"find", "sub", find},
                                      {"count", "sub", count},
                                      {"join", "iterable", join},
                                      {"format", "|0 1 2 3 4 5 6 7", format},
                                      {"isdigit", "", isdigit_},
                                      {"isspace", "", isspace_},
                                      {NULL, NULL, NULL}},
                       dict_rows[] = {{"get", "key|default", get},
                                      {"items", "", items},
                                      {"keys", "", keys},
                                      {"values", "", values},
                                      {NULL, NULL, NULL}},
                       list_rows[] = {{"index", "value", index_},
                                      {"count", "value", count},
                                      {NULL, NULL, NULL}},
                       loop_rows[] = {{"cycle", "|0 1 2 3 4 5 6 7", cycle},
                                      {"changed", "|0 1 2 3 4 5 6 7", changed},
                                      {NULL, NULL, NULL}};

const jinja_row *jinja_find_method(value of, const char *name)
{
    const jinja_row *rows = of.kind == WF_JINJA_TEXT                                ? text_rows
                            : of.kind == WF_JINJA_DICT                              ? dict_rows
                            : of.kind == WF_JINJA_LOOP                              ? loop_rows
                            : of.kind == WF_JINJA_LIST || of.kind == WF_JINJA_TUPLE ? list_rows
                                                                                    : NULL;

    for (; rows && rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

static bool is_one_of(const char *name, const char *list)
{
    const size_t n = strlen(name);

    for (const char *p = strstr(list, name); n && p; p = strstr(p + 1, name))
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
}

bool jinja_is_python_attribute(value of, const char *name)
{
    static const char *const text =
        "capitalize casefold center count encode endswith expandtabs find format format_map "
        "index isalnum isalpha "
        "isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle "
        "isupper join ljust lower "
        "lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust "
        "rpartition rsplit rstrip split "
        "splitlines startswith "
        "strip"
        " swapcase title translate upper zfill";
    static const char *const number =
        "as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex "
        "imag is_integer numerator "
        "real to_bytes";

    if (name[0] == '_' && name[1] == '_')
        return true;
    if (jinja_is_text(of))
        return is_one_of(name, text) ||
               (of.kind == WF_JINJA_MARKUP && is_one_of(name, "escape striptags unescape"));
    if (of.kind == WF_JINJA_DICT)
        return is_one_of(name, "copy fromkeys");
    if (of.kind == WF_JINJA_LIST)
        return is_one_of(name, "copy");
    return (jinja_is_number(of) && is_one_of(name, number)) || of.kind == WF_JINJA_VIEW ||
           of.kind == WF_JINJA_RANGE || of.kind == WF_JINJA_GENERATOR ||
           of.kind == WF_JINJA_MACRO || of.kind == WF_JINJA_METHOD ||
           of.kind == WF_JINJA_FUNCTION;
}

bool jinja_changes_object(value of, const char *name)
{
    return (of.kind == WF_JINJA_LIST &&
            is_one_of(name, "append clear extend insert pop remove reverse sort")) ||
           (of.kind == WF_JINJA_DICT && is_one_of(name, "clear pop popitem setdefault update"));
}
