/* parallel/models/gpt/hf_config.c - reading config.json by the rows of hf_config.def; see the
   header. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_layers_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES = 1 << 20, CONFIG_DEPTH = 16, WORD = 64 };

/* The value of a row: where it stands, and under which name; NULL: nowhere. */
typedef struct location {
    wf_json_source at;
    char path[WF_HF_PATH]; /* its key after a dot, or all of it */
    const char *key;
    const json_t *value;
} location;

static bool is_null(const json_t *value)
{
    return !value || json_is_null(value);
}

/* The value at a path, "a.b" in an object of the source; missing or null: its value is NULL. */
static wf_status look(const wf_json_source *s, const char *path, location *p)
{
    char *key, *dot;

    *p = (location){.at = *s};
    snprintf(p->path, sizeof p->path, "%s", path);
    for (key = p->path; (dot = strchr(key, '.')); key = dot + 1) {
        *dot = 0;
        p->at.object = json_object_get(p->at.object, key);
        p->key = dot + 1;
        if (is_null(p->at.object))
            return WF_OK;
        if (!json_is_object(p->at.object))
            return wf_error_set(s->error, WF_EDATA, "%s: \"%s\" is no object", s->name, key);
    }
    p->key = key;
    p->value = json_object_get(p->at.object, p->key);
    if (is_null(p->value))
        p->value = NULL;
    return WF_OK;
}

static bool are_equal(const json_t *a, const json_t *b)
{
    return json_is_number(a) && json_is_number(b) ? json_number_value(a) == json_number_value(b)
                                                  : json_equal(a, b);
}

/* Under the row's key or under one that other versions have; two that differ are an error. */
static wf_status find(const wf_json_source *s, const wf_hf_key *row, location *found)
{
    const char *cursor = NULL;
    char path[WF_HF_PATH], first[WF_HF_PATH] = "";
    wf_status status = WF_OK;

    *found = (location){.at = *s, .key = row->key};
    while (status == WF_OK && wf_hf_key_path(row, &cursor, path)) {
        location p;

        status = look(s, path, &p);
        if (status != WF_OK || !p.value)
            continue;
        if (found->value && !are_equal(found->value, p.value))
            return wf_error_set(s->error, WF_EDATA,
                                "%s: \"%s\" and \"%s\" say different things", s->name, first,
                                path);
        if (!found->value) {
            *found = p;
            found->key = found->path + (p.key - p.path);
            snprintf(first, sizeof first, "%s", path);
        }
    }
    return status;
}

static wf_status take_int(const location *p, const wf_hf_key *row, void *field)
{
    int64_t standard = row->standard ? atoll(row->standard) : 0, value = 0;
    wf_status status = wf_json_int(&p->at, p->key, (int64_t)row->least, (int64_t)row->most,
                                   row->standard ? &standard : NULL, &value);

    *(int64_t *)field = value;
    return status;
}

/* Returns true where a key is there and null; a missing one has its default. */
static bool is_off(const location *p)
{
    return p->at.object && json_is_null(json_object_get(p->at.object, p->key));
}

/* false takes away what another key gave. */
static wf_status take_switch(const location *p, const wf_hf_key *row, void *field)
{
    const bool standard = strcmp(row->standard, "true") == 0;
    bool on = standard;
    wf_status status = WF_OK;

    if (json_is_integer(p->value)) /* as Llama 4's have it */
        on = json_integer_value(p->value) != 0;
    else
        status = wf_json_bool(&p->at, p->key, &standard, &on);

    if (!on)
        *(int64_t *)field = 0;
    return status;
}

/* Reads a row without a field, which sets properties of the model. */
static wf_status take_layers(const location *p, const wf_hf_key *row, void *model)
{
    const char *(*const read)(const json_t *, wf_nn_gpt_config *) =
        row->kind == WF_HF_LAYER_TYPES    ? wf_hf_layer_types_read
        : row->kind == WF_HF_SPARSE_STEP  ? wf_hf_sparse_step_read
        : row->kind == WF_HF_MIXED_LAYERS ? wf_hf_mixed_layers_read
                                          : wf_hf_dense_layers_read;
    const char *wrong = p->value ? read(p->value, model) : NULL;

    return wrong ? wf_error_set(p->at.error, WF_EUNSUPPORTED, "%s: \"%s\": %s", p->at.name,
                                p->key, wrong)
                 : WF_OK;
}

static wf_status take_real(const location *p, const wf_hf_key *row, void *field)
{
    double standard = row->standard ? strtod(row->standard, NULL) : 0, value = 0;
    wf_status status = wf_json_real(&p->at, p->key, row->least, row->most,
                                    row->standard ? &standard : NULL, &value);

    if (status == WF_OK && row->kind == WF_HF_WHOLE && value != (double)(int64_t)value)
        return wf_error_set(p->at.error, WF_EDATA, "%s: \"%s\" is %g, and no whole number",
                            p->at.name, p->key, value);
    if (row->kind == WF_HF_ROOT || row->kind == WF_HF_INVERSE)
        value = wf_hf_derived(row, value);
    if (row->size == sizeof(float))
        *(float *)field = (float)value;
    else
        *(double *)field = value;
    return status;
}

static wf_status take_or_none(const location *p, const wf_hf_key *row, void *field)
{
    if (!is_off(p))
        return row->kind == WF_HF_WINDOW ? take_int(p, row, field) : take_real(p, row, field);
    memset(field, 0, row->size);
    return WF_OK;
}

static wf_status take_bool(const location *p, const wf_hf_key *row, void *field)
{
    const bool standard = strcmp(row->standard, "true") == 0;

    return wf_json_bool(&p->at, p->key, &standard, field);
}

/* The number of a word in a list that spaces divide, and bars where several have one number;
   -1: it is not there. */
static int number_of(const char *words, const char *word)
{
    size_t length = strlen(word);

    for (int i = 0; *words;) {
        size_t n = strcspn(words, " |");

        if (n == length && memcmp(words, word, n) == 0 && strcmp(word, "-") != 0)
            return i;
        words += n;
        i += *words == ' ';
        words += *words != 0;
    }
    return -1;
}

static wf_status take_word(const location *p, const wf_hf_key *row, void *field)
{
    const char *word;
    wf_status status = wf_json_text(&p->at, p->key, WORD, row->standard, &word);
    int number = status == WF_OK ? number_of(row->words, word) : 0;

    if (number < 0)
        return wf_error_set(p->at.error, WF_EUNSUPPORTED,
                            "%s: \"%s\" is %s, and Weft computes one of: %s", p->at.name,
                            p->key, word, row->words);
    if (row->size == sizeof(bool))
        *(bool *)field = number != 0;
    else
        *(unsigned *)field = (unsigned)number; /* an enum */
    return status;
}

static wf_status take_factors(const location *p, const wf_hf_key *row, void *field)
{
    wf_rope_factors *f = &((wf_nn_gpt_config *)((char *)field - row->offset))->rope_factors;

    if (!p->value || wf_hf_factors_read(p->value, field, &f->count))
        return WF_OK;
    return wf_error_set(p->at.error, WF_EDATA,
                        "%s: \"%s\" is no array of 1 to %d numbers, as many as that of the "
                        "other texts has",
                        p->at.name, p->key, WF_ROPE_PAIRS);
}

static wf_status take_skip(const location *p, const wf_hf_key *row, void *field)
{
    const wf_nn_gpt_config *m = (const wf_nn_gpt_config *)((char *)field - row->offset);
    bool by_interval = json_is_array(p->value) && json_array_size(p->value) == 0 &&
                       row->family == WF_HF_FAMILY_llama4_text;

    if (!p->value || by_interval || wf_hf_skip_read(p->value, m->layers, field))
        return WF_OK;
    return wf_error_set(p->at.error, WF_EUNSUPPORTED,
                        "%s: \"%s\" is no array of ones with a zero at every n-th index, of as "
                        "many numbers as there are layers, %lld",
                        p->at.name, p->key, (long long)m->layers);
}

static void print_value(const json_t *value, char text[WORD])
{
    if (json_is_string(value) && wf_json_printable(json_string_value(value)))
        snprintf(text, WORD, "%s", json_string_value(value));
    else if (json_is_boolean(value))
        snprintf(text, WORD, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_number(value))
        snprintf(text, WORD, "%.9g", json_number_value(value));
    else if (json_is_object(value) && json_object_size(value) == 0)
        snprintf(text, WORD, "{}");
    else
        snprintf(text, WORD, "%s", json_is_string(value) ? "a text" : "given");
}

static bool says(const json_t *value, const char *words)
{
    char text[WORD];

    print_value(value, text);
    return number_of(words, text) >= 0;
}

static wf_status must(const location *p, const wf_hf_key *row, const wf_hf_config *c)
{
    const char *type = c->family->type;
    const json_t *wrong = p->value, *one = NULL;
    char text[WORD];

    if (!p->value || (row->kind == WF_HF_MUST && says(p->value, row->words)))
        return WF_OK;
    if (row->kind == WF_HF_EACH && json_is_array(p->value)) {
        size_t i = 0, n = json_array_size(p->value);

        while (i < n && says(one = json_array_get(p->value, i), row->words))
            i++;
        if (i == n && (int64_t)n == c->model.layers)
            return WF_OK;
        if (i == n)
            return wf_error_set(p->at.error, WF_EUNSUPPORTED,
                                "%s: \"%s\" has %zu elements, and there are %lld layers",
                                p->at.name, p->key, n, (long long)c->model.layers);
        wrong = one;
    }
    print_value(wrong, text);
    if (strcmp(row->words, "null") == 0)
        return wf_error_set(p->at.error, WF_EUNSUPPORTED,
                            "%s: \"%s\" is %s, and Weft computes a %s without it", p->at.name,
                            p->key, text, type);
    return wf_error_set(p->at.error, WF_EUNSUPPORTED,
                        "%s: \"%s\" is %s, and Weft computes a %s where it is one of: %s",
                        p->at.name, p->key, text, type, row->words);
}

static wf_status take(const wf_json_source *s, const wf_hf_key *row, wf_hf_config *c)
{
    static wf_status (*const takes[])(const location *, const wf_hf_key *,
                                      void *) = {[WF_HF_INT] = take_int,
                                                 [WF_HF_COUNT] = take_int,
                                                 [WF_HF_WINDOW] = take_or_none,
                                                 [WF_HF_SWITCH] = take_switch,
                                                 [WF_HF_REAL] = take_real,
                                                 [WF_HF_WHOLE] = take_real,
                                                 [WF_HF_CAP] = take_or_none,
                                                 [WF_HF_ROOT] = take_real,
                                                 [WF_HF_INVERSE] = take_real,
                                                 [WF_HF_BOOL] = take_bool,
                                                 [WF_HF_WORD] = take_word,
                                                 [WF_HF_SKIP] = take_skip,
                                                 [WF_HF_LAYER_TYPES] = take_layers,
                                                 [WF_HF_FACTORS] = take_factors,
                                                 [WF_HF_SPARSE_STEP] = take_layers,
                                                 [WF_HF_MIXED_LAYERS] = take_layers,
                                                 [WF_HF_DENSE_LAYERS] = take_layers};
    location p;
    wf_status status;

    if (row->kind == WF_HF_IGNORE || row->kind == WF_HF_WRITE_ONLY)
        return WF_OK;
    status = find(s, row, &p);
    if (status != WF_OK)
        return status;
    if (row->kind == WF_HF_MUST || row->kind == WF_HF_EACH)
        return must(&p, row, c);
    return takes[row->kind](&p, row, (char *)&c->model + row->offset);
}

wf_status wf_hf_config_take(wf_hf_config *c, const char *name, const json_t *object,
                            wf_error *error)
{
    const wf_json_source s = {.name = name, .object = object, .error = error};
    const wf_hf_key *row[WF_HF_ROWS];
    const char *type = "";
    char known[512];
    int rows;
    wf_status status = wf_json_text(&s, "model_type", WORD, NULL, &type);

    memset(c, 0, sizeof *c);
    if (status != WF_OK)
        return status;
    c->family = wf_hf_family_find(type);
    wf_hf_family_list(known, sizeof known);
    if (!c->family)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s: \"model_type\" is %s, and Weft reads %s", name, type, known);
    c->model = *wf_nn_gpt_family(type);
    rows = wf_hf_keys(c->family, row);
    for (int i = 0; status == WF_OK && i < rows; i++)
        status = take(&s, row[i], c);
    if (status == WF_OK)
        status = wf_hf_check_unknown(&s, c->family);
    return status == WF_OK ? wf_hf_config_finish(&s, &c->model) : status;
}

wf_status wf_hf_config_parse(wf_hf_config *config, const char *name, const char *text,
                             size_t bytes, wf_error *error)
{
    json_t *object;
    wf_status status = wf_json_parse(&object, name, text, bytes, CONFIG_DEPTH, error);

    memset(config, 0, sizeof *config);
    if (status != WF_OK)
        return status;
    status = wf_hf_config_take(config, name, object, error);
    json_decref(object);
    return status;
}

wf_status wf_hf_config_json(json_t **object, const wf_file_calls *calls, const char *path,
                            wf_error *error)
{
    char *text;
    size_t bytes;
    wf_status status = wf_files_read(calls, path, CONFIG_BYTES, &text, &bytes, error);

    *object = NULL;
    if (status == WF_OK)
        status = wf_json_parse(object, path, text, bytes, CONFIG_DEPTH, error);
    free(text);
    return status;
}

wf_status wf_hf_config_read(wf_hf_config *config, const wf_file_calls *calls, const char *path,
                            wf_error *error)
{
    json_t *object;
    wf_status status = wf_hf_config_json(&object, calls, path, error);

    memset(config, 0, sizeof *config);
    if (status == WF_OK)
        status = wf_hf_config_take(config, path, object, error);
    json_decref(object);
    return status;
}
