/* parallel/models/gpt/hf_layers.c - see the header. */
#include "parallel/models/gpt/hf_layers_internal.h"
#include <string.h>

static const char full[] = "full_attention", sliding[] = "sliding_attention";
static const char chunked[] = "chunked_attention";

/* Returns the word of a layer with a window. */
static const char *word_of(const wf_nn_gpt_config *m)
{
    return m->window_chunks ? chunked : sliding;
}

bool wf_hf_skip_read(const json_t *array, int64_t layers, int64_t *every)
{
    size_t count = json_array_size(array), n = 0;

    if (!json_is_array(array) || (int64_t)count != layers)
        return false;
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

static bool has_window(const json_t *array, int64_t layer)
{
    const char *type = json_string_value(json_array_get(array, (size_t)layer));

    return type && strcmp(type, full) != 0;
}

static const char *wrong_words(const json_t *array, const wf_nn_gpt_config *m)
{
    const int64_t layers = m->layers;

    if (!json_is_array(array) || (int64_t)json_array_size(array) != layers)
        return "it must have a word for each layer";
    if (layers > WF_NN_LISTED_BLOCKS)
        return "Weft knows lists of up to 512 layers";
    for (int64_t i = 0; i < layers; i++) {
        const char *type = json_string_value(json_array_get(array, (size_t)i));

        if (!type || (strcmp(type, full) != 0 && strcmp(type, word_of(m)) != 0))
            return m->window_chunks ? "Weft knows full_attention and chunked_attention here"
                                    : "Weft knows full_attention and sliding_attention";
    }
    return NULL;
}

const char *wf_hf_layer_types_read(const json_t *array, wf_nn_gpt_config *m)
{
    const char *wrong = wrong_words(array, m);
    bool any = false;

    if (wrong)
        return wrong;
    m->window_blocks = (wf_nn_blocks){{0}};
    for (int64_t i = 0; i < m->layers; i++)
        if (has_window(array, i)) {
            wf_nn_block_list(&m->window_blocks, i);
            any = true;
        }
    if (any && !m->window)
        return m->window_chunks ? "layers have chunks, and nothing says of how many tokens"
                                : "layers slide, and nothing says over how many tokens";
    if (!any)
        m->window = 0;
    return NULL;
}

json_t *wf_hf_layer_types_write(const wf_nn_gpt_config *m)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < m->layers; i++)
        json_array_append_new(array, json_string(wf_nn_gpt_window(m, i) ? word_of(m) : full));
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

/* Lists the layers that an array names; what is wrong, or NULL. */
static const char *read_list(const json_t *array, const wf_nn_gpt_config *m, wf_nn_blocks *list)
{
    if (!json_is_array(array))
        return "it must be an array of numbers of layers";
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *one = json_array_get(array, i);
        const json_int_t layer = json_integer_value(one);

        if (!json_is_integer(one) || layer < 0)
            return "it must be an array of numbers of layers";
        if (layer >= m->layers)
            return "it names a layer that the model does not have: they are numbered from 0";
        if (layer >= WF_NN_LISTED_BLOCKS)
            return "Weft knows lists of up to 512 layers";
        wf_nn_block_list(list, layer);
    }
    return NULL;
}

const char *wf_hf_dense_layers_read(const json_t *array, wf_nn_gpt_config *m)
{
    return read_list(array, m, &m->dense_blocks);
}

const char *wf_hf_mixed_layers_read(const json_t *array, wf_nn_gpt_config *m)
{
    wf_nn_blocks mixed = {{0}};
    const char *wrong = read_list(array, m, &mixed);

    if (!wrong && m->layers > WF_NN_LISTED_BLOCKS)
        wrong = "Weft knows lists of up to 512 layers";
    m->dense_blocks = (wf_nn_blocks){{0}};
    for (int64_t i = 0; i < m->layers && !wrong; i++)
        if (!wf_nn_block_listed(&mixed, i))
            wf_nn_block_list(&m->dense_blocks, i);
    return wrong;
}

json_t *wf_hf_layers_write(const wf_nn_gpt_config *m, bool mixed)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < m->layers; i++)
        if (wf_nn_block_listed(&m->dense_blocks, i) != mixed)
            json_array_append_new(array, json_integer(i));
    return array;
}
