/* apps/options/options_value.c - one value: text to a field of app_options, checked against its
   domain.
*/
#include "parallel/report/layout.h"
#include "core/numerics/float_value.h"
#include "apps/options/options_table.h"
#include "parallel/program/flags.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void *field_of(app_options *options, const app_option_row *row)
{
    return (char *)options + row->offset;
}

static wf_status outside(const app_option_row *row, const char *where, const char *text,
                         wf_error *error)
{
    return wf_error_set(error, WF_EINVAL, "%s %s is not in %s (%s)", where, text, row->domain,
                        row->help);
}

static wf_status set_int(void *field, const app_option_row *row, const char *where,
                         const char *text, wf_error *error)
{
    const char *high = strchr(row->domain, ',') + 1;
    char *end, *bound_end;
    long long value, low_bound, high_bound;

    errno = 0;
    value = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text))
        return wf_error_set(error, WF_EINVAL,
                            "%s '%s' is not a whole number; it takes one in %s", where, text,
                            row->domain);
    if (errno == ERANGE)
        return wf_error_set(error, WF_EINVAL, "%s %s does not fit in 64 bits; it must be in %s",
                            where, text, row->domain);
    low_bound = strtoll(row->domain + 1, NULL, 10);
    high_bound = strtoll(high, &bound_end, 10);
    if (bound_end == high) /* inf */
        high_bound = INT64_MAX;
    if (value < low_bound || value > high_bound)
        return outside(row, where, text, error);
    *(int64_t *)field = value;
    return WF_OK;
}

static wf_status set_real(void *field, const app_option_row *row, const char *where,
                          const char *text, wf_error *error)
{
    const char *domain = row->domain;
    double low = strtod(domain + 1, NULL), high = strtod(strchr(domain, ',') + 1, NULL), value;
    bool open_low = *domain == '(', open_high = domain[strlen(domain) - 1] == ')';
    char *end;

    value = strtod(text, &end);
    if (end == text || *end || strspn(text, "+-.0123456789eE") != strlen(text))
        return wf_error_set(error, WF_EINVAL, "%s '%s' is not a number; it takes one in %s",
                            where, text, domain);
    if (!isfinite(value) || (open_low ? value <= low : value < low) ||
        (open_high ? value >= high : value > high))
        return outside(row, where, text, error);
    *(double *)field = value;
    return WF_OK;
}

/* Sets a number that is used as a float: the float, too, is in the domain, and is 0 only where
   the number is. */
static wf_status set_float(void *field, const app_option_row *row, const char *where,
                           const char *text, wf_error *error)
{
    double before = *(double *)field;
    char rounded[32];

    if (set_real(field, row, where, text, error) != WF_OK)
        return error->code;
    snprintf(rounded, sizeof rounded, "%.9g", (double)(float)*(double *)field);
    if (wf_float_holds(*(double *)field) &&
        set_real(&(double){0}, row, where, rounded, &(wf_error){WF_OK, ""}) == WF_OK)
        return WF_OK;
    *(double *)field = before;
    return wf_error_set(
        error, WF_EINVAL,
        "%s %s becomes %s as the 32-bit float that it is used as%s: it takes one "
        "in %s, and %g or more where it is not 0 (%s)",
        where, text, rounded,
        strcmp(rounded, "0") == 0 ? ", which would mean the opposite or nothing" : "",
        row->domain, 1.2e-38, row->help);
}

static wf_status set_bool(void *field, const app_option_row *row, const char *where,
                          const char *text, wf_error *error)
{
    bool on = !strcmp(text, "on") || !strcmp(text, "true");

    (void)row;
    if (!on && strcmp(text, "off") && strcmp(text, "false"))
        return wf_error_set(error, WF_EINVAL, "%s '%s' is neither on nor off", where, text);
    *(bool *)field = on;
    return WF_OK;
}

/* The words of a domain: "gpt2, llama". */
static void list_choices(char *out, size_t size, const app_option_row *row)
{
    const char *cursor = row->domain;
    size_t used = 0;
    app_choice choice;

    *out = 0;
    while (app_choice_next(&cursor, &choice))
        if (used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     choice.name);
}

static wf_status set_choice(void *field, const app_option_row *row, const char *where,
                            const char *text, wf_error *error)
{
    const char *cursor = row->domain;
    char all[512];
    app_choice choice;

    while (app_choice_next(&cursor, &choice)) {
        if (strcmp(choice.name, text))
            continue;
        memcpy(field, choice.means, sizeof choice.means);
        return WF_OK;
    }
    list_choices(all, sizeof all, row);
    return wf_error_set(error, WF_EINVAL, "%s '%s' is unknown; use one of: %s", where, text,
                        all);
}

static wf_status set_text(void *field, const app_option_row *row, const char *where,
                          const char *text, wf_error *error)
{
    char *copy;

    if (row->kind == APP_KIND_FILE && !*text)
        return wf_error_set(error, WF_EINVAL, "%s is given an empty file name", where);
    copy = strdup(text);
    if (!copy)
        return wf_error_set(error, WF_ENOMEM, "no memory for the value of %s", where);
    free(*(char **)field);
    *(char **)field = copy;
    return WF_OK;
}

/* A list grows by one; the first value of a new source is cleared for by the caller. */
static wf_status set_files(void *field, const app_option_row *row, const char *where,
                           const char *text, wf_error *error)
{
    app_text_list *list = field;
    char **item;

    (void)row;
    if (!*text)
        return wf_error_set(error, WF_EINVAL, "%s is given an empty file name", where);
    item = realloc(list->item, ((size_t)list->count + 1) * sizeof *item);
    if (!item)
        return wf_error_set(error, WF_ENOMEM, "no memory for the value of %s", where);
    list->item = item;
    item[list->count] = strdup(text);
    if (!item[list->count])
        return wf_error_set(error, WF_ENOMEM, "no memory for the value of %s", where);
    list->count++;
    return WF_OK;
}

/* "80GiB", "1.5GB", "512": a number of at most 2^53 bytes and maybe a unit. */
static wf_status set_bytes(void *field, const app_option_row *row, const char *where,
                           const char *text, wf_error *error)
{
    (void)row;
    if (wf_size_parse(text, field))
        return WF_OK;
    return wf_error_set(error, WF_EINVAL,
                        "%s '%s' is not a size; it takes a number and maybe a unit, of at most "
                        "8192 TiB: 80GiB, 512MiB, 1.5TB",
                        where, text);
}

/* "5-8", or "5" for that one. */
static wf_status set_steps(void *field, const app_option_row *row, const char *where,
                           const char *text, wf_error *error)
{
    app_steps *steps = field;

    (void)row;
    return wf_flags_steps(where, text, &steps->first, &steps->last, error);
}

static void clear_text(void *field)
{
    free(*(char **)field);
    *(char **)field = NULL;
}

static void clear_files(void *field)
{
    app_text_list *list = field;

    for (int64_t i = 0; i < list->count; i++)
        free(list->item[i]);
    free(list->item);
    *list = (app_text_list){0};
}

static const struct {
    wf_status (*set)(void *field, const app_option_row *, const char *where, const char *text,
                     wf_error *);
    void (*clear)(void *field);
} kinds[APP_KIND_COUNT] = {
    [APP_KIND_INT] = {set_int, NULL},         [APP_KIND_REAL] = {set_real, NULL},
    [APP_KIND_FLOAT] = {set_float, NULL},     [APP_KIND_BOOL] = {set_bool, NULL},
    [APP_KIND_SWITCH] = {set_bool, NULL},     [APP_KIND_CHOICE] = {set_choice, NULL},
    [APP_KIND_LEVEL] = {set_choice, NULL},    [APP_KIND_TEXT] = {set_text, clear_text},
    [APP_KIND_FILE] = {set_text, clear_text}, [APP_KIND_FILES] = {set_files, clear_files},
    [APP_KIND_BYTES] = {set_bytes, NULL},     [APP_KIND_STEPS] = {set_steps, NULL},
};

wf_status app_option_set(app_options *options, const app_option_row *row, const char *where,
                         const char *text, wf_error *error)
{
    return kinds[row->kind].set(field_of(options, row), row, where, text, error);
}

void app_option_clear(app_options *options, const app_option_row *row)
{
    if (kinds[row->kind].clear)
        kinds[row->kind].clear(field_of(options, row));
}
