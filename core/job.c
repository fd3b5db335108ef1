/* core/job.c - named entries that parties of a run must have alike; see the header. */
#include "core/job.h"
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { LONGEST_VALUE = 240 }; /* longest value in an error */

struct wf_job {
    char *text;
    size_t bytes, room;
    wf_error error;
};

wf_job *wf_job_new(void)
{
    return calloc(1, sizeof(wf_job));
}

void wf_job_free(wf_job *job)
{
    if (job)
        free(job->text);
    free(job);
}

static bool make_room(wf_job *job, size_t bytes)
{
    size_t room = job->room ? job->room : 1024;
    char *text;

    while (room < job->bytes + bytes)
        room *= 2;
    if (room == job->room)
        return true;
    text = realloc(job->text, room);
    if (!text)
        return false;
    job->text = text;
    job->room = room;
    return true;
}

wf_status wf_job_add(wf_job *job, const char *name, const char *format, ...)
{
    size_t name_bytes = strlen(name) + 1;
    va_list args, copy;
    int length;

    if (!job)
        return WF_OK;
    va_start(args, format);
    va_copy(copy, args);
    length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0 || !make_room(job, name_bytes + (size_t)length + 1)) {
        va_end(copy);
        return wf_error_set(&job->error, WF_ENOMEM, "no memory for entry %.100s of the job",
                            name);
    }
    memcpy(job->text + job->bytes, name, name_bytes);
    job->bytes += name_bytes;
    vsnprintf(job->text + job->bytes, (size_t)length + 1, format, copy);
    va_end(copy);
    job->bytes += (size_t)length + 1;
    return WF_OK;
}

wf_status wf_job_append(wf_job *job, const wf_job *from)
{
    if (!job || !from)
        return WF_OK;
    if (from->error.code != WF_OK)
        wf_job_fail(job, &from->error);
    if (!make_room(job, from->bytes + 1))
        return wf_error_set(&job->error, WF_ENOMEM, "no memory for entries of the job");
    if (from->bytes)
        memcpy(job->text + job->bytes, from->text, from->bytes);
    job->bytes += from->bytes;
    return WF_OK;
}

void wf_job_fail(wf_job *job, const wf_error *error)
{
    wf_error_set(&job->error, error->code, "%s", error->text);
}

const wf_error *wf_job_error(const wf_job *job)
{
    return &job->error;
}

const char *wf_job_text(const wf_job *job, size_t *bytes)
{
    *bytes = job ? job->bytes : 0;
    return job && job->text ? job->text : "";
}

uint64_t wf_job_digest(const wf_job *job)
{
    return job ? XXH3_64bits(job->text ? job->text : "", job->bytes) : 0;
}

/* Reads the next entry of a text; false after the last one. */
static bool next_entry(const char *text, size_t bytes, size_t *at, const char **name,
                       const char **value)
{
    if (*at >= bytes)
        return false;
    *name = text + *at;
    *at += strlen(*name) + 1;
    *value = *at < bytes ? text + *at : "";
    *at += strlen(*value) + 1;
    return true;
}

static const char *value_of(const char *text, size_t bytes, const char *wanted)
{
    const char *name, *value;
    size_t at = 0;

    while (next_entry(text, bytes, &at, &name, &value))
        if (strcmp(name, wanted) == 0)
            return value;
    return NULL;
}

typedef struct difference {
    const char *name, *a, *b; /* values; NULL: there is none */
    const char *a_name, *b_name;
} difference;

/* Prints a value, cut around where it begins to differ from `other`. */
static int put_value(const char *value, const char *other, char *text, size_t room)
{
    size_t same = 0, begin;

    if (!value)
        return snprintf(text, room, "not there");
    while (other && value[same] && value[same] == other[same])
        same++;
    begin = same > LONGEST_VALUE * 2 / 3 ? same - LONGEST_VALUE / 3 : 0;
    return snprintf(text, room, "%s%.*s%s", begin ? ".." : "", LONGEST_VALUE,
                    *value ? value + begin : "empty",
                    strlen(value) - begin > LONGEST_VALUE ? ".." : "");
}

static size_t put(const difference *d, int number, char *text, size_t room)
{
    char a[LONGEST_VALUE + 8], b[LONGEST_VALUE + 8];
    int length;

    put_value(d->a, d->b, a, sizeof a);
    put_value(d->b, d->a, b, sizeof b);
    length = number ? snprintf(text, room, "; %s: %s and %s", d->name, a, b)
                    : snprintf(text, room, "%s is %s in %s and %s in %s", d->name, a, d->a_name,
                               b, d->b_name);
    if (length >= 0 && (size_t)length < room)
        return (size_t)length;
    if (number) /* it stands there whole, or not at all */
        *text = '\0';
    return number ? 0 : strlen(text);
}

int wf_job_differences(const char *a, size_t a_bytes, const char *a_name, const char *b,
                       size_t b_bytes, const char *b_name, char *text, size_t room)
{
    difference d = {.a_name = a_name, .b_name = b_name};
    size_t at = 0, used = 0;
    int number = 0;

    *text = '\0';
    while (next_entry(a, a_bytes, &at, &d.name, &d.a)) {
        d.b = value_of(b, b_bytes, d.name);
        if (d.b && strcmp(d.a, d.b) != 0)
            used += put(&d, number++, text + used, room - used);
    }
    if (number) /* entries that only one has may follow from these */
        return number;
    for (at = 0; next_entry(a, a_bytes, &at, &d.name, &d.a);)
        if (!(d.b = value_of(b, b_bytes, d.name)))
            used += put(&d, number++, text + used, room - used);
    d.a = NULL;
    for (at = 0; next_entry(b, b_bytes, &at, &d.name, &d.b);)
        if (!value_of(a, a_bytes, d.name))
            used += put(&d, number++, text + used, room - used);
    return number;
}
