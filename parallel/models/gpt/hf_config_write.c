/* parallel/models/gpt/hf_config_write.c - writing config.json by the rows of hf_config.def; see
   the header. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "parallel/models/gpt/hf_identity_internal.h"
#include "parallel/models/gpt/hf_layers_internal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORD = 64 };

/* A number as people write it: 1e-5f is 1e-05, not 9.99999975e-06. */
static double plain(float x)
{
    char text[32];
    double value = (double)x;

    for (int digits = 1; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)x);
        value = strtod(text, NULL);
        if ((float)value == x)
            break;
    }
    return value;
}

static const char *first_word(const char *words, int number, char word[WORD])
{
    while (number-- > 0)
        words += strcspn(words, " ") + 1;
    snprintf(word, WORD, "%.*s", (int)strcspn(words, " |"), words);
    return word;
}

static json_t *constant(const char *word)
{
    char *end;
    double number = strtod(word, &end);

    if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0)
        return json_boolean(strcmp(word, "true") == 0);
    return !*end ? json_real(number) : json_string(word);
}

static double number_of(const wf_hf_key *row, const void *field)
{
    return row->size == sizeof(float) ? plain(*(const float *)field) : *(const double *)field;
}

double wf_hf_derived(const wf_hf_key *row, double value)
{
    char text[32];

    snprintf(text, sizeof text, "%.9g", row->kind == WF_HF_ROOT ? 1 / sqrt(value) : 1 / value);
    return strtod(text, NULL);
}

/* Returns the number whose inverse, or inverse root, a field is. */
static double inverse_of(const wf_hf_key *row, double x)
{
    const double value = row->kind == WF_HF_ROOT ? 1 / (x * x) : 1 / x;
    double found = value;
    char text[32];

    for (int digits = 1; digits <= 12; digits++) { /* the shortest, as it was written */
        snprintf(text, sizeof text, "%.*g", digits, value);
        found = strtod(text, NULL);
        if (found > 0 && wf_hf_derived(row, found) == x)
            break;
    }
    return found;
}

static unsigned word_number(const wf_hf_key *row, const void *field)
{
    return row->size == sizeof(bool) ? *(const bool *)field : *(const unsigned *)field;
}

/* A list of wf_rope_factors; NULL: there is no memory. */
static json_t *factors(const float *list, int64_t count)
{
    json_t *array = json_array();

    for (int64_t i = 0; array && i < count; i++)
        json_array_append_new(array, json_real(plain(list[i])));
    return array;
}

/* Returns the value of a row for a model; NULL: none, or there is no memory. */
static json_t *value_of(const wf_hf_key *row, const wf_nn_gpt_config *m)
{
    const void *field = (const char *)m + row->offset;
    char word[WORD];

    switch (row->kind) {
    case WF_HF_INT:
    case WF_HF_COUNT:
        return json_integer(*(const int64_t *)field);
    case WF_HF_WINDOW:
        return *(const int64_t *)field ? json_integer(*(const int64_t *)field) : json_null();
    case WF_HF_SWITCH:
        return json_boolean(*(const int64_t *)field != 0);
    case WF_HF_REAL:
    case WF_HF_WRITE_ONLY:
        return json_real(number_of(row, field));
    case WF_HF_CAP:
        return number_of(row, field) > 0 ? json_real(number_of(row, field)) : json_null();
    case WF_HF_ROOT:
    case WF_HF_INVERSE:
        return json_real(inverse_of(row, number_of(row, field)));
    case WF_HF_WHOLE:
        return json_integer((json_int_t)number_of(row, field));
    case WF_HF_BOOL:
        return json_boolean(*(const bool *)field);
    case WF_HF_WORD:
        return json_string(first_word(row->words, (int)word_number(row, field), word));
    case WF_HF_SKIP:
        return wf_hf_skip_write(m->layers, *(const int64_t *)field);
    case WF_HF_FACTORS:
        return factors(field, m->rope_factors.count);
    case WF_HF_LAYER_TYPES:
        return wf_hf_layer_types_write(m);
    case WF_HF_SPARSE_STEP:
        return json_integer(1); /* the list has them all */
    case WF_HF_DENSE_LAYERS:
    case WF_HF_MIXED_LAYERS:
        return wf_hf_layers_write(m, row->kind == WF_HF_MIXED_LAYERS);
    case WF_HF_MUST:
        return constant(first_word(row->words, 0, word));
    default:
        return NULL;
    }
}

/* Returns true where all layers have the window, or none has: other keys express that. */
static bool have_one_window(const wf_nn_gpt_config *m)
{
    for (int64_t i = 0; i < m->layers; i++)
        if (wf_nn_gpt_window(m, i) != m->window)
            return false;
    return true;
}

/* Returns true for rows that are not written: those without a value, and those of an object
   with the default. */
static bool is_silent(const wf_hf_key *row, const wf_nn_gpt_config *m)
{
    const void *field = (const char *)m + row->offset;

    if (row->kind == WF_HF_MUST)
        return strncmp(row->words, "null", 4) == 0;
    if (row->kind == WF_HF_INT)
        return *(const int64_t *)field == 0;
    if (row->kind == WF_HF_EACH || row->kind == WF_HF_IGNORE)
        return true;
    if (row->kind == WF_HF_FACTORS)
        return m->rope_factors.count == 0;
    if (row->kind == WF_HF_LAYER_TYPES)
        return have_one_window(m) &&
               !wf_nn_gpt_family(wf_hf_family_at((int)row->family)->type)->window_skip;
    if (row->kind == WF_HF_SPARSE_STEP || row->kind == WF_HF_DENSE_LAYERS ||
        row->kind == WF_HF_MIXED_LAYERS)
        return false;
    if (!strchr(row->key, '.') && row->kind != WF_HF_WHOLE)
        return false;
    return row->kind == WF_HF_WORD ? word_number(row, field) == 0 : number_of(row, field) == 0;
}

static bool put(json_t *object, const char *path, json_t *value)
{
    char above[WF_HF_PATH];

    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(above, sizeof above, "%.*s", (int)(dot - path), path);
        if (!json_object_get(object, above) &&
            json_object_set_new(object, above, json_object())) {
            json_decref(value);
            return false;
        }
        object = json_object_get(object, above);
    }
    return json_object_set_new(object, path, value) == 0;
}

/* A model in the words of a family; NULL: no memory. */
static json_t *describe(const wf_hf_family *family, const wf_nn_gpt_config *model)
{
    wf_nn_gpt_config m = wf_nn_gpt_complete(model);
    json_t *object = json_pack("{s:s}", "model_type", family->type);
    const wf_hf_key *row[WF_HF_ROWS];
    const int rows = wf_hf_keys(family, row);
    bool good = object;

    if (!(m.attention_scale > 0) && m.head_dim > 0)
        m.attention_scale = 1 / sqrt((double)m.head_dim);
    if (!(m.window_rope_base > 0)) /* families that have one write it always */
        m.window_rope_base = m.rope_base;
    if (m.rope_scaling.kind == WF_ROPE_DYNAMIC) { /* one key has both */
        m.positions = (int64_t)m.rope_scaling.original_positions;
        m.rope_scaling.original_positions = 0;
    }
    for (int i = 0; good && i < rows; i++)
        if (!is_silent(row[i], &m))
            good = put(object, row[i]->key, value_of(row[i], &m));
    if (good)
        return object;
    json_decref(object);
    return NULL;
}

/* Returns true where a config.json, of a folder or made here, is that of the model. */
static bool is_of(const json_t *object, const wf_nn_gpt_config *model)
{
    wf_error error = {WF_OK, ""};
    wf_hf_config c;

    return wf_hf_config_take(&c, "config.json", object, &error) == WF_OK &&
           wf_nn_gpt_same(&c.model, model);
}

/* The family that comes nearest to a model. */
typedef struct nearest {
    const wf_hf_family *family;
    const char *lacks; /* the first property that is not its own */
    int count;
} nearest;

static wf_status read_like(const char *like, char path[WF_FILES_PATH], json_t **object,
                           wf_error *error)
{
    *object = NULL;
    if (!like)
        return WF_OK;
    snprintf(path, WF_FILES_PATH, "%.4000s/config.json", like);
    return wf_hf_config_json(object, &wf_system_files, path, error);
}

/* Keeps the family that comes nearest to a model that none has: its row, and what it has
   not. */
static void keep_nearest(const json_t *object, const wf_hf_family *family,
                         const wf_nn_gpt_config *model, nearest *n)
{
    wf_error error = {WF_OK, ""};
    const char *lacks;
    wf_hf_config c;
    int count;

    if (wf_hf_config_take(&c, "config.json", object, &error) != WF_OK)
        return;
    lacks = wf_nn_gpt_difference(&c.model, model, &count);
    if (lacks && (!n->family || count < n->count))
        *n = (nearest){family, lacks, count};
}

static wf_status refuse(const nearest *n, wf_error *error)
{
    char more[48] = "";

    if (!n->family)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "no family of transformers has all properties of this model, so "
                            "that it cannot be written as one");
    if (n->count > 1)
        snprintf(more, sizeof more, ", nor %d properties more", n->count - 1);
    return wf_error_set(
        error, WF_EUNSUPPORTED,
        "no family of transformers has all properties of this model, so that it "
        "cannot be written as one: the nearest, %s, does not have its %s%s",
        n->family->type, n->lacks, more);
}

/* Chooses the config: a folder's config.json, or, with NULL, the first of all families that
   expresses the model. */
static wf_status choose(const wf_nn_gpt_config *model, const json_t *like,
                        const wf_hf_family **family, wf_error *error)
{
    nearest n = {.family = NULL};

    *family = NULL;
    if (like && is_of(like, model))
        *family = wf_hf_family_find(json_string_value(json_object_get(like, "model_type")));
    for (int i = 0; !*family && wf_hf_family_at(i); i++) {
        json_t *object = describe(wf_hf_family_at(i), model);

        if (!object)
            return wf_error_set(error, WF_ENOMEM, "no memory for a config.json");
        if (is_of(object, model))
            *family = wf_hf_family_at(i);
        else
            keep_nearest(object, wf_hf_family_at(i), model, &n);
        json_decref(object);
    }
    return *family ? WF_OK : refuse(&n, error);
}

wf_status wf_hf_config_family(const wf_nn_gpt_config *model, const char *like,
                              const wf_hf_family **family, wf_error *error)
{
    char path[WF_FILES_PATH];
    json_t *object;
    wf_status status = read_like(like, path, &object, error);

    if (status == WF_OK)
        status = choose(model, object, family, error);
    json_decref(object);
    return status;
}

/* Makes the quantization config that transformers reads of a folder of bitsandbytes. */
static json_t *nf4_config(void)
{
    return json_pack("{s:s, s:b, s:b, s:s, s:b, s:s, s:s}", "quant_method", "bitsandbytes",
                     "load_in_4bit", 1, "load_in_8bit", 0, "bnb_4bit_quant_type", "nf4",
                     "bnb_4bit_use_double_quant", 1, "bnb_4bit_compute_dtype", "float32",
                     "bnb_4bit_quant_storage", "uint8");
}

static bool name(json_t *object, const wf_hf_family *family, wf_safetensors_dtype dtype)
{
    const char *type = dtype == WF_ST_F32 || dtype == WF_ST_U8 ? "float32"
                       : dtype == WF_ST_BF16                   ? "bfloat16"
                                                               : "float16";

    json_object_del(object, "dtype");               /* its name in newer versions */
    json_object_del(object, "quantization_config"); /* the source had it */
    if (dtype == WF_ST_U8 && json_object_set_new(object, "quantization_config", nf4_config()))
        return false;
    return json_object_set_new(object, "torch_dtype", json_string(type)) == 0 &&
           json_object_set_new(object, "architectures", json_pack("[s]", family->class)) == 0;
}

/* Clears ids: no token begins, ends or pads a text by default; families have ids that they take
   for granted. */
static void no_ids(json_t *object)
{
    static const char *const ids[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

    for (size_t i = 0; object && i < sizeof ids / sizeof *ids; i++)
        if (!json_object_get(object, ids[i]))
            json_object_set_new(object, ids[i], json_null());
}

wf_status wf_hf_config_format(const wf_nn_gpt_config *model, wf_safetensors_dtype dtype,
                              const char *like, char **text, wf_error *error)
{
    char path[WF_FILES_PATH];
    const wf_hf_family *family;
    json_t *from, *object = NULL;

    *text = NULL;
    if (read_like(like, path, &from, error) == WF_OK &&
        choose(model, from, &family, error) == WF_OK) {
        object = from && is_of(from, model) ? json_copy(from) : describe(family, model);
        no_ids(object);
        if (object && wf_hf_identity_ids(from, path, object, error) == WF_OK &&
            name(object, family, dtype))
            *text = json_dumps(object, JSON_INDENT(2));
    }
    json_decref(object);
    json_decref(from);
    return *text || error->code != WF_OK
               ? error->code
               : wf_error_set(error, WF_ENOMEM, "no memory for a config.json");
}
