/* nn/text/jinja/list_filters.c - filters of lists and dictionaries. */
#include "nn/text/jinja/run_internal.h"

static value length(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return wf_jinja_integer((int64_t)jinja_length(run, v));
}

static value first(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list;

    (void)args;
    if (v.kind == WF_JINJA_GENERATOR && v.list->taken < v.list->count)
        return v.list->items[v.list->taken++];
    list = jinja_iterate(run, v);
    return list->count ? list->items[0]
                       : jinja_undefined("the first item of an empty sequence");
}

static value last(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list;

    (void)args;
    if (v.kind == WF_JINJA_GENERATOR)
        jinja_fail(run, "last of a %s is not possible", jinja_type(v));
    list = jinja_iterate(run, v);
    return list->count ? list->items[list->count - 1]
                       : jinja_undefined("the last item of an empty sequence");
}

/* Copies what iterating has into a value of a kind. */
static value copy(wf_jinja_run *run, value v, wf_jinja_kind kind)
{
    const jinja_list *from = jinja_iterate(run, v);
    value to = jinja_list_of(run, kind, from->count);

    if (from->count)
        memcpy(to.list->items, from->items, from->count * sizeof *from->items);
    to.list->count = from->count;
    return to;
}

static value list(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    return copy(run, v, WF_JINJA_LIST);
}

static value items(wf_jinja_run *run, value v, const value *args)
{
    (void)args;
    if (v.kind == WF_JINJA_UNDEFINED)
        return jinja_list_of(run, WF_JINJA_GENERATOR, 0);
    if (v.kind != WF_JINJA_DICT)
        jinja_fail(run, "items needs a dictionary, not a %s", jinja_type(v));
    return jinja_dict_view(run, v, 'i', WF_JINJA_GENERATOR);
}

/* Returns the value of an attribute, or the value itself, in small letters where the case does
   not count. */
static value key_of(wf_jinja_run *run, value v, value attribute, bool ignore_case)
{
    if (attribute.kind != WF_JINJA_MISSING && attribute.kind != WF_JINJA_NONE)
        v = jinja_by_path(run, v, attribute);
    return ignore_case && v.kind == WF_JINJA_TEXT ? jinja_case(run, v, 'l') : v;
}

static value join(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list = jinja_iterate(run, v);
    value by = args[0].kind == WF_JINJA_MISSING ? wf_jinja_text(run, "", 0)
                                                : jinja_string(run, args[0]);
    jinja_builder b = {.run = run};

    for (size_t i = 0; i < list->count; i++) {
        value item = jinja_string(run, key_of(run, list->items[i], args[1], false));

        if (i)
            jinja_build(&b, by.text, by.bytes);
        jinja_build(&b, item.text, item.bytes);
    }
    return jinja_built(&b);
}

static value reverse(wf_jinja_run *run, value v, const value *args)
{
    jinja_builder b = {.run = run};
    const jinja_list *list;
    value to;

    (void)args;
    list = jinja_iterate(run, v);
    to = jinja_list_of(run, WF_JINJA_GENERATOR, list->count);
    for (size_t i = list->count; i-- > 0;) {
        wf_jinja_list_add(run, to, list->items[i]);
        if (jinja_is_text(v))
            jinja_build(&b, list->items[i].text, list->items[i].bytes);
    }
    return jinja_is_text(v) ? jinja_built(&b) : to;
}

/* Sorts numbers of items by their keys, and keeps the order of equal ones. */
static void merge_sort(wf_jinja_run *run, const value *keys, size_t *order, size_t *room,
                       size_t n, int sign)
{
    const size_t half = n / 2;
    size_t a = 0, b = half, at = 0;

    if (n < 2)
        return;
    merge_sort(run, keys, order, room, half, sign);
    merge_sort(run, keys, order + half, room, n - half, sign);
    while (a < half && b < n)
        room[at++] = sign * jinja_order(run, keys[order[b]], keys[order[a]]) < 0 ? order[b++]
                                                                                 : order[a++];
    while (a < half)
        room[at++] = order[a++];
    memcpy(order, room, at * sizeof *order);
}

static value sorted(wf_jinja_run *run, const jinja_list *list, const value *keys, bool reverse)
{
    size_t *order = jinja_take(run, (2 * list->count + 1) * sizeof *order);
    value to = jinja_list_of(run, WF_JINJA_LIST, list->count);

    for (size_t i = 0; i < list->count; i++)
        order[i] = i;
    merge_sort(run, keys, order, order + list->count, list->count, reverse ? -1 : 1);
    for (size_t i = 0; i < list->count; i++)
        wf_jinja_list_add(run, to, list->items[order[i]]);
    return to;
}

static value sort(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list = jinja_iterate(run, v);
    value *keys = jinja_take(run, (list->count + 1) * sizeof *keys);

    if (jinja_is_text(args[2]) && memchr(args[2].text, ',', args[2].bytes))
        jinja_unsupported(run, "sort by several attributes is not supported");
    for (size_t i = 0; i < list->count; i++)
        keys[i] = key_of(run, list->items[i], args[2], !jinja_truth(run, args[1]));
    return sorted(run, list, keys, jinja_truth(run, args[0]));
}

static value dictsort(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list;
    value *keys;
    bool by_value = false;

    if (v.kind != WF_JINJA_DICT)
        jinja_fail(run, "dictsort needs a dictionary, not a %s", jinja_type(v));
    if (args[1].kind != WF_JINJA_MISSING) {
        by_value = jinja_is_text(args[1]) && jinja_equals_word(args[1], "value");
        if (!by_value && !(jinja_is_text(args[1]) && jinja_equals_word(args[1], "key")))
            jinja_fail(run, "dictsort: by is to be 'key' or 'value'");
    }
    list = jinja_dict_view(run, v, 'i', WF_JINJA_LIST).list;
    keys = jinja_take(run, (list->count + 1) * sizeof *keys);
    for (size_t i = 0; i < list->count; i++)
        keys[i] = key_of(run, list->items[i].list->items[by_value],
                         (value){.kind = WF_JINJA_NONE}, !jinja_truth(run, args[0]));
    return sorted(run, list, keys, jinja_truth(run, args[2]));
}

static value unique(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list = jinja_iterate(run, v);
    value to = jinja_list_of(run, WF_JINJA_GENERATOR, 4), seen = wf_jinja_dict(run);

    for (size_t i = 0; i < list->count; i++) {
        value key = key_of(run, list->items[i], args[1], !jinja_truth(run, args[0]));

        jinja_check_key(run, key);
        if (jinja_dict_find(seen.dict, key, false))
            continue;
        wf_jinja_dict_set(run, seen, key, wf_jinja_none());
        wf_jinja_list_add(run, to, list->items[i]);
    }
    return to;
}

static value extreme(wf_jinja_run *run, value v, const value *args, int sign)
{
    const jinja_list *list = jinja_iterate(run, v);
    const bool ignore = !jinja_truth(run, args[0]);
    size_t best = 0;

    for (size_t i = 1; i < list->count; i++)
        if (sign * jinja_order(run, key_of(run, list->items[i], args[1], ignore),
                               key_of(run, list->items[best], args[1], ignore)) >
            0)
            best = i;
    return list->count ? list->items[best] : jinja_undefined("an item of an empty sequence");
}

static value min(wf_jinja_run *run, value v, const value *args)
{
    return extreme(run, v, args, -1);
}

static value max(wf_jinja_run *run, value v, const value *args)
{
    return extreme(run, v, args, 1);
}

static value sum(wf_jinja_run *run, value v, const value *args)
{
    const jinja_list *list = jinja_iterate(run, v);
    value total = args[1].kind == WF_JINJA_MISSING ? wf_jinja_integer(0) : args[1];

    for (size_t i = 0; i < list->count; i++)
        total = jinja_binary(run, '+', total, key_of(run, list->items[i], args[0], false));
    return total;
}

/* Calls a filter or a test whose name is a value, with the arguments after it. */
static value call_named(wf_jinja_run *run, bool filter, value name, value input,
                        const value *args, size_t most)
{
    const jinja_row *row;
    jinja_args given = {.values = args};
    char word[64];

    if (!jinja_is_text(name) || name.bytes >= sizeof word)
        jinja_fail(run, "the name of a %s is needed", filter ? "filter" : "test");
    memcpy(word, name.text, name.bytes);
    word[name.bytes] = '\0';
    row = filter ? jinja_find_filter(word) : jinja_find_test(word);
    if (!row)
        jinja_unsupported(run, "the %s %s is not supported", filter ? "filter" : "test", word);
    while (given.count < most && args[given.count].kind != WF_JINJA_MISSING)
        given.count++;
    return jinja_call_row(run, row, input, &given);
}

static value map(wf_jinja_run *run, value v, const value *args)
{
    const value attribute = args[4];
    const jinja_list *list;
    value to = jinja_list_of(run, WF_JINJA_GENERATOR, 4);

    if (v.kind == WF_JINJA_UNDEFINED || v.kind == WF_JINJA_NONE)
        return to;
    list = jinja_iterate(run, v);
    if ((attribute.kind == WF_JINJA_MISSING) == (args[0].kind == WF_JINJA_MISSING))
        jinja_fail(run, "map needs the name of a filter, or attribute=");
    for (size_t i = 0; i < list->count; i++) {
        value one;

        jinja_work(run, 0);
        if (attribute.kind == WF_JINJA_MISSING) {
            one = call_named(run, true, args[0], list->items[i], args + 1, 3);
        } else {
            one = jinja_by_path(run, list->items[i], attribute);
            if (one.kind == WF_JINJA_UNDEFINED && args[5].kind != WF_JINJA_MISSING)
                one = args[5];
        }
        wf_jinja_list_add(run, to, one);
    }
    return to;
}

/* Returns the items of which a test, or their truth, is as wanted. */
static value choose(wf_jinja_run *run, value v, const value *args, bool attribute, bool wanted)
{
    const jinja_list *list;
    value to = jinja_list_of(run, WF_JINJA_GENERATOR, 4);
    const value *test = args + attribute;

    if (v.kind == WF_JINJA_UNDEFINED || v.kind == WF_JINJA_NONE)
        return to;
    list = jinja_iterate(run, v);
    for (size_t i = 0; i < list->count; i++) {
        value one = attribute ? jinja_by_path(run, list->items[i], args[0]) : list->items[i];

        jinja_work(run, 0);
        if (test[0].kind != WF_JINJA_MISSING)
            one = call_named(run, false, test[0], one, test + 1, 2);
        if (jinja_truth(run, one) == wanted)
            wf_jinja_list_add(run, to, list->items[i]);
    }
    return to;
}

static value select(wf_jinja_run *run, value v, const value *args)
{
    return choose(run, v, args, false, true);
}

static value reject(wf_jinja_run *run, value v, const value *args)
{
    return choose(run, v, args, false, false);
}

static value selectattr(wf_jinja_run *run, value v, const value *args)
{
    return choose(run, v, args, true, true);
}

static value rejectattr(wf_jinja_run *run, value v, const value *args)
{
    return choose(run, v, args, true, false);
}

const jinja_row jinja_list_filters[] = {{"length", "", length},
                                        {"count", "", length},
                                        {"first", "", first},
                                        {"last", "", last},
                                        {"list", "", list},
                                        {"items", "", items},
                                        {"join", "|d attribute", join},
                                        {"reverse", "", reverse},
                                        {"sort", "|reverse case_sensitive attribute", sort},
                                        {"dictsort", "|case_sensitive by reverse", dictsort},
                                        {"unique", "|case_sensitive attribute", unique},
                                        {"min", "|case_sensitive attribute", min},
                                        {"max", "|case_sensitive attribute", max},
                                        {"sum", "|attribute start", sum},
                                        {"map", "|filter a b c attribute default", map},
                                        {"select", "|test a b", select},
                                        {"reject", "|test a b", reject},
                                        {"selectattr", "attribute|test a b", selectattr},
                                        {"rejectattr", "attribute|test a b", rejectattr},
                                        {NULL, NULL, NULL}};
