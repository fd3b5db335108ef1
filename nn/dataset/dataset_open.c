/* nn/dataset/dataset_open.c - a dataset is opened, divided and mixed; see dataset.h. */
#include "nn/dataset/dataset_internal.h"
#include "core/numerics/random.h"
#include <inttypes.h>
#include <stdlib.h>

/* Returns the largest number of whole windows in `tokens` tokens. */
static int64_t windows_in(const wf_dataset *d, int64_t tokens)
{
    return tokens > 0 ? (tokens - 1) / d->options.seq_len : 0;
}

/* Checks that a stretch that is read holds a window. */
static wf_status check_stretch(const wf_dataset *d, wf_dataset_part part, const stretch *s,
                               wf_error *error)
{
    long long have = s->tokens, need = d->options.seq_len + 1, all = s->source->tokens;
    const char *which = part == WF_DATASET_TRAIN ? "training" : "validation";
    const char *units = wf_dataset_unit(s->source);
    double fraction = d->options.val_data_count ? 0 : d->options.val_fraction;

    if (have >= need)
        return WF_OK;
    if (have < 2)
        return wf_error_set(error, WF_EINVAL,
                            "the %s part has %lld of the %lld %s of source %s (.val_fraction "
                            "%g), and the shortest sequence needs 2; use more data, or another "
                            ".val_fraction",
                            which, have, all, units, s->source->name, fraction);
    return wf_error_set(
        error, WF_EINVAL,
        "a sequence of .seq_len %lld needs %lld %s (one more, for the last target), but the "
        "%s "
        "part has %lld of the %lld of source %s (.val_fraction %g); use a .seq_len of at "
        "most %lld, more data, or another .val_fraction",
        (long long)d->options.seq_len, need, units, which, have, all, s->source->name, fraction,
        have - 1);
}

/* Checks a part; that of validation may have small sources, as long as one of them holds a
   window. */
wf_status wf_dataset_check_part(const wf_dataset *d, wf_dataset_part part, wf_error *error)
{
    const stretch *largest = NULL;

    for (int64_t i = 0; i < d->stretches[part]; i++) {
        const stretch *s = &d->part[part][i];

        if (part == WF_DATASET_TRAIN && check_stretch(d, part, s, error) != WF_OK)
            return error->code;
        if (!largest || s->tokens > largest->tokens)
            largest = s;
    }
    return largest ? check_stretch(d, part, largest, error)
                   : wf_error_set(error, WF_EINVAL, "there is no data to validate on");
}

static void add_stretch(wf_dataset *d, wf_dataset_part part, const wf_dataset_source *source,
                        int64_t first, int64_t tokens)
{
    stretch *s = &d->part[part][d->stretches[part]];

    *s = (stretch){.source = source,
                   .first = first,
                   .tokens = tokens,
                   .windows = windows_in(d, tokens),
                   .before = wf_dataset_windows(d, part)};
    d->masked[part] = d->masked[part] || source->masked || d->options.documents;
    d->stretches[part]++;
}

/* Returns the tokens at the end of a source that are kept for validation; with documents they
   begin with a window, since windows may be packed. */
static int64_t held_of(const wf_dataset *d, const wf_dataset_source *s)
{
    int64_t held = (int64_t)((double)s->tokens * d->options.val_fraction);
    int64_t length = d->options.seq_len, windows = windows_in(d, s->tokens - held);

    return d->options.documents && held ? s->tokens - windows * length : held;
}

/* Divides the sources: each is trained on up to where its validation part begins; those of
   .val_data are all of it. */
static wf_status divide(wf_dataset *d, wf_error *error)
{
    bool fraction = !d->options.val_data_count;

    for (int part = 0; part < 2; part++)
        d->part[part] = calloc((size_t)d->sources, sizeof(stretch));
    if (!d->part[0] || !d->part[1])
        return wf_error_set(error, WF_ENOMEM, "no memory for the parts of the data");
    for (int64_t i = 0; i < d->sources; i++) {
        const wf_dataset_source *s = &d->source[i];
        int64_t held = fraction ? held_of(d, s) : 0;
        /* the last target of documents, which is none, is the first token that is kept */
        int64_t shared = d->options.documents && held;

        if (i < d->trained)
            add_stretch(d, WF_DATASET_TRAIN, s, 0, s->tokens - held + shared);
        if (fraction || i >= d->trained)
            add_stretch(d, WF_DATASET_VALIDATION, s, fraction ? s->tokens - held : 0,
                        fraction ? held : s->tokens);
    }
    if (wf_dataset_check_part(d, WF_DATASET_TRAIN, error) == WF_OK && d->options.validates)
        wf_dataset_check_part(d, WF_DATASET_VALIDATION, error);
    return error->code;
}

static wf_status open_sources(wf_dataset *d, const wf_dataset_source_list *list,
                              const char *flag, wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < list->count && status == WF_OK; i++) {
        wf_dataset_source *s = &d->source[d->sources++];

        status =
            wf_dataset_source_open(&list->source[i], flag, d->options.vocabulary, s, error);
        if (status == WF_OK && s->is_text != d->source->is_text)
            status = wf_error_set(
                error, WF_EINVAL,
                "%s: source %s has %s, and source %s %s; convert the text to token ids too",
                flag, s->name, s->is_text ? "text" : "token ids", d->source->name,
                d->source->is_text ? "text" : "token ids");
    }
    return status;
}

/* Opens the sources of both options. */
static wf_status open_all(wf_dataset *d, wf_error *error)
{
    const wf_dataset_options *o = &d->options;
    wf_dataset_source_list data = {.count = 0}, val = {.count = 0};
    wf_status status =
        wf_dataset_source_list_parse(o->data, o->data_count, ".data", &data, error);

    if (status == WF_OK && o->val_data_count)
        status = wf_dataset_source_list_parse(o->val_data, o->val_data_count, ".val_data", &val,
                                              error);
    if (status == WF_OK) {
        d->source = calloc((size_t)(data.count + val.count), sizeof *d->source);
        if (!d->source)
            status = wf_error_set(error, WF_ENOMEM, "no memory for the sources of the data");
    }
    if (status == WF_OK)
        status = open_sources(d, &data, ".data", error);
    d->trained = data.count;
    d->mixture = data.mixture;
    if (status == WF_OK)
        status = open_sources(d, &val, ".val_data", error);
    wf_dataset_source_list_free(&data);
    wf_dataset_source_list_free(&val);
    return status;
}

static wf_status mix(wf_dataset *d, wf_error *error)
{
    double *weights = calloc((size_t)d->trained, sizeof *weights);
    wf_status status =
        weights ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for the weights");

    for (int64_t i = 0; i < d->trained && weights; i++)
        weights[i] = d->source[i].weight;
    if (status == WF_OK)
        status = wf_dataset_mixture_new(d->order_key, weights, d->trained, &d->order, error);
    for (int64_t i = 0; i < d->trained && status == WF_OK; i++)
        if (!wf_dataset_mixture_quota(d->order, i))
            status = wf_error_set(error, WF_EINVAL,
                                  "the weight %g of source %s is less than one sequence in %d, "
                                  "so that it would never be read; raise it, or leave it out",
                                  weights[i], d->source[i].name, WF_DATASET_ORDER_PERIOD);
    free(weights);
    return status;
}

static wf_status open_counts(wf_dataset *d, wf_error *error)
{
    d->counts = malloc(sizeof *d->counts);
    if (!d->counts)
        return wf_error_set(error, WF_ENOMEM, "no memory for the dataset");
    *d->counts = (data_counts){.batch = {-1, -1}};
    pthread_mutex_init(&d->counts->lock, NULL);
    return WF_OK;
}

wf_status wf_dataset_open(const wf_dataset_options *options, wf_dataset **data, wf_error *error)
{
    wf_dataset *d = calloc(1, sizeof *d);
    wf_status status;

    *data = NULL;
    if (!d)
        return wf_error_set(error, WF_ENOMEM, "no memory for the dataset");
    d->options = *options;
    d->ends = -1;
    d->order_key = wf_random_key(options->seed, WF_RANDOM_ORDER);
    d->start_key = wf_random_key(options->seed, WF_RANDOM_DATA);
    status = open_all(d, error);
    if (status == WF_OK) {
        d->anywhere[WF_DATASET_TRAIN] = !d->mixture && d->source[0].is_text;
        d->anywhere[WF_DATASET_VALIDATION] =
            d->anywhere[WF_DATASET_TRAIN] && !options->val_data_count && !options->every_window;
        status = divide(d, error);
    }
    if (status == WF_OK)
        status = mix(d, error);
    if (status == WF_OK)
        status = open_counts(d, error);
    if (status == WF_OK)
        *data = d;
    else
        wf_dataset_close(d);
    return status;
}

void wf_dataset_close(wf_dataset *data)
{
    if (!data)
        return;
    for (int64_t i = 0; i < data->sources; i++)
        wf_dataset_source_close(&data->source[i]);
    free(data->source);
    free(data->part[0]);
    free(data->part[1]);
    wf_dataset_mixture_free(data->order);
    if (data->counts)
        pthread_mutex_destroy(&data->counts->lock);
    free(data->counts);
    free(data);
}
