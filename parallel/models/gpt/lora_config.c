/*
 * parallel/models/gpt/lora_config.c - adapter_config.json, read: what adapters there are, and that they compute what
 * Weft's do. Keys that change the computation have to be as PEFT has them where nobody says anything.
 */
#include "parallel/formats/json_internal.h"
#include "parallel/models/gpt/lora_names_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, DEPTH = 8 };

/* Keys that must be absent, null, false, 0 or empty. */
static const char *const must_be_off[] = {
    "use_dora",     "lora_bias",     "layers_to_transform",     "layer_replication",
    "rank_pattern", "alpha_pattern", "exclude_modules",         "target_parameters",
    "use_qalora",   "use_bdlora",    "trainable_token_indices", "alora_invocation_tokens",
    "arrow_config", "kasa_config",   "monteclora_config",       "velora_config"};

static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_number(value) && json_number_value(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static wf_status check(const wf_json_source *from)
{
    const char *type, *bias;

    if (wf_json_text(from, "peft_type", 32, NULL, &type) != WF_OK ||
        wf_json_text(from, "bias", 32, "none", &bias) != WF_OK)
        return from->error->code;
    if (strcmp(type, "LORA") != 0)
        return wf_error_set(from->error, WF_EUNSUPPORTED,
                            "%s: \"peft_type\" is %s, and adapters are read that are LORA",
                            from->name, type);
    if (strcmp(bias, "none") != 0)
        return wf_error_set(
            from->error, WF_EUNSUPPORTED,
            "%s: \"bias\" is %s: adapters are read whose biases are not trained", from->name,
            bias);
    for (size_t i = 0; i < sizeof must_be_off / sizeof *must_be_off; i++)
        if (!is_off(json_object_get(from->object, must_be_off[i])))
            return wf_error_set(from->error, WF_EUNSUPPORTED,
                                "%s: \"%s\" makes of adapters something that Weft does not "
                                "compute",
                                from->name, must_be_off[i]);
    return WF_OK;
}

/* A list of names, a name, or null; of names that commas may stand between. */
static wf_status take_names(const wf_json_source *from, const char *key, char *names)
{
    const json_t *value = json_object_get(from->object, key), *item;
    bool good = !value || json_is_null(value) || json_is_string(value) || json_is_array(value);
    size_t i;

    *names = 0;
    if (json_is_string(value)) {
        good = strcmp(json_string_value(value), WF_NN_ALL_LINEAR) == 0;
        if (!good)
            return wf_error_set(from->error, WF_EUNSUPPORTED,
                                "%s: \"%s\" is a pattern: a list of names is read, or %s",
                                from->name, key, WF_NN_ALL_LINEAR);
        wf_peft_add(names, WF_PAR_LORA_NAMES, json_string_value(value));
    }
    json_array_foreach((json_t *)(uintptr_t)value, i, item)
    {
        const char *name = json_string_value(item);

        good = good && name && *name && !strchr(name, ',') && wf_json_printable(name) &&
               wf_peft_add(names, WF_PAR_LORA_NAMES, name);
    }
    return good ? WF_OK
                : wf_error_set(from->error, WF_EDATA, "%s: \"%s\" is no list of names",
                               from->name, key);
}

static wf_status take(const wf_json_source *from, wf_par_lora *lora)
{
    static const double nothing = 0, standard = 8;
    static const bool no = false;

    if (check(from) != WF_OK)
        return from->error->code;
    wf_json_int(from, "r", 1, 65536, NULL, &lora->rank);
    wf_json_real(from, "lora_alpha", 1e-9, 1e9, &standard, &lora->alpha);
    wf_json_real(from, "lora_dropout", 0, 0.999, &nothing, &lora->dropout);
    wf_json_bool(from, "use_rslora", &no, &lora->rank_stabilized);
    if (from->error->code == WF_OK &&
        take_names(from, "target_modules", lora->targets) == WF_OK)
        take_names(from, "modules_to_save", lora->modules_to_save);
    if (from->error->code == WF_OK && !*lora->targets)
        wf_error_set(from->error, WF_EDATA, "%s: \"target_modules\" names no module",
                     from->name);
    return from->error->code;
}

wf_status wf_peft_config_parse(wf_par_lora *lora, const char *name, const char *text,
                               size_t bytes, wf_error *error)
{
    json_t *object = NULL;

    *lora = (wf_par_lora){.rank = 0};
    if (wf_json_parse(&object, name, text, bytes, DEPTH, error) == WF_OK)
        take(&(wf_json_source){name, object, error}, lora);
    json_decref(object);
    return error->code;
}

wf_status wf_par_lora_config(const char *folder, wf_par_lora *lora, wf_error *error)
{
    char path[PATH_MAX], *text = NULL;
    size_t bytes;

    *lora = (wf_par_lora){.rank = 0};
    if (snprintf(path, sizeof path, "%s/adapter_config.json", folder) >= (int)sizeof path)
        return wf_error_set(error, WF_EIO, "the name of folder %.100s.. is too long", folder);
    if (wf_files_read(&wf_system_files, path, MOST_BYTES, &text, &bytes, error) == WF_OK)
        wf_peft_config_parse(lora, path, text, bytes, error);
    free(text);
    return error->code;
}
