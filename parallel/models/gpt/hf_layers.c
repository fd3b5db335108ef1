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

static bool slides(const json_t *array, int64_t layer)
{
    const char *type = json_string_value(json_array_get(array, (size_t)layer));

    return type && strcmp(type, sliding) == 0;
}

/* Whether a layer has a window, where those before the first and every `skip`-th have none. */
static bool has_window(int64_t layer, int64_t first, int64_t skip)
{
    return layer >= first && !(skip && (layer + 1) % skip == 0);
}

static bool says(const json_t *array, int64_t first, int64_t skip)
{
    for (int64_t i = 0; i < (int64_t)json_array_size(array); i++)
        if (slides(array, i) != has_window(i, first, skip))
            return false;
    return true;
}

static const char *wrong_words(const json_t *array, int64_t layers)
{
    if (!json_is_array(array) || (int64_t)json_array_size(array) != layers)
        return "it must have a word for each layer";
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
    int64_t first = 0, next;

    if (wrong)
        return wrong;
    while (first < m->layers && !slides(array, first))
        first++;
    for (next = first; next < m->layers && slides(array, next);)
        next++;
    if (first == m->layers) {
        m->window = 0;
        return NULL;
    }
    if (!m->window)
        return "layers slide, and nothing says over how many tokens";
    m->window_first = first;
    m->window_skip = 0;
    if (next == m->layers)
        return NULL;
    for (int64_t skip = 2; skip <= next + 1; skip++)
        if ((next + 1) % skip == 0 && says(array, first, skip)) {
            m->window_skip = skip;
            return NULL;
        }
    return "Weft computes windows of all layers from one on, or of these but for every n-th";
}

json_t *wf_hf_layer_types_write(const wf_nn_gpt_config *m)
{
    json_t *array = json_array();

    for (int64_t i = 0; i < m->layers; i++)
        json_array_append_new(
            array,
            json_string(m->window && has_window(i, m->window_first, m->window_skip) ? sliding
                                                                                    : full));
    return array;
}
