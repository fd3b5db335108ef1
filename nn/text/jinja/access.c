/* nn/text/jinja/access.c - attributes, items and slices, in the order in which Jinja's sandbox
   looks for them. */
#include "nn/text/jinja/run_internal.h"
#include <stdlib.h>

static value loop_attribute(const jinja_loop *loop, const char *name)
{
    const int64_t at = (int64_t)loop->at, count = (int64_t)loop->count;
    const struct {
        const char *name;
        value value;
    } known[] = {{"index", wf_jinja_integer(at + 1)},
                 {"index0", wf_jinja_integer(at)},
                 {"revindex", wf_jinja_integer(count - at)},
                 {"revindex0", wf_jinja_integer(count - at - 1)},
                 {"first", wf_jinja_bool(at == 0)},
                 {"last", wf_jinja_bool(at + 1 == count)},
                 {"length", wf_jinja_integer(count)},
                 {"depth", wf_jinja_integer(loop->depth + 1)},
                 {"depth0", wf_jinja_integer(loop->depth)},
                 {"previtem", at ? loop->items[at - 1]
                                 : jinja_undefined("loop.previtem of the first item")},
                 {"nextitem", at + 1 < count
                                  ? loop->items[at + 1]
                                  : jinja_undefined("loop.nextitem of the last item")}};

    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].value;
    return (value){.kind = WF_JINJA_MISSING};
}

/* Returns the attribute that Python's getattr finds; MISSING: none. */
static value own_attribute(wf_jinja_run *run, value of, const char *name)
{
    const jinja_row *row = jinja_find_method(of, name);
    const jinja_entry *e;
    value found = {.kind = WF_JINJA_MISSING};

    if (of.kind == WF_JINJA_UNDEFINED)
        jinja_fail(run, "'%.80s' is undefined, so it has no attribute %.80s", of.text, name);
    if (row) {
        found =
            (value){.kind = WF_JINJA_METHOD, .method = jinja_take(run, sizeof *found.method)};
        *found.method = (jinja_method){row, of};
        return found;
    }
    if (jinja_changes_object(of, name)) /* an undefined value in the sandbox, too */
        return jinja_undefined(name);
    if (of.kind == WF_JINJA_LOOP)
        found = loop_attribute(of.loop, name);
    if (of.kind == WF_JINJA_NAMESPACE &&
        (e = jinja_dict_find(of.dict, wf_jinja_text(run, name, strlen(name)), true)))
        found = e->value;
    if (found.kind == WF_JINJA_MISSING && jinja_is_python_attribute(of, name))
        jinja_unsupported(run, "the attribute %.80s of a %s is not supported", name,
                          jinja_type(of));
    return found;
}

value jinja_attribute(wf_jinja_run *run, value of, const char *name)
{
    value found = own_attribute(run, of, name);
    const jinja_entry *e;

    if (found.kind != WF_JINJA_MISSING)
        return found;
    if (of.kind == WF_JINJA_DICT &&
        (e = jinja_dict_find(of.dict, wf_jinja_text(run, name, strlen(name)), true)))
        return e->value;
    return jinja_undefined(name);
}

/* Returns the item of a number, from the end where it is negative; MISSING: there is none. */
static value by_number(wf_jinja_run *run, value of, int64_t at)
{
    const value none = {.kind = WF_JINJA_MISSING};
    const size_t count = jinja_length(run, of);
    uint32_t character;

    if (at < 0)
        at += (int64_t)count;
    if (at < 0 || (size_t)at >= count)
        return none;
    if (!jinja_is_text(of))
        return of.list->items[at];
    for (size_t i = 0, n;; i += n) {
        n = jinja_character(of.text + i, of.bytes - i, &character);
        if (at-- == 0)
            return wf_jinja_text(run, of.text + i, n);
    }
}

value jinja_item(wf_jinja_run *run, value of, value key)
{
    value found = {.kind = WF_JINJA_MISSING};
    const jinja_entry *e;
    char name[64];

    if (of.kind == WF_JINJA_UNDEFINED)
        jinja_fail(run, "'%.80s' is undefined, so it has no items", of.text);
    if (key.kind == WF_JINJA_UNDEFINED)
        return key;
    if (of.kind == WF_JINJA_DICT) {
        jinja_check_key(run, key);
        e = jinja_dict_find(of.dict, key, true);
        if (e)
            return e->value;
    } else if ((jinja_is_text(of) || of.kind == WF_JINJA_LIST || of.kind == WF_JINJA_TUPLE ||
                of.kind == WF_JINJA_RANGE) &&
               jinja_is_integer(key)) {
        found = by_number(run, of, jinja_integer_of(key));
    }
    if (found.kind != WF_JINJA_MISSING)
        return found;
    if (!jinja_is_text(key) || key.bytes >= sizeof name || memchr(key.text, 0, key.bytes))
        return jinja_undefined("the item of this key");
    memcpy(name, key.text, key.bytes);
    name[key.bytes] = '\0';
    found = own_attribute(run, of, name);
    if (found.kind == WF_JINJA_MISSING || found.kind == WF_JINJA_UNDEFINED) {
        key = jinja_text_copy(run, key.text, key.bytes); /* zero-terminated */
        return jinja_undefined(key.text);
    }
    return found;
}

value jinja_by_path(wf_jinja_run *run, value of, value path)
{
    const jinja_list *parts;

    if (!jinja_is_text(path))
        return jinja_item(run, of, path);
    parts = jinja_split(run, path, wf_jinja_text(run, ".", 1), -1).list;
    for (size_t i = 0; i < parts->count; i++) {
        value part = parts->items[i];
        int64_t number = 0;
        bool digits = part.bytes > 0 && part.bytes < 10;

        for (uint32_t k = 0; k < part.bytes && digits; k++) {
            digits = part.text[k] >= '0' && part.text[k] <= '9';
            number = number * 10 + (part.text[k] - '0');
        }
        of = jinja_item(run, of, digits ? wf_jinja_integer(number) : part);
    }
    return of;
}

/* Returns a bound of a slice within what there is, as Python's slice.indices has it. */
static int64_t bound(wf_jinja_run *run, value v, int64_t standard, int64_t count, bool backward)
{
    int64_t at;

    if (v.kind == WF_JINJA_NONE)
        return standard;
    if (!jinja_is_integer(v))
        jinja_fail(run, "a slice needs whole numbers, not a %s", jinja_type(v));
    at = jinja_integer_of(v);
    if (at < 0)
        at = at < -count ? -1 : at + count;
    if (at < 0)
        return backward ? -1 : 0;
    return at >= count ? count - backward : at;
}

/* Returns where each character of a text begins, and where the last one ends. */
static size_t *beginnings(wf_jinja_run *run, value text, size_t count)
{
    size_t *begin = jinja_take(run, (count + 1) * sizeof *begin), n = 0;

    for (size_t i = 0; i < text.bytes; i++)
        if (((unsigned char)text.text[i] & 0xc0) != 0x80 && n < count)
            begin[n++] = i;
    begin[count] = text.bytes;
    return begin;
}

value jinja_slice(wf_jinja_run *run, value of, const value part[3])
{
    const int64_t step = part[2].kind == WF_JINJA_NONE ? 1
                         : jinja_is_integer(part[2])   ? jinja_integer_of(part[2])
                                                       : 0;
    const bool text = jinja_is_text(of), back = step < 0;
    jinja_builder b = {.run = run};
    size_t *begin;
    int64_t count, at, end;
    value list;

    if (!text && of.kind != WF_JINJA_LIST && of.kind != WF_JINJA_TUPLE)
        return of.kind == WF_JINJA_UNDEFINED ? jinja_item(run, of, part[0])
                                             : jinja_undefined("a slice");
    if (step == 0 || step > INT32_MAX || step < -INT32_MAX)
        jinja_fail(run, "the step of a slice is to be a number that is not 0");
    count = (int64_t)jinja_length(run, of);
    at = bound(run, part[0], back ? count - 1 : 0, count, back);
    end = bound(run, part[1], back ? -1 : count, count, back);
    if (text) {
        begin = beginnings(run, of, (size_t)count);
        if (step == 1)
            return wf_jinja_text(run, of.text + begin[at],
                                 at < end ? begin[end] - begin[at] : 0);
        for (; back ? at > end : at < end; at += step)
            jinja_build(&b, of.text + begin[at], begin[at + 1] - begin[at]);
        return jinja_built(&b);
    }
    list = jinja_list_of(run, of.kind, 4);
    for (; back ? at > end : at < end; at += step) {
        jinja_work(run, 0);
        wf_jinja_list_add(run, list, of.list->items[at]);
    }
    return list;
}
