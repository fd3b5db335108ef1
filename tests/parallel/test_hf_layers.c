/* tests/parallel/test_hf_layers.c - arrays of config.json that say something of each layer: of
   every family those that are too short or too long, or of something else, are refused by
   their key. */
#include "parallel/models/gpt/hf_config_internal.h"
#include "tests/parallel/hostile.h"

enum { LAYERS = 4 };

/* An array for a row: `count` of what it may have, the last one replaced by `last`. */
static json_t *array_of(const wf_hf_key *row, int count, json_t *last)
{
    const bool words = row->kind == WF_HF_EACH || row->kind == WF_HF_LAYER_TYPES;
    json_t *array = json_array();

    for (int i = 0; i < count; i++)
        json_array_append_new(array, words ? json_string("full_attention") : json_integer(1));
    if (last)
        json_array_set_new(array, (size_t)count - 1, last);
    return array;
}

static bool is_list(const wf_hf_key *row)
{
    return row->kind == WF_HF_EACH || row->kind == WF_HF_SKIP ||
           row->kind == WF_HF_LAYER_TYPES || row->kind == WF_HF_DENSE_LAYERS ||
           row->kind == WF_HF_MIXED_LAYERS;
}

/* A config of the family with what every model has to say. */
static json_t *config_of(const char *family)
{
    return json_pack("{s:s, s:i, s:i, s:i, s:i, s:i, s:i}", "model_type", family,
                     "num_hidden_layers", LAYERS, "num_attention_heads", 8, "hidden_size", 64,
                     "intermediate_size", 16, "max_position_embeddings", 64, "vocab_size", 9);
}

/* Reads a config with this value of the row's key, which it takes. */
static wf_status parse(const char *family, const wf_hf_key *row, json_t *value, wf_error *error)
{
    json_t *config = config_of(family);
    wf_hf_config c;
    wf_status status;

    if (row)
        json_object_set_new(config, row->key, value);
    *error = (wf_error){WF_OK, ""};
    status = wf_hf_config_take(&c, "config.json", config, error);
    json_decref(config);
    return status;
}

static void wrong(const char *family, const wf_hf_key *row, const char *how, json_t *value)
{
    wf_error error;
    const wf_status status = parse(family, row, value, &error);
    const bool good = status != WF_OK && strstr(error.text, row->key);

    CU_ASSERT(good);
    if (!good)
        printf("\n    %s of %s, %s: status %d, \"%s\"\n", row->key, family, how, (int)status,
               error.text);
}

static void check(const char *family, const wf_hf_key *row)
{
    const bool numbers = row->kind == WF_HF_DENSE_LAYERS || row->kind == WF_HF_MIXED_LAYERS;
    wf_error error;

    CU_ASSERT_EQUAL(parse(family, row, array_of(row, LAYERS, NULL), &error), WF_OK);
    CU_ASSERT_EQUAL(parse(family, row, json_null(), &error), WF_OK);
    if (!numbers) { /* those name layers, and do not have one for each */
        wrong(family, row, "too short", array_of(row, LAYERS - 1, NULL));
        wrong(family, row, "too long", array_of(row, LAYERS + 1, NULL));
        wrong(family, row, "of another thing", array_of(row, LAYERS, json_integer(7)));
        if (strcmp(family, "llama4_text") != 0 || row->kind != WF_HF_SKIP)
            wrong(family, row, "empty", json_array());
    } else {
        wrong(family, row, "of a layer that is none",
              array_of(row, LAYERS, json_integer(LAYERS)));
        wrong(family, row, "below 0", array_of(row, LAYERS, json_integer(-1)));
        wrong(family, row, "of a fraction", array_of(row, LAYERS, json_real(1.5)));
    }
    wrong(family, row, "of a word", array_of(row, LAYERS, json_string("none")));
    wrong(family, row, "of null", array_of(row, LAYERS, json_null()));
    wrong(family, row, "a number", json_integer(LAYERS));
    wrong(family, row, "a word", json_string("full_attention"));
    wrong(family, row, "an object", json_pack("{s:i}", "0", 1));
}

static void lists_of_every_family(void)
{
    int lists = 0;

    for (int i = 0; wf_hf_family_at(i); i++) {
        const wf_hf_family *f = wf_hf_family_at(i);
        const wf_hf_key *row[WF_HF_ROWS];
        const int rows = wf_hf_keys(f, row);
        wf_error error;

        if (parse(f->type, NULL, NULL, &error) != WF_OK) {
            CU_ASSERT(strcmp(f->type, "gpt2") ==
                      0); /* its names are others, and it has no list */
            continue;
        }
        for (int k = 0; k < rows; k++)
            if (is_list(row[k])) {
                check(f->type, row[k]);
                lists++;
            }
    }
    CU_ASSERT(lists > 20);
}

static const wf_test tests[] = {{"lists of every family", lists_of_every_family}, {NULL, NULL}};

int main(void)
{
    return wf_test_main("hf_layers", tests);
}
