/* nn/text/jinja/dict.c - dictionaries, in the order in which keys were set. */
#include "nn/text/jinja/run_internal.h"

enum { FEW = 8 }; /* keys that are looked for one by one */

wf_jinja_value wf_jinja_dict(wf_jinja_run *run)
{
    return (value){.kind = WF_JINJA_DICT, .dict = jinja_take(run, sizeof(jinja_dict))};
}

static uint32_t hash(value key)
{
    uint64_t bits = 0;
    uint32_t h = 2166136261u;

    if (jinja_is_text(key)) {
        for (size_t i = 0; i < key.bytes; i++)
            h = (h ^ (unsigned char)key.text[i]) * 16777619u;
        return h;
    }
    if (jinja_is_number(key)) { /* 1, 1.0 and true are one key */
        double real = jinja_real_of(key) + 0.0;

        memcpy(&bits, &real, sizeof bits);
    }
    return (uint32_t)(bits ^ bits >> 32) * 16777619u;
}

/* Keys are texts, numbers and none: none of them can fail to compare. */
bool jinja_same_key(value a, value b)
{
    if (jinja_is_text(a) || jinja_is_text(b))
        return jinja_is_text(a) && jinja_is_text(b) && a.bytes == b.bytes &&
               memcmp(a.text, b.text, a.bytes) == 0;
    if (jinja_is_number(a) && jinja_is_number(b))
        return a.kind == WF_JINJA_REAL || b.kind == WF_JINJA_REAL
                   ? jinja_real_of(a) == jinja_real_of(b)
                   : jinja_integer_of(a) == jinja_integer_of(b);
    return a.kind == b.kind && a.kind == WF_JINJA_NONE;
}

static size_t find(const jinja_dict *dict, value key)
{
    if (!dict->index) {
        for (size_t i = 0; i < dict->count; i++)
            if (jinja_same_key(dict->entries[i].key, key))
                return i;
        return dict->count;
    }
    for (size_t i = hash(key) % dict->index_room;; i = (i + 1) % dict->index_room) {
        if (!dict->index[i])
            return dict->count;
        if (jinja_same_key(dict->entries[dict->index[i] - 1].key, key))
            return dict->index[i] - 1;
    }
}

const jinja_entry *jinja_dict_find(const jinja_dict *dict, value key, bool mark)
{
    size_t i = find(dict, key);

    if (i == dict->count)
        return NULL;
    dict->entries[i].read |= mark;
    return &dict->entries[i];
}

static void index_entry(jinja_dict *dict, size_t number)
{
    size_t i = hash(dict->entries[number].key) % dict->index_room;

    while (dict->index[i])
        i = (i + 1) % dict->index_room;
    dict->index[i] = (uint32_t)number + 1;
}

static void grow(wf_jinja_run *run, jinja_dict *dict)
{
    size_t room = 2 * dict->room + FEW;
    jinja_entry *entries = jinja_take(run, room * sizeof *entries);

    if (dict->count)
        memcpy(entries, dict->entries, dict->count * sizeof *entries);
    dict->entries = entries;
    dict->room = room;
    if (room <= FEW)
        return;
    dict->index_room = 2 * room + 1;
    dict->index = jinja_take(run, dict->index_room * sizeof *dict->index);
    for (size_t i = 0; i < dict->count; i++)
        index_entry(dict, i);
}

void jinja_check_key(wf_jinja_run *run, value key)
{
    if (!jinja_is_text(key) && !jinja_is_number(key) && key.kind != WF_JINJA_NONE)
        jinja_unsupported(run, "a key of type %s is not supported: texts, numbers and none are",
                          jinja_type(key));
}

void wf_jinja_dict_set(wf_jinja_run *run, wf_jinja_value v, wf_jinja_value key,
                       wf_jinja_value item)
{
    jinja_dict *dict = v.dict;
    size_t i;

    jinja_check_key(run, key);
    i = find(dict, key);
    jinja_work(run, key.kind == WF_JINJA_TEXT ? key.bytes : 0);
    if (i < dict->count) {
        dict->entries[i].value = item;
        return;
    }
    if (dict->count == dict->room)
        grow(run, dict);
    dict->entries[dict->count++] = (jinja_entry){.key = key, .value = item};
    if (dict->index)
        index_entry(dict, dict->count - 1);
}

static const jinja_entry *entry_of(wf_jinja_value dict, const char *key, size_t bytes)
{
    const value k = {.kind = WF_JINJA_TEXT, .bytes = (uint32_t)bytes, .text = key};

    return dict.kind == WF_JINJA_DICT ? jinja_dict_find(dict.dict, k, false) : NULL;
}

wf_jinja_value wf_jinja_dict_get(wf_jinja_value dict, const char *key)
{
    const jinja_entry *e = entry_of(dict, key, strlen(key));

    return e ? e->value : (value){.kind = WF_JINJA_MISSING};
}

bool wf_jinja_was_read(wf_jinja_value dict, const char *key, size_t bytes)
{
    const jinja_entry *e = entry_of(dict, key, bytes);

    return e && e->read;
}

value jinja_dict_view(wf_jinja_run *run, value v, char part, wf_jinja_kind kind)
{
    const jinja_dict *dict = v.dict;
    value view = jinja_list_of(run, kind, dict->count);

    view.list->name = part == 'k' ? "dict_keys" : part == 'v' ? "dict_values" : "dict_items";
    for (size_t i = 0; i < dict->count; i++) {
        jinja_entry *e = &dict->entries[i];

        e->read |= part != 'k';
        if (part == 'i') {
            value pair = jinja_list_of(run, WF_JINJA_TUPLE, 2);

            wf_jinja_list_add(run, pair, e->key);
            wf_jinja_list_add(run, pair, e->value);
            wf_jinja_list_add(run, view, pair);
        } else {
            wf_jinja_list_add(run, view, part == 'k' ? e->key : e->value);
        }
    }
    jinja_work(run, 64 * dict->count);
    return view;
}
