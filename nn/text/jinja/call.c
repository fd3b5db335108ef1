/* nn/text/jinja/call.c - arguments to parameters, calls of what can be called, and the global
   functions. */
#include "nn/text/jinja/run_internal.h"
#include <stdlib.h>
#include <time.h>

static size_t word_length(const char *p)
{
    return strcspn(p, " |");
}

/* Returns the number of a parameter; -1: there is none of that name. */
static int number_of(const char *parameters, const char *name)
{
    int number = 0;

    for (const char *p = parameters; *p;
         number += word_length(p) > 0, p += word_length(p), p += *p != 0)
        if (word_length(p) == strlen(name) && strncmp(p, name, word_length(p)) == 0)
            return number;
    return -1;
}

static int count_of(const char *parameters, bool needed)
{
    int count = 0;

    for (const char *p = parameters; *p && !(needed && *p == '|'); p++)
        count += *p != ' ' && *p != '|' && (p == parameters || p[-1] == ' ' || p[-1] == '|');
    return count;
}

void jinja_bind(wf_jinja_run *run, const char *name, const char *parameters,
                const jinja_args *args, value bound[JINJA_MOST_ARGS])
{
    const int most = count_of(parameters, false), needed = count_of(parameters, true);

    for (int i = 0; i < JINJA_MOST_ARGS; i++)
        bound[i] = (value){.kind = WF_JINJA_MISSING};
    for (size_t i = 0; i < args->count; i++) {
        int number =
            args->names && args->names[i] ? number_of(parameters, args->names[i]) : (int)i;

        if (number < 0)
            jinja_unsupported(run, "%s has no parameter %s here", name, args->names[i]);
        if (number >= most)
            jinja_fail(run, "%s takes at most %d arguments", name, most);
        if (bound[number].kind != WF_JINJA_MISSING)
            jinja_fail(run, "%s has two values for %s", name, args->names[i]);
        bound[number] = args->values[i];
    }
    for (int i = 0; i < needed; i++)
        if (bound[i].kind == WF_JINJA_MISSING)
            jinja_fail(run, "%s needs %d arguments", name, needed);
}

value jinja_call_row(wf_jinja_run *run, const jinja_row *row, value input,
                     const jinja_args *args)
{
    value bound[JINJA_MOST_ARGS];

    jinja_bind(run, row->name, row->parameters, args, bound);
    jinja_work(run, 0);
    return row->call(run, input, bound);
}

value jinja_call_value(wf_jinja_run *run, value what, const jinja_args *args)
{
    if (what.kind == WF_JINJA_MACRO)
        return jinja_call_macro(run, what.macro, args);
    if (what.kind == WF_JINJA_FUNCTION)
        return what.function->call(run, args);
    if (what.kind == WF_JINJA_UNDEFINED)
        jinja_fail(run, "'%.80s' is undefined", what.text);
    if (what.kind != WF_JINJA_METHOD)
        jinja_fail(run, "a %s cannot be called", jinja_type(what));
    return jinja_call_row(run, what.method->row, what.method->object, args);
}

static value raise(wf_jinja_run *run, const jinja_args *args)
{
    value bound[JINJA_MOST_ARGS], text;

    jinja_bind(run, "raise_exception", "message", args, bound);
    text = jinja_string(run, bound[0]);
    jinja_fail(run, "the template refuses this: %.*s",
               (int)(text.bytes < 800 ? text.bytes : 800), text.text);
}

static value now(wf_jinja_run *run, const jinja_args *args)
{
    const char *epoch = getenv("SOURCE_DATE_EPOCH");
    time_t seconds = epoch && *epoch ? (time_t)strtoll(epoch, NULL, 10) : time(NULL);
    value bound[JINJA_MOST_ARGS];
    char text[512], *format;
    struct tm parts;

    jinja_bind(run, "strftime_now", "format", args, bound);
    if (!jinja_is_text(bound[0]))
        jinja_fail(run, "strftime_now needs a text");
    format = jinja_take(run, bound[0].bytes + 1);
    memcpy(format, bound[0].text, bound[0].bytes);
    if (strlen(format) > 200 || strstr(format, "%f") || strstr(format, "%s"))
        jinja_unsupported(run, "strftime_now with this format is not supported: %.200s",
                          format);
    if (!localtime_r(&seconds, &parts))
        jinja_fail(run, "strftime_now: there is no such time: SOURCE_DATE_EPOCH is %.40s",
                   epoch);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    return jinja_text_copy(run, text, strftime(text, sizeof text, format, &parts));
#pragma GCC diagnostic pop
}

static value range(wf_jinja_run *run, const jinja_args *args)
{
    value bound[JINJA_MOST_ARGS], list;
    int64_t from = 0, to, step = 1;

    jinja_bind(run, "range", "start|stop step", args, bound);
    for (int i = 0; i < 3; i++)
        if (bound[i].kind != WF_JINJA_MISSING && !jinja_is_integer(bound[i]))
            jinja_fail(run, "range needs whole numbers, not a %s", jinja_type(bound[i]));
    to = jinja_integer_of(bound[0]);
    if (bound[1].kind != WF_JINJA_MISSING) {
        from = to;
        to = jinja_integer_of(bound[1]);
    }
    if (bound[2].kind != WF_JINJA_MISSING)
        step = jinja_integer_of(bound[2]);
    if (step == 0 || step < -JINJA_MOST_OUTPUT || step > JINJA_MOST_OUTPUT ||
        from < INT64_MIN / 4 || from > INT64_MAX / 4 || to < INT64_MIN / 4 ||
        to > INT64_MAX / 4)
        jinja_fail(run, "range: the numbers are out of range, or the step is 0");
    list = jinja_list_of(run, WF_JINJA_RANGE, 4);
    for (; step > 0 ? from < to : from > to; from += step) {
        if (list.list->count == JINJA_MOST_RANGE)
            jinja_fail(run, "a range has more than %d numbers", JINJA_MOST_RANGE);
        wf_jinja_list_add(run, list, wf_jinja_integer(from));
    }
    return list;
}

/* Makes a dictionary of another one and named values. */
static value dict_of(wf_jinja_run *run, const char *name, const jinja_args *args)
{
    value dict = wf_jinja_dict(run);

    for (size_t i = 0; i < args->count; i++) {
        const value given = args->values[i];

        if (args->names && args->names[i]) {
            wf_jinja_dict_set(
                run, dict, wf_jinja_text(run, args->names[i], strlen(args->names[i])), given);
            continue;
        }
        if (i > 0 || given.kind != WF_JINJA_DICT)
            jinja_unsupported(run, "%s of a %s is not supported", name, jinja_type(given));
        for (size_t k = 0; k < given.dict->count; k++) {
            given.dict->entries[k].read = true;
            wf_jinja_dict_set(run, dict, given.dict->entries[k].key,
                              given.dict->entries[k].value);
        }
    }
    return dict;
}

static value dict(wf_jinja_run *run, const jinja_args *args)
{
    return dict_of(run, "dict", args);
}

static value namespace(wf_jinja_run *run, const jinja_args *args)
{
    value space = dict_of(run, "namespace", args);

    for (size_t i = 0; i < space.dict->count; i++)
        if (jinja_is_text(space.dict->entries[i].key) && space.dict->entries[i].key.bytes &&
            space.dict->entries[i].key.text[0] == '_')
            jinja_fail(run, "a namespace cannot have attributes that begin with _");
    space.kind = WF_JINJA_NAMESPACE;
    return space;
}

const jinja_function *jinja_find_function(const char *name)
{
    static const jinja_function functions[] = {{"raise_exception", raise},
                                               {"strftime_now", now},
                                               {"range", range},
                                               {"dict", dict},
                                               {"namespace", namespace}};

    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (strcmp(functions[i].name, name) == 0)
            return &functions[i];
    return NULL;
}
