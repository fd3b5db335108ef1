/* apps/command_line.c - see the header. */
#include "apps/command_line.h"
#include "apps/float_value.h"
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wf_status take(const app_flag *f, const char *text, wf_error *error)
{
    char *end = NULL;
    double real;
    long long count;

    switch (f->kind) {
    case APP_FLAG_TEXT:
        *(const char **)f->value = text;
        return WF_OK;
    case APP_FLAG_SWITCH:
        *(bool *)f->value = true;
        return WF_OK;
    case APP_FLAG_COUNT:
        count = strtoll(text, &end, 10);
        if (end == text || *end || (double)count < f->least || (double)count > f->most)
            return wf_error_set(error, WF_EINVAL, "--%s %s: a whole number from %.0f to %.0f",
                                f->name, text, f->least, f->most);
        *(int64_t *)f->value = count;
        return WF_OK;
    default:
        real = strtod(text, &end);
        if (end == text || *end || !(real >= f->least && real <= f->most))
            return wf_error_set(error, WF_EINVAL, "--%s %s: a number from %g to %g", f->name,
                                text, f->least, f->most);
        if (!app_float_holds(real))
            return wf_error_set(error, WF_EINVAL,
                                "--%s %s becomes %g as a 32-bit float: a number from %g to %g, "
                                "of %g or more where it is not 0",
                                f->name, text, (double)(float)real, f->least, f->most, 1.2e-38);
        *(double *)f->value = real;
        return WF_OK;
    }
}

wf_status app_flags_read(const char *program, int argc, char **argv, const app_flag *flags,
                         int *first, wf_error *error)
{
    struct option options[APP_FLAGS + 1] = {{NULL, 0, NULL, 0}};
    int c, at = 0;

    for (int i = 0; flags[i].name; i++)
        options[i] = (struct option){
            flags[i].name, flags[i].kind == APP_FLAG_SWITCH ? no_argument : required_argument,
            NULL, 0};
    opterr = 0;
    while ((c = getopt_long(argc, argv, ":", options, &at)) != -1) {
        if (c == ':')
            return wf_error_set(error, WF_EINVAL, "%s lacks its value; see %s --help",
                                argv[optind - 1], program);
        if (c != 0)
            return wf_error_set(error, WF_EINVAL, "%s is no flag; see %s --help",
                                argv[optind - 1], program);
        if (take(&flags[at], optarg, error) != WF_OK ||
            (flags[at].taken && flags[at].taken(flags[at].arg, error) != WF_OK))
            return error->code;
    }
    *first = optind;
    return WF_OK;
}

static void add(const app_flag *f, wf_job *job)
{
    char name[48];

    snprintf(name, sizeof name, "--%.40s", f->name);
    switch (f->kind) {
    case APP_FLAG_TEXT:
        wf_job_add(job, name, "%s",
                   *(const char **)f->value ? *(const char **)f->value : "not given");
        break;
    case APP_FLAG_SWITCH:
        wf_job_add(job, name, "%s", *(bool *)f->value ? "on" : "off");
        break;
    case APP_FLAG_COUNT:
        wf_job_add(job, name, "%lld", (long long)*(int64_t *)f->value);
        break;
    default:
        wf_job_add(job, name, "%.17g", *(double *)f->value);
    }
}

void app_flags_job(const app_flag *flags, const char *const *own, wf_job *job)
{
    for (; flags->name; flags++) {
        bool is_own = false;

        for (int i = 0; own[i]; i++)
            is_own = is_own || strcmp(own[i], flags->name) == 0;
        if (!is_own)
            add(flags, job);
    }
}
