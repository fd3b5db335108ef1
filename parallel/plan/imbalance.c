/* parallel/plan/imbalance.c - how uneven the loads of experts are, of which simulated times
   make the fullest rank's work; see the header. */
#include "parallel/plan/imbalance.h"
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_EXPERTS = 65536 };

/* Sums of a layer's rows: where it is in the file's object, its experts and their tokens. */
typedef struct layer {
    char *path;
    int64_t experts;
    double *tokens; /* [experts] */
} layer;

typedef struct layers {
    layer *of;
    int64_t count;
} layers;

static void close_layers(layers *l)
{
    for (int64_t i = 0; i < l->count; i++) {
        free(l->of[i].path);
        free(l->of[i].tokens);
    }
    free(l->of);
    *l = (layers){NULL, 0};
}

/* Returns the layer of a path, made with `experts` experts if it is new; NULL: no memory. */
static layer *layer_of(layers *l, const char *path, int64_t experts)
{
    layer *more, *one;

    for (int64_t i = 0; i < l->count; i++)
        if (strcmp(l->of[i].path, path) == 0)
            return &l->of[i];
    more = realloc(l->of, (size_t)(l->count + 1) * sizeof *more);
    if (!more)
        return NULL;
    l->of = more;
    one = &more[l->count];
    *one = (layer){strdup(path), experts, calloc((size_t)experts + 1, sizeof *one->tokens)};
    l->count++;
    return one->path && one->tokens ? one : NULL;
}

/* Adds a row's loads. */
static wf_status add_row(layers *l, json_t *row, const char *file, int64_t line,
                         wf_error *error)
{
    json_t *loads = json_object_get(row, "expert_load"), *tokens;
    const char *path;

    json_object_foreach(loads, path, tokens)
    {
        int64_t n = (int64_t)json_array_size(tokens);
        layer *one = n > 0 && n <= MOST_EXPERTS ? layer_of(l, path, n) : NULL;

        if (n < 1 || n > MOST_EXPERTS || (one && one->experts != n))
            return wf_error_set(error, WF_EDATA,
                                "%.200s, line %lld: expert_load of %.100s has %lld experts: "
                                "give the rows of one model",
                                file, (long long)line, path, (long long)n);
        if (!one)
            return wf_error_set(error, WF_ENOMEM, "no memory for the loads of experts");
        for (int64_t e = 0; e < n; e++) {
            double count = json_number_value(json_array_get(tokens, (size_t)e));

            if (!(count >= 0) || !isfinite(count))
                return wf_error_set(error, WF_EDATA,
                                    "%.200s, line %lld: expert_load of %.100s has no count of "
                                    "tokens for expert %lld",
                                    file, (long long)line, path, (long long)e);
            one->tokens[e] += count;
        }
    }
    return WF_OK;
}

static wf_status read_rows(FILE *file, const char *name, layers *l, wf_error *error)
{
    char *line = NULL;
    size_t room = 0;

    for (int64_t number = 1; error->code == WF_OK && getline(&line, &room, file) > 0;
         number++) {
        json_t *row = json_loads(line, JSON_REJECT_DUPLICATES, NULL);

        if (row) /* a row that was cut counts for nothing */
            add_row(l, row, name, number, error);
        json_decref(row);
    }
    free(line);
    return error->code;
}

static wf_status take_file(const char *name, wf_sim_model *sizes, wf_error *error)
{
    FILE *file = fopen(name, "r");
    wf_sim_model read = *sizes;
    layers l = {NULL, 0};

    if (!file)
        return wf_error_set(error, WF_EIO,
                            "loads of experts: %.200s is neither a number from 1 to 1e6 nor a "
                            "file that can be read",
                            name);
    memset(read.fullest, 0, sizeof read.fullest);
    if (read_rows(file, name, &l, error) == WF_OK && !l.count)
        wf_error_set(error, WF_EDATA,
                     "%.200s has no expert_load in its rows: write them by a run with "
                     ".moe_report and .log_jsonl %.200s",
                     name, name);
    for (int64_t i = 0; i < l.count && error->code == WF_OK; i++)
        if (sizes->experts && l.of[i].experts != sizes->experts)
            wf_error_set(error, WF_EDATA,
                         "%.200s has loads of %lld experts, and the model has %lld", name,
                         (long long)l.of[i].experts, (long long)sizes->experts);
        else
            wf_sim_loads(&read, l.of[i].tokens, l.of[i].experts, 1.0 / (double)l.count);
    if (error->code == WF_OK)
        *sizes = read;
    close_layers(&l);
    fclose(file);
    return error->code;
}

wf_status wf_plan_imbalance(const char *text, wf_sim_model *sizes, wf_error *error)
{
    char *end;
    double factor = strtod(text, &end);

    if (end == text || *end)
        return take_file(text, sizes, error);
    if (!(factor >= 1 && factor <= 1e6))
        return wf_error_set(
            error, WF_EINVAL,
            "loads of experts: the fullest rank has %.100s times the mean: give "
            "a number from 1 to 1e6, or a file of rows with expert_load",
            text);
    wf_sim_imbalance(sizes, factor);
    return WF_OK;
}
