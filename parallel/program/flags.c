/* parallel/program/flags.c - see the header. */
#include "parallel/program/flags.h"
#include "core/files/input.h"
#include "core/numerics/float_value.h"
#include "parallel/program/unknown_flag.h"
#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELP_COLUMN = 30, HELP_COLUMNS = 100 };

static wf_status take(const wf_flag *f, const char *text, wf_error *error)
{
    char *end = NULL;
    double real;
    long long count;

    switch (f->kind) {
    case WF_FLAG_TEXT:
        *(const char **)f->value = text;
        return WF_OK;
    case WF_FLAG_SWITCH:
        *(bool *)f->value = true;
        return WF_OK;
    case WF_FLAG_COUNT:
        count = strtoll(text, &end, 10);
        if (end == text || *end || (double)count < f->least || (double)count > f->most)
            return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from %.0f to %.0f",
                                f->name, text, f->least, f->most);
        *(int64_t *)f->value = count;
        return WF_OK;
    default:
        real = strtod(text, &end);
        if (end == text || *end || !(real >= f->least && real <= f->most))
            return wf_error_set(error, WF_EINVAL, "--%s %s: a number from %.8g to %.8g",
                                f->name, text, f->least, f->most);
        if (!wf_float_holds(real))
            return wf_error_set(
                error, WF_EINVAL,
                "--%s %s becomes %g as a 32-bit float: a number from %.8g to %.8g, "
                "of %g or more where it is not 0",
                f->name, text, (double)(float)real, f->least, f->most, 1.2e-38);
        *(double *)f->value = real;
        return WF_OK;
    }
}

wf_status wf_flags_read(const char *program, int argc, char **argv, const wf_flag *flags,
                        int *first, wf_error *error)
{
    struct option options[WF_FLAGS + 1] = {{NULL, 0, NULL, 0}};
    int c, at = 0;

    for (int i = 0; flags[i].name; i++)
        options[i] = (struct option){
            flags[i].name, flags[i].kind == WF_FLAG_SWITCH ? no_argument : required_argument,
            NULL, 0};
    opterr = 0;
    while ((c = getopt_long(argc, argv, "", options, &at)) != -1) {
        if (c != 0)
            return wf_flag_refused(program, argc, argv, options, error);
        if (take(&flags[at], optarg, error) != WF_OK ||
            (flags[at].taken && flags[at].taken(flags[at].arg, error) != WF_OK))
            return error->code;
    }
    *first = optind;
    return WF_OK;
}

static void add(const wf_flag *f, wf_job *job)
{
    char name[48];

    snprintf(name, sizeof name, "--%.40s", f->name);
    switch (f->kind) {
    case WF_FLAG_TEXT:
        wf_job_add(job, name, "%s",
                   *(const char **)f->value ? *(const char **)f->value : "not given");
        break;
    case WF_FLAG_SWITCH:
        wf_job_add(job, name, "%s", *(bool *)f->value ? "on" : "off");
        break;
    case WF_FLAG_COUNT:
        wf_job_add(job, name, "%lld", (long long)*(int64_t *)f->value);
        break;
    default:
        wf_job_add(job, name, "%.17g", *(double *)f->value);
    }
}

void wf_flags_job(const wf_flag *flags, const char *const *own, wf_job *job)
{
    for (; flags->name; flags++) {
        bool is_own = false;

        for (int i = 0; own[i]; i++)
            is_own = is_own || strcmp(own[i], flags->name) == 0;
        if (!is_own)
            add(flags, job);
    }
}

/* Finds the flag of a key, in which _ may replace -. */
static const wf_flag *find(const wf_flag *flags, const char *key)
{
    for (; flags->name; flags++) {
        size_t i = 0;

        while (key[i] && (key[i] == flags->name[i] || (key[i] == '_' && flags->name[i] == '-')))
            i++;
        if (!key[i] && !flags->name[i])
            return flags;
    }
    return NULL;
}

/* Takes a value of JSON as the text that a command line would have; a switch is true or
   false. */
static wf_status take_json(const wf_flag *f, const char *path, const char *key,
                           const json_t *value, wf_error *error)
{
    char *text = json_is_string(value)    ? strdup(json_string_value(value))
                 : json_is_number(value)  ? json_dumps(value, JSON_ENCODE_ANY)
                 : json_is_boolean(value) ? strdup("")
                                          : NULL;
    bool fits = text && (f->kind == WF_FLAG_SWITCH) == json_is_boolean(value) &&
                (f->kind != WF_FLAG_TEXT || json_is_string(value)) &&
                (f->kind == WF_FLAG_TEXT || !json_is_string(value));
    wf_error why = {WF_OK, ""};

    if (!fits)
        wf_error_set(error, WF_EINVAL, "%s: \"%s\" is a value of another kind than --%s takes",
                     path, key, f->name);
    else if (f->kind == WF_FLAG_SWITCH)
        *(bool *)f->value = json_is_true(value);
    else if (take(f, text, &why) != WF_OK || (f->taken && f->taken(f->arg, &why) != WF_OK))
        wf_error_set(error, why.code, "%s: %s", path, why.text);
    if (!fits || f->kind != WF_FLAG_TEXT)
        free(text);
    return error->code;
}

static void unknown_key(const char *program, const char *path, const char *key,
                        const wf_flag *flags, wf_error *error)
{
    const char *names[WF_FLAGS + 1] = {NULL};
    char where[512];

    for (int i = 0; flags[i].name; i++)
        names[i] = flags[i].name;
    snprintf(where, sizeof where, "--config %.300s: \"%.150s\"", path, key);
    wf_flag_unknown_key(program, where, key, names, error);
}

wf_status wf_flags_config(const char *program, const char *path, const wf_flag *flags,
                          wf_error *error)
{
    json_error_t where;
    json_t *object, *value;
    const char *key;
    FILE *file = wf_input_open(path);

    if (!file)
        return wf_error_set(error, WF_EIO, "--config: cannot read %s: %s", path,
                            strerror(errno));
    object = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
    fclose(file);
    if (!json_is_object(object)) {
        json_decref(object);
        return wf_error_set(error, WF_EDATA,
                            "--config %s is no JSON object of flags: %s, line %d", path,
                            object ? "another value" : where.text, where.line);
    }
    json_object_foreach(object, key, value)
    {
        const wf_flag *f = find(flags, key);

        if (!f)
            unknown_key(program, path, key, flags, error);
        else
            take_json(f, path, key, value, error);
        if (error->code != WF_OK)
            break;
    }
    json_decref(object);
    return error->code;
}

/* Writes the value that a flag has. */
static void print_value(FILE *out, const wf_flag *f)
{
    const char *text = f->kind == WF_FLAG_TEXT ? *(const char **)f->value : NULL;

    if (f->kind == WF_FLAG_COUNT)
        fprintf(out, " (default: %lld)", (long long)*(int64_t *)f->value);
    else if (f->kind == WF_FLAG_REAL)
        fprintf(out, " (default: %g)", *(double *)f->value);
    else if (text)
        fprintf(out, " (default: %s)", text);
}

/* Prints words from a column on, in lines of about 100 columns. */
static void print_words(FILE *out, const char *words)
{
    int column = HELP_COLUMN;

    while (*words) {
        int length = (int)strcspn(words, " ");

        if (column > HELP_COLUMN && column + length + 1 > HELP_COLUMNS) {
            fprintf(out, "\n%*s", HELP_COLUMN, "");
            column = HELP_COLUMN;
        }
        column += fprintf(out, " %.*s", length, words);
        words += length + (words[length] == ' ');
    }
}

wf_status wf_flags_steps(const char *where, const char *text, int64_t *first, int64_t *last,
                         wf_error *error)
{
    char *end = NULL;
    long long from = 0, to = 0;

    errno = 0;
    if (isdigit((unsigned char)*text))
        from = to = strtoll(text, &end, 10);
    if (end && *end == '-' && isdigit((unsigned char)end[1]))
        to = strtoll(end + 1, &end, 10);
    if (!end || *end || errno || from < 1 || to < from)
        return wf_error_set(error, WF_EINVAL,
                            "%s '%s' is not a range of steps; it takes the first and the last "
                            "one, from 1 on: 2-3, or 5",
                            where, text);
    *first = from;
    *last = to;
    return WF_OK;
}

void wf_flags_help(FILE *out, const wf_flag *flags)
{
    for (; flags->name; flags++) {
        const char *text = flags->help;
        int n = 0, value = text && flags->kind != WF_FLAG_SWITCH ? (int)strcspn(text, " ") : 0;

        if (!text)
            continue;
        n = fprintf(out, "  --%s%s%.*s", flags->name, value ? " " : "", value, text);
        fprintf(out, "%*s", n < HELP_COLUMN ? HELP_COLUMN - n : 0, "");
        print_words(out, text + value + (value > 0));
        print_value(out, flags);
        fputc('\n', out);
    }
}

char *wf_flags_json(const wf_flag *flags)
{
    json_t *object = json_object();
    char *text;

    for (; object && flags->name; flags++) {
        json_t *value = flags->kind == WF_FLAG_COUNT    ? json_integer(*(int64_t *)flags->value)
                        : flags->kind == WF_FLAG_REAL   ? json_real(*(double *)flags->value)
                        : flags->kind == WF_FLAG_SWITCH ? json_boolean(*(bool *)flags->value)
                        : *(const char **)flags->value
                            ? json_string(*(const char **)flags->value)
                            : json_null();

        if (json_object_set_new(object, flags->name, value) != 0)
            break;
    }
    text = flags->name ? NULL : json_dumps(object, 0);
    json_decref(object);
    return text;
}

size_t wf_flags_find(const void *flags, const char *field, size_t length, char *to, size_t size)
{
    for (const wf_flag *flag = flags; flag->name; flag++) {
        size_t i = 0;

        while (i < length && flag->name[i] == (field[i] == '_' ? '-' : field[i]))
            i++;
        if (i == length && !flag->name[i])
            return (size_t)snprintf(to, size, "--%s", flag->name);
    }
    return 0;
}
