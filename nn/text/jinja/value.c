/* nn/text/jinja/value.c - values as Python has them: truth, equality, order and lists. */
#include "nn/text/jinja/run_internal.h"

wf_jinja_value wf_jinja_none(void)
{
    return (value){.kind = WF_JINJA_NONE};
}

wf_jinja_value wf_jinja_bool(bool truth)
{
    return (value){.kind = WF_JINJA_BOOL, .truth = truth};
}

wf_jinja_value wf_jinja_integer(int64_t integer)
{
    return (value){.kind = WF_JINJA_INTEGER, .integer = integer};
}

wf_jinja_value wf_jinja_real(double real)
{
    return (value){.kind = WF_JINJA_REAL, .real = real};
}

wf_jinja_value wf_jinja_text(wf_jinja_run *run, const char *text, size_t bytes)
{
    if (bytes > JINJA_MOST_MEMORY)
        jinja_fail(run, "a text has more than %d MiB", JINJA_MOST_MEMORY >> 20);
    return (value){.kind = WF_JINJA_TEXT, .bytes = (uint32_t)bytes, .text = text};
}

value jinja_undefined(const char *name)
{
    return (value){.kind = WF_JINJA_UNDEFINED, .text = name};
}

int64_t jinja_integer_of(value v)
{
    return v.kind == WF_JINJA_BOOL ? v.truth : v.integer;
}

double jinja_real_of(value v)
{
    return v.kind == WF_JINJA_REAL ? v.real : (double)jinja_integer_of(v);
}

value jinja_list_of(wf_jinja_run *run, wf_jinja_kind kind, size_t room)
{
    jinja_list *list = jinja_take(run, sizeof *list);

    list->items = jinja_take(run, room * sizeof *list->items);
    list->room = room;
    return (value){.kind = kind, .list = list};
}

wf_jinja_value wf_jinja_list(wf_jinja_run *run)
{
    return jinja_list_of(run, WF_JINJA_LIST, 4);
}

void wf_jinja_list_add(wf_jinja_run *run, wf_jinja_value v, wf_jinja_value item)
{
    jinja_list *list = v.list;

    if (list->count == list->room) {
        size_t room = 2 * list->room + 4;
        value *items = jinja_take(run, room * sizeof *items);

        if (list->count)
            memcpy(items, list->items, list->count * sizeof *items);
        list->items = items;
        list->room = room;
    }
    list->items[list->count++] = item;
}

const char *jinja_type(value v)
{
    static const char *const names[] = {
        [WF_JINJA_UNDEFINED] = "Undefined", [WF_JINJA_NONE] = "NoneType",
        [WF_JINJA_BOOL] = "bool",           [WF_JINJA_INTEGER] = "int",
        [WF_JINJA_REAL] = "float",          [WF_JINJA_TEXT] = "str",
        [WF_JINJA_MARKUP] = "Markup",       [WF_JINJA_LIST] = "list",
        [WF_JINJA_TUPLE] = "tuple",         [WF_JINJA_GENERATOR] = "generator",
        [WF_JINJA_VIEW] = "dict view",      [WF_JINJA_RANGE] = "range",
        [WF_JINJA_DICT] = "dict",           [WF_JINJA_NAMESPACE] = "Namespace",
        [WF_JINJA_LOOP] = "LoopContext",    [WF_JINJA_MACRO] = "Macro",
        [WF_JINJA_FUNCTION] = "function",   [WF_JINJA_METHOD] = "method",
        [WF_JINJA_MISSING] = "missing"};

    return names[v.kind];
}

bool jinja_truth(wf_jinja_run *run, value v)
{
    switch (v.kind) {
    case WF_JINJA_UNDEFINED:
    case WF_JINJA_NONE:
    case WF_JINJA_MISSING:
        return false;
    case WF_JINJA_BOOL:
        return v.truth;
    case WF_JINJA_INTEGER:
        return v.integer != 0;
    case WF_JINJA_REAL:
        return v.real != 0;
    case WF_JINJA_TEXT:
    case WF_JINJA_MARKUP:
        return v.bytes != 0;
    case WF_JINJA_DICT:
        return v.dict->count != 0;
    case WF_JINJA_LIST:
    case WF_JINJA_TUPLE:
    case WF_JINJA_VIEW:
    case WF_JINJA_RANGE:
        return v.list->count != 0;
    default:
        (void)run;
        return true;
    }
}

static bool equal_lists(wf_jinja_run *run, const jinja_list *a, const jinja_list *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++)
        if (!jinja_equal(run, a->items[i], b->items[i]))
            return false;
    return true;
}

static bool equal_dicts(wf_jinja_run *run, const jinja_dict *a, const jinja_dict *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const jinja_entry *e = jinja_dict_find(b, a->entries[i].key, true);

        a->entries[i].read = true;
        if (!e || !jinja_equal(run, a->entries[i].value, e->value))
            return false;
    }
    return true;
}

bool jinja_equal(wf_jinja_run *run, value a, value b)
{
    bool equal;

    jinja_work(run, jinja_is_text(a) ? a.bytes : 0);
    if (jinja_is_text(a) || jinja_is_number(a) || a.kind == WF_JINJA_NONE)
        return jinja_same_key(a, b);
    if (a.kind != b.kind)
        return false;
    jinja_deeper(run);
    if (a.kind == WF_JINJA_LIST || a.kind == WF_JINJA_TUPLE || a.kind == WF_JINJA_RANGE)
        equal = equal_lists(run, a.list, b.list);
    else if (a.kind == WF_JINJA_DICT)
        equal = equal_dicts(run, a.dict, b.dict);
    else if (a.kind == WF_JINJA_VIEW)
        jinja_unsupported(run, "views of dictionaries cannot be compared");
    else
        equal = a.kind == WF_JINJA_UNDEFINED || a.list == b.list;
    run->depth--;
    return equal;
}

static int order_texts(value a, value b)
{
    const size_t n = a.bytes < b.bytes ? a.bytes : b.bytes;
    const int order = n ? memcmp(a.text, b.text, n) : 0;

    return order ? (order > 0) - (order < 0) : (a.bytes > b.bytes) - (a.bytes < b.bytes);
}

static int order_lists(wf_jinja_run *run, const jinja_list *a, const jinja_list *b)
{
    int order = 0;

    jinja_deeper(run);
    for (size_t i = 0; i < a->count && i < b->count && order == 0; i++)
        if (!jinja_equal(run, a->items[i], b->items[i]))
            order = jinja_order(run, a->items[i], b->items[i]);
    run->depth--;
    return order ? order : (a->count > b->count) - (a->count < b->count);
}

int jinja_order(wf_jinja_run *run, value a, value b)
{
    jinja_work(run, jinja_is_text(a) ? a.bytes : 0);
    if (jinja_is_text(a) && jinja_is_text(b))
        return order_texts(a, b);
    if (jinja_is_integer(a) && jinja_is_integer(b))
        return (jinja_integer_of(a) > jinja_integer_of(b)) -
               (jinja_integer_of(a) < jinja_integer_of(b));
    if (jinja_is_number(a) && jinja_is_number(b))
        return (jinja_real_of(a) > jinja_real_of(b)) - (jinja_real_of(a) < jinja_real_of(b));
    if (a.kind == b.kind && (a.kind == WF_JINJA_LIST || a.kind == WF_JINJA_TUPLE))
        return order_lists(run, a.list, b.list);
    if (a.kind == WF_JINJA_UNDEFINED || b.kind == WF_JINJA_UNDEFINED)
        jinja_fail(run, "'%.80s' is undefined", a.kind == WF_JINJA_UNDEFINED ? a.text : b.text);
    jinja_fail(run, "a %s and a %s have no order", jinja_type(a), jinja_type(b));
}

bool jinja_contains(wf_jinja_run *run, value in, value what)
{
    const jinja_list *list;
    bool found = false;

    if (jinja_is_text(in)) {
        if (!jinja_is_text(what))
            jinja_fail(run, "`in` of a text needs a text, not a %s", jinja_type(what));
        return jinja_search(run, in, what, 0);
    }
    if (in.kind == WF_JINJA_DICT) {
        jinja_check_key(run, what);
        jinja_work(run, 0);
        return jinja_dict_find(in.dict, what, true);
    }
    list = jinja_iterate(run, in);
    for (size_t i = 0; i < list->count && !found; i++)
        found = jinja_equal(run, list->items[i], what);
    return found;
}

size_t jinja_length(wf_jinja_run *run, value v)
{
    if (jinja_is_text(v))
        return jinja_characters(run, v);
    if (v.kind == WF_JINJA_DICT)
        return v.dict->count;
    if (jinja_is_list(v) && v.kind != WF_JINJA_GENERATOR)
        return v.list->count;
    if (v.kind == WF_JINJA_LOOP)
        return v.loop->count;
    if (v.kind != WF_JINJA_UNDEFINED)
        jinja_fail(run, "a %s has no length", jinja_type(v));
    return 0;
}

/* Returns the characters of a text, one text each. */
static value characters_of(wf_jinja_run *run, value v)
{
    value list = jinja_list_of(run, WF_JINJA_LIST, v.bytes < 16 ? v.bytes : 16);
    uint32_t character;

    for (size_t i = 0, n; i < v.bytes; i += n) {
        n = jinja_character(v.text + i, v.bytes - i, &character);
        wf_jinja_list_add(run, list, wf_jinja_text(run, v.text + i, n));
    }
    return list;
}

jinja_list *jinja_iterate(wf_jinja_run *run, value v)
{
    jinja_list *rest;

    if (jinja_is_text(v))
        return characters_of(run, v).list;
    if (v.kind == WF_JINJA_DICT)
        return jinja_dict_view(run, v, 'k', WF_JINJA_LIST).list;
    if (v.kind == WF_JINJA_UNDEFINED)
        return jinja_list_of(run, WF_JINJA_LIST, 0).list;
    if (v.kind == WF_JINJA_GENERATOR) {
        rest = jinja_take(run, sizeof *rest);
        rest->items = v.list->items + v.list->taken;
        rest->count = rest->room = v.list->count - v.list->taken;
        jinja_work(run, 64 * rest->count);
        v.list->taken = v.list->count;
        return rest;
    }
    if (!jinja_is_list(v))
        jinja_fail(run, "a %s cannot be iterated", jinja_type(v));
    jinja_work(run, 64 * v.list->count);
    return v.list;
}
