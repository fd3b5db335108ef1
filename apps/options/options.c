/*
 * apps/options/options.c - reads the command line over the rows of apps/options/options.def.
 *
 * A flag is --flag VALUE or --flag=VALUE; a BOOL is a bare --flag (or --flag=on|off), and so is
 * a LEVEL, which has more words (--flag=WORD); a FILES flag takes every argument up to the next
 * one that begins with a dash. Given twice, the last value counts; files add up.
 */
#include "apps/options/options_table.h"
#include "parallel/program/unknown_flag.h"
#include <string.h>

/* The arguments still to be read. */
typedef struct reader {
    char **at, **end;
    const app_option_row *last; /* flag read before, for the text of an error */
} reader;

static bool is_flag(const char *argument)
{
    return !strncmp(argument, "--", 2);
}

/* Returns true where the next argument is a value for a flag; a file named -x is given as
   ./-x. */
static bool at_value(const reader *in, const app_option_row *row)
{
    if (in->at == in->end)
        return false;
    return row->kind == APP_KIND_FILES ? **in->at != '-' : !is_flag(*in->at);
}

static wf_status unknown_flag(const char *argument, wf_error *error)
{
    const char *names[APP_OPTION_COUNT + 1];

    app_option_names(names);
    return wf_flag_unknown("gpt_train", argument, names, error);
}

static wf_status stray_argument(const reader *in, wf_error *error)
{
    const char *argument = *in->at;

    if (argument[0] == '-' && argument[1] && strspn(argument + 1, ".0123456789") == 0)
        return unknown_flag(argument, error);
    if (in->last && app_option_is_bare(in->last))
        return wf_error_set(
            error, WF_EINVAL,
            "unexpected argument '%s': %s takes no value (%s=off switches it off)", argument,
            app_option_flag(in->last).text, app_option_flag(in->last).text);
    return wf_error_set(
        error, WF_EINVAL,
        "unexpected argument '%s': every value follows a flag; files of text follow --data",
        argument);
}

static wf_status missing_value(const app_option_row *row, wf_error *error)
{
    return wf_error_set(error, WF_EINVAL, "%s needs a value: %s %s (%s)",
                        app_option_flag(row).text, app_option_flag(row).text, row->metavar,
                        row->help);
}

static wf_status set_given(app_options *options, const app_option_row *row, const char *text,
                           wf_error *error)
{
    bool *given = &options->given[row - app_option_rows];

    if (!*given)
        app_option_clear(options, row);
    *given = true;
    return app_option_set(options, row, app_option_flag(row).text, text, error);
}

/* Reads one flag with its value or values. */
static wf_status read_flag(reader *in, app_options *options, wf_error *error)
{
    const char *argument = *in->at, *name = argument + 2, *value = strchr(name, '=');
    size_t length = value ? (size_t)(value - name) : strlen(name);
    const app_option_row *row = app_option_find(name, length);
    wf_status status;

    if (!row)
        return unknown_flag(argument, error);
    in->at++;
    in->last = row;
    if (value)
        return set_given(options, row, value + 1, error);
    if (app_option_is_bare(row))
        return set_given(options, row, "on", error);
    if (!at_value(in, row))
        return missing_value(row, error);
    do
        status = set_given(options, row, *in->at++, error);
    while (status == WF_OK && row->kind == APP_KIND_FILES && at_value(in, row));
    return status;
}

static wf_status read_command_line(int argc, char **argv, app_options *options, wf_error *error)
{
    reader in = {.at = argv + (argc > 0), .end = argv + argc};
    wf_status status = WF_OK;

    while (status == WF_OK && in.at != in.end && !app_options_asks(options)) {
        if (!strcmp(*in.at, "-h"))
            options->help = true;
        else if (is_flag(*in.at))
            status = read_flag(&in, options, error);
        else
            status = stray_argument(&in, error);
    }
    return status;
}

wf_status app_options_defaults(app_options *options, wf_error *error)
{
    wf_status status = WF_OK;

    for (int i = 0; i < APP_OPTION_COUNT && status == WF_OK; i++) {
        const app_option_row *row = &app_option_rows[i];

        if (row->standard && *row->standard != '=')
            status =
                app_option_set(options, row, app_option_flag(row).text, row->standard, error);
    }
    return status;
}

bool app_options_asks(const app_options *options)
{
    return options->help || options->version || *options->completion;
}

static wf_status parse(int argc, char **argv, bool is_fed, app_options *options,
                       wf_error *error)
{
    wf_status status;

    memset(options, 0, sizeof *options);
    options->is_fed = is_fed;
    status = app_options_defaults(options, error);
    if (status == WF_OK)
        status = read_command_line(argc, argv, options, error);
    if (status == WF_OK && !app_options_asks(options)) {
        if (options->config)
            status = app_options_read_config(options, options->config, error);
        if (status == WF_OK)
            status = app_options_check(options, error);
    }
    if (status != WF_OK)
        app_options_free(options);
    return status;
}

wf_status app_options_parse(int argc, char **argv, app_options *options, wf_error *error)
{
    return parse(argc, argv, false, options, error);
}

wf_status app_options_parse_fed(int argc, char **argv, app_options *options, wf_error *error)
{
    return parse(argc, argv, true, options, error);
}

void app_options_free(app_options *options)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++)
        app_option_clear(options, &app_option_rows[i]);
    wf_nn_schedule_free(&options->schedule);
}
