/*
 * parallel/models/gpt/lora_config.c - adapter_config.json, read: what adapters there are, and
 * that they compute what Weft's do. A key that is not in the table has to be off, or is refused
 * by its name.
 */
#include "parallel/formats/json_internal.h"
#include "parallel/models/gpt/lora_names_internal.h"
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20, DEPTH = 8 };

/* A key of PEFT, and why its value changes nothing; NULL: the value is read below. */
typedef struct harmless {
    const char *key, *reason;
} harmless;

static const harmless known[] = {
    {"peft_type", NULL},
    {"bias", NULL},
    {"r", NULL},
    {"lora_alpha", NULL},
    {"lora_dropout", NULL},
    {"use_rslora", NULL},
    {"target_modules", NULL},
    {"target_parameters", NULL},
    {"modules_to_save", NULL},
    {"ensure_weight_tying", NULL},
    {"init_lora_weights", NULL},
    {"task_type", "which class PEFT wraps around the model"},
    {"auto_mapping", "which class PEFT wraps around the model"},
    {"base_model_name_or_path", "where the base was; the user names it"},
    {"revision", "where the base was; the user names it"},
    {"inference_mode", "whether PEFT trains the adapters"},
    {"peft_version", "who wrote the file"},
    {"fan_in_fan_out", "how the base stores linears, which its config says"},
    {"layers_pattern", "of layers_to_transform alone, which is refused"},
    {"megatron_core", "of megatron_config alone, which is refused"},
    {"qalora_group_size", "of use_qalora alone, which is refused"},
    {"loftq_config", "how adapters began, as init_lora_weights says"},
    {"eva_config", "how adapters began, as init_lora_weights says"},
    {"corda_config", "how adapters began, as init_lora_weights says"},
    {"lora_ga_config", "how adapters began, as init_lora_weights says"},
    {"runtime_config", "where PEFT computes"},
};

/* Initialisations of adapters that leave the base as it is. */
static const char *const beginnings[] = {"gaussian", "orthogonal", "eva"};

/* Returns true where a value switches nothing on. 0 does: it may be the number of a layer. */
static bool is_off(const json_t *value)
{
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0);
}

static bool is_known(const char *key)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].key, key) == 0)
            return true;
    return false;
}

/* Refuses a key that is neither read, nor known, nor off: it may make of adapters what Weft
   does not compute. */
static wf_status check_keys(const wf_json_source *from)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)(uintptr_t)from->object, key, value)
    {
        if (!is_known(key) && !is_off(value))
            return wf_error_set(from->error, WF_EUNSUPPORTED,
                                "%s: \"%.80s\" makes of adapters something that Weft does not "
                                "compute, or does not know",
                                from->name, wf_json_printable(key) ? key : "?");
    }
    return WF_OK;
}

/* Refuses beginnings in which PEFT changes the base when it loads the adapters (PiSSA, OLoRA,
   CorDA, LoftQ, LoRA-GA). */
static wf_status check_beginning(const wf_json_source *from)
{
    const json_t *value = json_object_get(from->object, "init_lora_weights");
    const char *text = json_string_value(value);

    if (!value || json_is_null(value) || json_is_boolean(value))
        return WF_OK;
    for (size_t i = 0; text && i < sizeof beginnings / sizeof *beginnings; i++)
        if (strcmp(text, beginnings[i]) == 0)
            return WF_OK;
    return wf_error_set(
        from->error, WF_EUNSUPPORTED,
        "%s: \"init_lora_weights\" is %.40s, for which PEFT takes a part of the "
        "base away when it loads the adapters: save them as plain LoRA, by "
        "save_pretrained(.., path_initial_model_for_weight_conversion=..)",
        from->name, text && wf_json_printable(text) ? text : "no text");
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
    return check_keys(from) == WF_OK ? check_beginning(from) : from->error->code;
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

/* Adds experts to the targets, where both of their parameters are some; others are refused. */
static wf_status take_parameters(const wf_json_source *from, wf_par_lora *lora)
{
    static const char *const parts[] = {"experts.gate_up_proj", "experts.down_proj"};
    char names[WF_PAR_LORA_NAMES], name[WF_HF_NAME];
    const char *list = names;
    bool has[2] = {false, false};

    if (take_names(from, "target_parameters", names) != WF_OK || !*names)
        return from->error->code;
    while (wf_peft_next(&list, name, sizeof name)) {
        size_t n = strlen(name);
        int i = 0;

        while (i < 2 && (n < strlen(parts[i]) || strcmp(name + n - strlen(parts[i]), parts[i])))
            i++;
        if (i == 2)
            return wf_error_set(from->error, WF_EUNSUPPORTED,
                                "%s: \"target_parameters\" has %s, and adapters are read of %s "
                                "and %s",
                                from->name, name, parts[0], parts[1]);
        has[i] = true;
    }
    if (!has[0] || !has[1])
        return wf_error_set(from->error, WF_EUNSUPPORTED,
                            "%s: \"target_parameters\" has %s alone, and experts are adapted "
                            "with both of %s and %s",
                            from->name, parts[has[1]], parts[0], parts[1]);
    if (!wf_peft_add(lora->targets, sizeof lora->targets, WF_NN_EXPERTS))
        return wf_error_set(from->error, WF_EDATA, "%s: too many names of targets", from->name);
    return WF_OK;
}

/* Returns true where a list of modules has the embedding or the head of some family. */
static bool has_ends(const char *names)
{
    static const char *const ends[] = {"embed.table", "head.weight"};
    char name[WF_HF_NAME], module[WF_HF_NAME];

    while (wf_peft_next(&names, name, sizeof name))
        for (int i = 0; wf_hf_family_at(i); i++)
            for (int k = 0; k < 2; k++)
                if (wf_hf_name_of(wf_hf_family_at(i), ends[k], module)) {
                    size_t n = strlen(name), m;

                    *strrchr(module, '.') = 0;
                    m = strlen(module);
                    if (n <= m && strcmp(module + m - n, name) == 0)
                        return true;
                }
    return false;
}

static wf_status take(const wf_json_source *from, wf_par_lora *lora)
{
    static const double nothing = 0, standard = 8;
    static const bool no = false;
    bool tying = false;

    if (check(from) != WF_OK)
        return from->error->code;
    wf_json_int(from, "r", 1, 65536, NULL, &lora->rank);
    wf_json_real(from, "lora_alpha", 1e-9, 1e9, &standard, &lora->alpha);
    wf_json_real(from, "lora_dropout", 0, 0.999, &nothing, &lora->dropout);
    wf_json_bool(from, "use_rslora", &no, &lora->rank_stabilized);
    wf_json_bool(from, "ensure_weight_tying", &no, &tying);
    if (from->error->code == WF_OK &&
        take_names(from, "target_modules", lora->targets) == WF_OK &&
        take_parameters(from, lora) == WF_OK)
        take_names(from, "modules_to_save", lora->modules_to_save);
    if (from->error->code == WF_OK && !*lora->targets)
        wf_error_set(from->error, WF_EDATA, "%s: \"target_modules\" names no module",
                     from->name);
    lora->untied = !tying && has_ends(lora->modules_to_save);
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
