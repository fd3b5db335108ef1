/* nn/dataset/source_list.c - see source_list.h. */
#include "nn/dataset/source_list.h"
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SOURCES = 1024 };

/* Returns the length of NAME in NAME=WEIGHT:FILES; 0 where an argument is a plain file. */
static size_t name_length(const char *argument)
{
    size_t n = strspn(argument, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                "0123456789_-");

    return n && argument[n] == '=' && strchr(argument + n, ':') ? n : 0;
}

static wf_status no_memory(const char *flag, wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory for the files of %s", flag);
}

static wf_status add_file(wf_dataset_source_files *source, const char *name, const char *flag,
                          wf_error *error)
{
    char **more = source->file;

    if ((source->count & (source->count - 1)) == 0) /* room doubles */
        more = realloc(more, (size_t)(source->count ? 2 * source->count : 1) * sizeof *more);
    if (!more)
        return no_memory(flag, error);
    source->file = more;
    more[source->count] = strdup(name);
    if (!more[source->count])
        return no_memory(flag, error);
    source->count++;
    return WF_OK;
}

/* Adds the file of a name, or all files that a pattern matches. */
static wf_status add_files(wf_dataset_source_files *source, const char *name, const char *flag,
                           wf_error *error)
{
    glob_t found = {.gl_pathc = 0};
    int result;
    wf_status status = WF_OK;

    if (!strpbrk(name, "*?["))
        return add_file(source, name, flag, error);
    result = glob(name, 0, NULL, &found);
    if (result == GLOB_NOMATCH)
        status = wf_error_set(error, WF_EINVAL, "%s, source %s: no file is called %s", flag,
                              source->name, name);
    else if (result)
        status = no_memory(flag, error);
    for (size_t i = 0; i < found.gl_pathc && status == WF_OK; i++)
        status = add_file(source, found.gl_pathv[i], flag, error);
    globfree(&found);
    return status;
}

static wf_status parse_source(const char *argument, const char *flag,
                              wf_dataset_source_files *source, wf_error *error)
{
    size_t n = name_length(argument);
    char *rest, *names, *name;
    wf_status status = WF_OK;

    source->weight = strtod(argument + n + 1, &rest);
    if (*rest != ':' || rest == argument + n + 1 || !isfinite(source->weight) ||
        source->weight <= 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s %s: the weight of a source is a positive number between = and "
                            ":, as in web=0.7:web.idx",
                            flag, argument);
    source->name = strndup(argument, n);
    names = strdup(rest + 1);
    if (!source->name || !names)
        status = no_memory(flag, error);
    for (char *next = names; status == WF_OK && (name = strsep(&next, ","));)
        status =
            *name ? add_files(source, name, flag, error)
                  : wf_error_set(error, WF_EINVAL,
                                 "%s %s: a source has files after its :, with commas between",
                                 flag, argument);
    free(names);
    return status;
}

static wf_status parse_mixture(char *const *arguments, int64_t count, const char *flag,
                               wf_dataset_source_list *list, wf_error *error)
{
    if (count > MOST_SOURCES)
        return wf_error_set(error, WF_EINVAL, "%s has %lld sources, and a mixture at most %d",
                            flag, (long long)count, MOST_SOURCES);
    for (int64_t i = 0; i < count; i++) {
        if (!name_length(arguments[i]))
            return wf_error_set(error, WF_EINVAL,
                                "%s %s is a file, and beside it are sources with weights; give "
                                "it as NAME=WEIGHT:%s",
                                flag, arguments[i], arguments[i]);
        list->count = i + 1;
        if (parse_source(arguments[i], flag, &list->source[i], error) != WF_OK)
            return error->code;
        for (int64_t k = 0; k < i; k++)
            if (strcmp(list->source[k].name, list->source[i].name) == 0)
                return wf_error_set(error, WF_EINVAL,
                                    "%s has two sources %s; give them names of their own, or "
                                    "join them as one, with commas between their files",
                                    flag, list->source[i].name);
    }
    return WF_OK;
}

static wf_status parse_plain(char *const *arguments, int64_t count, const char *flag,
                             wf_dataset_source_list *list, wf_error *error)
{
    wf_dataset_source_files *source = list->source;
    wf_status status = WF_OK;

    list->count = 1;
    source->weight = 1;
    source->name = strdup("data");
    if (!source->name)
        status = no_memory(flag, error);
    for (int64_t i = 0; i < count && status == WF_OK; i++)
        status = add_file(source, arguments[i], flag, error);
    return status;
}

wf_status wf_dataset_source_list_parse(char *const *arguments, int64_t count, const char *flag,
                                       wf_dataset_source_list *list, wf_error *error)
{
    wf_status status;

    *list = (wf_dataset_source_list){.count = 0};
    if (!count)
        return wf_error_set(error, WF_EINVAL, "no data file was given; use %s FILE...", flag);
    for (int64_t i = 0; i < count; i++)
        list->mixture = list->mixture || name_length(arguments[i]);
    list->source = calloc((size_t)count, sizeof *list->source);
    if (!list->source)
        return no_memory(flag, error);
    status = list->mixture ? parse_mixture(arguments, count, flag, list, error)
                           : parse_plain(arguments, count, flag, list, error);
    if (status != WF_OK)
        wf_dataset_source_list_free(list);
    return status;
}

void wf_dataset_source_list_free(wf_dataset_source_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        for (int64_t k = 0; k < list->source[i].count; k++)
            free(list->source[i].file[k]);
        free(list->source[i].file);
        free(list->source[i].name);
    }
    free(list->source);
    *list = (wf_dataset_source_list){.count = 0};
}
