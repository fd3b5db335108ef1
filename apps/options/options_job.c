/* apps/options/options_job.c - options that the processes of a run must have alike, as entries
   of a job. */
#include "core/files/content.h"
#include "apps/options/options_table.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The shortest of two decimals that reads back as the number. */
static void add_real(wf_job *job, const char *name, double value)
{
    char text[40];

    snprintf(text, sizeof text, "%.10g", value);
    wf_job_add(job, name, strtod(text, NULL) == value ? "%.10g" : "%.17g", value);
}

static void add_words(wf_job *job, const char *name, const char *text)
{
    wf_job_add(job, name, "%s", text ? text : "not given");
}

static void add_list(wf_job *job, const char *name, const app_text_list *list)
{
    for (int64_t i = 0; i < list->count; i++) {
        char each[80];

        snprintf(each, sizeof each, "%s[%" PRId64 "]", name, i);
        add_words(job, each, list->item[i]);
    }
}

static void add_option(wf_job *job, const app_options *o, const app_option_row *row)
{
    const void *field = (const char *)o + row->offset;
    const app_flag flag = app_option_flag(row);
    const app_steps *steps = field;

    switch (row->kind) {
    case APP_KIND_INT:
    case APP_KIND_BYTES:
        wf_job_add(job, flag.text, "%" PRId64, *(const int64_t *)field);
        break;
    case APP_KIND_REAL:
    case APP_KIND_FLOAT:
        add_real(job, flag.text, *(const double *)field);
        break;
    case APP_KIND_BOOL:
    case APP_KIND_SWITCH:
        add_words(job, flag.text, *(const bool *)field ? "on" : "off");
        break;
    case APP_KIND_CHOICE:
    case APP_KIND_LEVEL:
        add_words(job, flag.text, field);
        break;
    case APP_KIND_TEXT:
    case APP_KIND_FILE:
        add_words(job, flag.text, *(char *const *)field);
        break;
    case APP_KIND_FILES:
        add_list(job, flag.text, field);
        break;
    case APP_KIND_STEPS:
        wf_job_add(job, flag.text, "%" PRId64 "-%" PRId64, steps->first, steps->last);
        break;
    case APP_KIND_GROUP: /* no default: a new kind is compared, or causes a warning */
    case APP_KIND_COUNT:
        break;
    }
}

/* Adds to a job whether a file is given, and its content. */
static void add_content(wf_job *job, const char *flag, const char *path)
{
    char name[64];

    wf_job_add(job, flag, "%s", path ? "given" : "not given");
    snprintf(name, sizeof name, "content of %s", flag);
    wf_job_add_path(job, name, path);
}

void app_options_job(const app_options *o, wf_job *job)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        if (app_option_rows[i].kind != APP_KIND_GROUP && !app_option_own(&app_option_rows[i]))
            add_option(job, o, &app_option_rows[i]);
    add_content(job, "--init-from", o->init_from);
    add_content(job, "--lora-init", o->lora_init);
    add_content(job, "--tokenizer", o->tokenizer);
    add_content(job, "--eval-requests", o->eval_requests);
    wf_job_add_path(job, "content of --pp-schedule", o->pp_schedule);
}
