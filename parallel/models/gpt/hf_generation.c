/* parallel/models/gpt/hf_generation.c - which tokens end a text, as a folder says it; see the
   header. */
#include "parallel/models/gpt/hf_generation_internal.h"
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_identity_internal.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { GENERATION_BYTES = 1 << 20, GENERATION_DEPTH = 16, UNKNOWN = 512 };

typedef struct key_row {
    const char *key;
    bool quiet; /* whatever it says; else only the number below does nothing */
    double neutral;
} key_row;

static const key_row rows[] = {
#define IDS(key)             {key, true, 0},
#define FLAG(key)            {key, true, 0},
#define NEUTRAL(key, number) {key, false, number},
#define IGNORE(key, reason)  {key, true, 0},
#include "parallel/models/gpt/hf_generation.def"
#undef IDS
#undef FLAG
#undef NEUTRAL
#undef IGNORE
};

/* Returns true for a value without effect: null, false, 0, or such values in a list or an
   object. */
static bool is_off(const json_t *value)
{
    return json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_known(const char *key, const json_t *value)
{
    if (json_is_null(value))
        return true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].key, key) == 0)
            return rows[i].quiet || (rows[i].neutral == 0 && is_off(value)) ||
                   (json_is_number(value) && json_number_value(value) == rows[i].neutral);
    return false;
}

static wf_status check_unknown(const json_t *object, const char *name, wf_error *error)
{
    char list[UNKNOWN] = "";
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        size_t used = strlen(list);

        if (!is_known(key, value))
            snprintf(list + used, sizeof list - used, "%s%.80s", used ? ", " : "",
                     wf_json_printable(key) ? key : "a key that cannot be printed");
    }
    if (!*list)
        return WF_OK;
    return wf_error_set(error, WF_EUNSUPPORTED,
                        "%s: Weft does not do what these keys ask for, or does not know them: "
                        "%s; remove them from the file to generate without",
                        name, list);
}

/* Adds an id; one beyond all vocabularies as the largest number, so that it is seen. */
static void add(wf_par_pretrained_ends *ends, const json_t *id)
{
    int64_t given = json_integer_value(id), value = given > INT32_MAX ? INT32_MAX : given;

    if (!json_is_integer(id))
        return;
    for (int64_t i = 0; i < ends->count; i++)
        if (ends->id[i] == value)
            return;
    if (ends->count < WF_PAR_PRETRAINED_ENDS)
        ends->id[ends->count++] = (int32_t)value;
}

/* Adds checked ids: one, a list or none. */
static void take_ends(wf_par_pretrained_ends *ends, const json_t *object)
{
    const json_t *value = json_object_get(object, "eos_token_id"), *one;
    size_t i;

    add(ends, value);
    json_array_foreach(value, i, one) add(ends, one);
}

wf_status wf_hf_generation_parse(wf_par_pretrained_ends *ends, const char *name,
                                 const char *text, size_t bytes, wf_error *error)
{
    json_t *object;
    wf_status status = wf_json_parse(&object, name, text, bytes, GENERATION_DEPTH, error);

    if (status == WF_OK)
        status = wf_hf_identity_check(object, name, error);
    if (status == WF_OK)
        status = check_unknown(object, name, error);
    if (status == WF_OK)
        take_ends(ends, object);
    json_decref(object);
    return status;
}

/* Not every folder has one. */
static wf_status read_generation(wf_par_pretrained_ends *ends, const char *folder,
                                 wf_error *error)
{
    char path[WF_FILES_PATH], *text = NULL;
    struct stat s;
    size_t bytes;

    snprintf(path, sizeof path, "%.4000s/generation_config.json", folder);
    if (lstat(path, &s) != 0 && errno == ENOENT)
        return WF_OK;
    if (wf_files_read(&wf_system_files, path, GENERATION_BYTES, &text, &bytes, error) == WF_OK)
        wf_hf_generation_parse(ends, path, text, bytes, error);
    free(text);
    return error->code;
}

wf_status wf_par_pretrained_ends_read(const char *folder, wf_par_pretrained_ends *ends,
                                      wf_error *error)
{
    char path[WF_FILES_PATH];
    json_t *config = NULL;

    *ends = (wf_par_pretrained_ends){.count = 0};
    snprintf(path, sizeof path, "%.4000s/config.json", folder);
    if (read_generation(ends, folder, error) == WF_OK &&
        wf_hf_config_json(&config, &wf_system_files, path, error) == WF_OK &&
        wf_hf_identity_check(config, path, error) == WF_OK)
        take_ends(ends, config);
    json_decref(config);
    return error->code;
}
