/* apps/options/options_show.c - --print-config and --save-config: what each option is, and who
   said so. */
#include "apps/options/options_table.h"
#include "core/files/output.h"
#include <stdlib.h>
#include <string.h>

static const char *source_of(const app_options *o, int id, bool standard)
{
    if (o->from_config[id])
        return "config file";
    if (o->given[id])
        return "command line";
    return standard ? "default" : "follows from others";
}

static wf_status print_options(const app_options *o, json_t *options, json_t *defaults,
                               FILE *out, wf_error *error)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        json_t *value = json_object_get(options, row->name);
        char *text;

        if (!app_option_in_config(row))
            continue;
        text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(10));
        if (!text)
            return wf_error_set(error, WF_ENOMEM, "no memory to print %s",
                                app_option_flag(row).text);
        fprintf(out, "%-24s %-24s %s\n", row->name, text,
                source_of(o, i, json_equal(value, json_object_get(defaults, row->name))));
        free(text);
    }
    return WF_OK;
}

/* Marks the given options, as they are in a config file, and beside them, where no reader takes
   them for given, derived values and defaults. NULL: no memory. */
static json_t *marked(const app_options *o, json_t *options)
{
    json_t *given = json_object(), *derived = json_object();
    bool fits = given && derived;

    for (int i = 0; fits && i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        json_t *value = json_object_get(options, row->name);

        if (app_option_in_config(row) && (o->given[i] || !json_is_null(value)))
            fits = json_object_set(o->given[i] ? given : derived, row->name, value) == 0;
    }
    fits = fits && json_object_set(given, APP_CONFIG_DERIVED, derived) == 0;
    json_decref(derived);
    if (!fits)
        json_decref(given);
    return fits ? given : NULL;
}

static wf_status save(const app_options *o, json_t *options, wf_error *error)
{
    json_t *written = marked(o, options);
    wf_output *output = written ? wf_output_open(o->save_config, error) : NULL;

    if (!written)
        return wf_error_set(error, WF_ENOMEM, "no memory for the options as JSON");
    if (output && (json_dumpf(written, wf_output_stream(output), JSON_INDENT(2)) != 0 ||
                   fputc('\n', wf_output_stream(output)) == EOF)) {
        wf_output_failed(output, error);
        wf_output_discard(output);
    } else if (output) {
        wf_output_publish(output, error);
    }
    json_decref(written);
    return error->code;
}

wf_status app_options_show(const app_options *o, FILE *out, wf_error *error)
{
    app_options standard = {.config = NULL};
    wf_status status = app_options_defaults(&standard, error);
    json_t *defaults = status == WF_OK ? app_options_json(&standard) : NULL;
    json_t *options = app_options_json(o);

    if (status == WF_OK && (!defaults || !options))
        status = wf_error_set(error, WF_ENOMEM, "no memory for the options as JSON");
    if (status == WF_OK && o->save_config)
        status = save(o, options, error);
    if (status == WF_OK && o->print_config)
        status = print_options(o, options, defaults, out, error);
    json_decref(defaults);
    json_decref(options);
    app_options_free(&standard);
    return status;
}
