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

/* Returns the shortest text of a value, of at most `most` digits, that reads back as the same:
   0.003, not 0.0030000000000000001. NULL: no memory. Owner: the caller, free. */
static char *text_of(const json_t *value, size_t most)
{
    size_t digits = most;
    char text[40];

    if (json_is_real(value)) {
        double number = json_real_value(value);

        for (digits = 1; digits < most; digits++) {
            snprintf(text, sizeof text, "%.*g", (int)digits, number);
            if (strtod(text, NULL) == number)
                break;
        }
    }
    return json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(digits));
}

/* Writes an object, a member a line; false: no memory, or the file has failed. */
static bool write_object(FILE *out, json_t *object, int indent)
{
    bool first = true, good = true;
    const char *name;
    json_t *value;

    fputc('{', out);
    json_object_foreach(object, name, value)
    {
        char *text = json_is_object(value) ? NULL : text_of(value, 17);

        fprintf(out, "%s\n%*s\"%s\": %s", first ? "" : ",", indent + 2, "", name,
                text ? text : "");
        good =
            good && (text || (json_is_object(value) && write_object(out, value, indent + 2)));
        free(text);
        first = false;
    }
    return fprintf(out, "\n%*s}", indent, "") > 0 && good;
}

static wf_status print_options(const app_options *o, json_t *options, json_t *defaults,
                               FILE *out, wf_error *error)
{
    for (int i = 0; i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        json_t *value = json_object_get(options, row->name);
        const bool standard = json_equal(value, json_object_get(defaults, row->name));
        const char *source = source_of(o, i, standard);
        /* The rule is printed, since the run chooses the value later. */
        const bool ruled = !o->given[i] && standard && row->standard && *row->standard == '=';
        char *text;

        if (!app_option_in_config(row))
            continue;
        text = ruled ? strdup(row->standard + 1) : text_of(value, 10);
        if (!text)
            return wf_error_set(error, WF_ENOMEM, "no memory to print %s",
                                app_option_flag(row).text);
        fprintf(out, "%-24s %-24s %s\n", row->name, text, source);
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
    if (output && (!write_object(wf_output_stream(output), written, 0) ||
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
