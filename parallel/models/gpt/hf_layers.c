/* parallel/models/gpt/hf_layers.c - see the header. */
#include "parallel/models/gpt/hf_layers_internal.h"
#include <string.h>

static const char full[] = "full_attention", sliding[] = "sliding_attention";

bool wf_hf_skip_read(const json_t *array, int64_t *every)
{
    size_t count = json_array_size(array), n = 0;

    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_array_get(array, i);
        bool zero = json_is_integer(one) && json_integer_value(one) == 0;

        if (zero && !n)
            n = i + 1;
        if (!json_is_integer(one) || (!zero && json_integer_value(one) != 1) ||
            zero != (n && (i + 1) % n == 0))
            return false;
    }
    *every = (int64_t)n;
    return count > 0;
}

json_t *wf_hf_skip_write(int64_t layers, int64_t every)
{
    json_t *array = json_array();

    for (int64_t i = 1; i <= layers; i++)
        json_array_append_new(array, json_integer(!every || i % every != 0));
    return array;
}

bool wf_hf_factors_read(const json_t *array, float list[WF_ROPE_PAIRS], int64_t *count)
{
    const int64_t n = (int64_t)json_array_size(array);

    if (n < 1 || n > WF_ROPE_PAIRS || (*count && *count != n))
        return false;
    for (int64_t i = 0; i < n; i++) {
        const json_t *one = json_array_get(array, (size_t)i);

        list[i] = json_is_number(one) ? (float)json_number_value(one) : 0;
    }
    *count = n;
    return true;
}

static bool slides(const json_t *array, int64_t layer)
{
    const char *type = json_string_value(json_array_get(array, (size_t)layer));

    return type && strcmp(type, sliding) == 0;
}

static const char *wrong_words(const json_t *array, int64_t layers)
{
    if (!json_is_array(array) || (int64_t)json_array_size(array) != layers)
        return "it must have a word for each layer";
    if (layers > WF_NN_LISTED_BLOCKS)
        return "Weft knows lists of up to 512 layers";
    for (int64_t i = 0; i < layers; i++) {
        const char *type = json_string_value(json_array_get(array, (size_t)i));

        if (!type || (strcmp(type, full) != 0 && strcmp(type, sliding) != 0))
            return "Weft knows full_attention and sliding_attention";
    }
    return NULL;
}

const char *wf_hf_layer_types_read(const json_t *array, wf_nn_gpt_config *m)
{
    const char *wrong = wrong_words(array, m->layers);
    bool any = false;

    if (wrong)
        return wrong;
    m->window_blocks = (wf_nn_blocks){{0}};
    for (int64_t i = 0; i < m->layers; i++)
        if (slides(array, i)) {
            wf_nn_block_list(&m->window_blocks, i);
            any = true;
        }
    if (any && !m->window)
        return "layers slide, and nothing says over how many tokens";
    if (!any)
        m->window = 0;
    return NULL;
}

json_t *wf_hf_layer_types_write(const wf_nn_gpt_config *m)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < m->layers; i++)
        json_array_append_new(array, json_string(wf_nn_gpt_window(m, i) ? sliding : full));
    return array;
}

const char *wf_hf_sparse_step_read(const json_t *value, wf_nn_gpt_config *m)
{
    const json_int_t step = json_integer_value(value);

    if (!json_is_integer(value) || step < 1)
        return "it must be a whole number of at least 1";
    if (step > 1 && m->layers > WF_NN_LISTED_BLOCKS)
        return "Weft knows lists of up to 512 layers";
    for (int64_t i = 0; i < m->layers; i++)
        if ((i + 1) % step != 0)
            wf_nn_block_list(&m->dense_blocks, i);
    return NULL;
}

const char *wf_hf_dense_layers_read(const json_t *array, wf_nn_gpt_config *m)
{
    if (!json_is_array(array))
        return "it must be an array of numbers of layers";
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *one = json_array_get(array, i);
        const json_int_t layer = json_integer_value(one);

        if (!json_is_integer(one) || layer < 0)
            return "it must be an array of numbers of layers";
        if (layer < m->layers && layer >= WF_NN_LISTED_BLOCKS)
            return "Weft knows lists of up to 512 layers";
        wf_nn_block_list(&m->dense_blocks, layer);
    }
    return NULL;
}

json_t *wf_hf_dense_layers_write(const wf_nn_gpt_config *m)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < m->layers; i++)
        if (wf_nn_block_listed(&m->dense_blocks, i))
            json_array_append_new(array, json_integer(i));
    return array;
}
