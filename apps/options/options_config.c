/*
 * apps/options/options_config.c - options from and to JSON: one object, a key per row of
 * options.def.
 *
 * Keys may have dashes or underscores. null means "as if the key were absent". Numbers,
 * booleans and texts pass through the same checks as on the command line. The object "derived"
 * is what --save-config found to follow from the other keys: it is for readers, and follows
 * anew here.
 */
#include "apps/options/options_table.h"
#include "parallel/program/unknown_flag.h"
#include "core/files/input.h"
#include "apps/program.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_name(app_option_kind kind)
{
    static const char *const names[APP_KIND_COUNT] = {
        [APP_KIND_INT] = "a whole number",
        [APP_KIND_REAL] = "a number",
        [APP_KIND_FLOAT] = "a number",
        [APP_KIND_BOOL] = "true or false",
        [APP_KIND_SWITCH] = "true or false, \"on\" or \"off\"",
        [APP_KIND_CHOICE] = "a word in quotes",
        [APP_KIND_LEVEL] = "true or false, or a word in quotes",
        [APP_KIND_TEXT] = "text in quotes",
        [APP_KIND_FILE] = "a file name in quotes",
        [APP_KIND_FILES] = "a list of file names",
        [APP_KIND_BYTES] = "a number of bytes, or a size in quotes",
    };

    return names[kind];
}

static bool is_words(app_option_kind kind)
{
    return kind >= APP_KIND_SWITCH;
}

static bool is_real(app_option_kind kind)
{
    return kind == APP_KIND_REAL || kind == APP_KIND_FLOAT;
}

/* Returns a JSON value as a user would type it, in buffer or in place; NULL if the row can't
   take it.
*/
static const char *typed(const app_option_row *row, const json_t *value, char buffer[32])
{
    if (json_is_string(value) && is_words(row->kind))
        return json_string_value(value);
    if (json_is_boolean(value) && (app_option_is_bare(row) || row->kind == APP_KIND_SWITCH))
        return json_is_true(value) ? "on" : "off";
    if (json_is_integer(value) &&
        (row->kind == APP_KIND_INT || is_real(row->kind) || row->kind == APP_KIND_BYTES))
        snprintf(buffer, 32, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && is_real(row->kind))
        snprintf(buffer, 32, "%.17g", json_real_value(value));
    else
        return NULL;
    return buffer;
}

wf_status app_option_set_json(app_options *options, const app_option_row *row,
                              const char *where, const json_t *value, wf_error *error)
{
    char buffer[32];
    const char *text = typed(row, value, buffer);

    if (!text) {
        char *is = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;

        wf_error_set(error, WF_EINVAL, "%s must be %s, and is %.80s", where,
                     kind_name(row->kind), is ? is : "nothing");
        free(is);
        return error->code;
    }
    return app_option_set(options, row, where, text, error);
}

static wf_status unknown_key(const char *where, const char *key, wf_error *error)
{
    const char *names[APP_OPTION_COUNT + 1];

    app_option_names(names);
    return wf_flag_unknown_key("gpt_train", where, key, names, error);
}

/* Checks the object of what was derived when the file was written. */
static wf_status check_derived(const char *path, json_t *value, wf_error *error)
{
    char where[512];

    if (!json_is_object(value))
        return wf_error_set(error, WF_EINVAL,
                            "%s: \"" APP_CONFIG_DERIVED
                            "\" must be an object, as --save-config writes it",
                            path);
    for (void *at = json_object_iter(value); at; at = json_object_iter_next(value, at)) {
        const char *key = json_object_iter_key(at);

        snprintf(where, sizeof where, "%s: \"" APP_CONFIG_DERIVED "\": \"%s\"", path, key);
        if (!app_option_find(key, strlen(key)))
            return unknown_key(where, key, error);
    }
    return WF_OK;
}

/* seen: keys of rows that were read, since dashes and underscores make two of one. */
static wf_status read_entry(app_options *options, const char *path, const char *key,
                            const json_t *value, const char *seen[APP_OPTION_COUNT],
                            wf_error *error)
{
    const app_option_row *row = app_option_find(key, strlen(key));
    char where[512];
    wf_status status = WF_OK;
    size_t i;
    const json_t *item;

    snprintf(where, sizeof where, "%s: \"%s\"", path, key);
    if (!row)
        return unknown_key(where, key, error);
    if (!app_option_in_config(row))
        return wf_error_set(error, WF_EINVAL,
                            "%s cannot stand in a config file; give %s on the command line",
                            where, app_option_flag(row).text);
    if (seen[row - app_option_rows])
        return wf_error_set(error, WF_EINVAL, "%s is there as \"%s\" too; keep one of them",
                            where, seen[row - app_option_rows]);
    seen[row - app_option_rows] = key;
    if (options->given[row - app_option_rows] || json_is_null(value))
        return WF_OK;
    app_option_clear(options, row);
    if (!json_is_array(value) || row->kind != APP_KIND_FILES)
        return app_option_set_json(options, row, where, value, error);
    json_array_foreach(value, i, item)
    {
        status = app_option_set_json(options, row, where, item, error);
        if (status != WF_OK)
            break;
    }
    return status;
}

/* Marks what the file gave only afterwards: until then `given` means the command line. */
static void mark_given(app_options *options, json_t *root)
{
    for (void *at = json_object_iter(root); at; at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        const app_option_row *row = app_option_find(key, strlen(key));
        int64_t id = row ? row - app_option_rows : 0; /* "derived" is no row */

        if (!row || json_is_null(json_object_iter_value(at)))
            continue;
        options->from_config[id] = !options->given[id];
        options->given[id] = true;
    }
}

static wf_status load(const char *path, json_t **root, wf_error *error)
{
    json_error_t problem;
    wf_status status = WF_OK;
    FILE *file;

    errno = 0;
    file = wf_input_open(path);
    *root = file ? json_loadf(file, JSON_REJECT_DUPLICATES, &problem) : NULL;
    if (!file || ferror(file))
        status =
            wf_error_set(error, WF_EIO, "cannot read --config %s: %s", path, strerror(errno));
    else if (!*root)
        status = wf_error_set(error, WF_EINVAL, "--config %s, line %d, column %d: %s", path,
                              problem.line, problem.column, problem.text);
    if (file)
        fclose(file);
    return status;
}

wf_status app_options_read_config(app_options *options, const char *path, wf_error *error)
{
    const char *seen[APP_OPTION_COUNT] = {NULL};
    json_t *root;
    wf_status status = load(path, &root, error);

    if (status != WF_OK)
        return status;
    if (!json_is_object(root))
        status = wf_error_set(
            error, WF_EINVAL,
            "--config %s must hold one JSON object, for instance {\"tp\": 2, \"dp\": 2}", path);
    for (void *at = json_object_iter(root); at && status == WF_OK;
         at = json_object_iter_next(root, at)) {
        const char *key = json_object_iter_key(at);
        json_t *value = json_object_iter_value(at);

        status = strcmp(key, APP_CONFIG_DERIVED) == 0
                     ? check_derived(path, value, error)
                     : read_entry(options, path, key, value, seen, error);
    }
    if (status == WF_OK)
        mark_given(options, root);
    json_decref(root);
    return status;
}

/* JSON is UTF-8; a file name need not be: its other bytes are shown as question marks. */
static json_t *json_text(const char *text)
{
    json_t *made = text ? json_string(text) : json_null();
    char *copy = made ? NULL : strdup(text);

    if (!copy)
        return made;
    for (char *c = copy; *c; c++)
        if (*c & 0x80)
            *c = '?';
    made = json_string(copy);
    free(copy);
    return made;
}

static json_t *json_int(const void *field)
{
    return json_integer(*(const int64_t *)field);
}

static json_t *json_number(const void *field)
{
    return json_real(*(const double *)field);
}

static json_t *json_bool(const void *field)
{
    return json_boolean(*(const bool *)field);
}

static json_t *json_word(const void *field)
{
    return json_string(field);
}

static json_t *json_words(const void *field)
{
    return json_text(*(char *const *)field);
}

static json_t *json_list(const void *field)
{
    const app_text_list *list = field;
    json_t *made = json_array();

    for (int64_t i = 0; made && i < list->count; i++) {
        if (json_array_append_new(made, json_text(list->item[i]))) {
            json_decref(made);
            made = NULL;
        }
    }
    return made;
}

json_t *app_options_json(const app_options *options)
{
    static json_t *(*const as_json[APP_KIND_COUNT])(const void *) = {
        [APP_KIND_INT] = json_int,      [APP_KIND_REAL] = json_number,
        [APP_KIND_FLOAT] = json_number, [APP_KIND_BOOL] = json_bool,
        [APP_KIND_SWITCH] = json_bool,  [APP_KIND_CHOICE] = json_word,
        [APP_KIND_LEVEL] = json_word,   [APP_KIND_TEXT] = json_words,
        [APP_KIND_FILE] = json_words,   [APP_KIND_FILES] = json_list,
        [APP_KIND_BYTES] = json_int,
    };
    json_t *root = json_object();

    for (int i = 0; root && i < APP_OPTION_COUNT; i++) {
        const app_option_row *row = &app_option_rows[i];
        const void *field = (const char *)options + row->offset;

        if (app_option_in_config(row) &&
            json_object_set_new(root, row->name, as_json[row->kind](field))) {
            json_decref(root);
            root = NULL;
        }
    }
    return root;
}
