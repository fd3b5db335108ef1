/* apps/data/data_set_open.c - a data set is opened, divided and mixed; see data_set.h. */
#include "apps/data/data_set_internal.h"
#include "core/numerics/random.h"
#include <inttypes.h>
#include <stdlib.h>

/* The largest number of whole windows in so many tokens. */
static int64_t windows_in(const app_data_set *d, int64_t tokens)
{
    return tokens > 0 ? (tokens - 1) / d->options.seq_len : 0;
}

/* A stretch that is read has to hold a window. */
static wf_status check_stretch(const app_data_set *d, app_data_part part, const stretch *s,
                               wf_error *error)
{
    long long have = s->tokens, need = d->options.seq_len + 1, all = s->source->tokens;
    const char *which = part == APP_DATA_TRAIN ? "training" : "validation";
    const char *units = app_data_unit(s->source);
    double fraction = d->options.val_data_count ? 0 : d->options.val_fraction;

    if (have >= need)
        return WF_OK;
    if (have < 2)
        return wf_error_set(error, WF_EINVAL,
                            "the %s part has %lld of the %lld %s of source %s (--val-fraction "
                            "%g), and the shortest sequence needs 2; use more data, or another "
                            "--val-fraction",
                            which, have, all, units, s->source->name, fraction);
    return wf_error_set(
        error, WF_EINVAL,
        "a sequence of --seq-len %lld needs %lld %s (one more, for the last target), but the "
        "%s "
        "part has %lld of the %lld of source %s (--val-fraction %g); use a --seq-len of at "
        "most %lld, more data, or another --val-fraction",
        (long long)d->options.seq_len, need, units, which, have, all, s->source->name, fraction,
        have - 1);
}

/* A validation part may be of small sources, as long as one of them holds a window. */
wf_status app_data_check_part(const app_data_set *d, app_data_part part, wf_error *error)
{
    const stretch *largest = NULL;

    for (int64_t i = 0; i < d->stretches[part]; i++) {
        const stretch *s = &d->part[part][i];

        if (part == APP_DATA_TRAIN && check_stretch(d, part, s, error) != WF_OK)
            return error->code;
        if (!largest || s->tokens > largest->tokens)
            largest = s;
    }
    return largest ? check_stretch(d, part, largest, error)
                   : wf_error_set(error, WF_EINVAL, "there is no data to validate on");
}

static void add_stretch(app_data_set *d, app_data_part part, const app_source *source,
                        int64_t first, int64_t tokens)
{
    stretch *s = &d->part[part][d->stretches[part]];

    *s = (stretch){.source = source,
                   .first = first,
                   .tokens = tokens,
                   .windows = windows_in(d, tokens),
                   .before = app_data_set_windows(d, part)};
    d->masked[part] = d->masked[part] || source->masked || d->options.documents;
    d->stretches[part]++;
}

/* The tokens at the end of a source that are kept for validation; with documents they begin with a window, since
   windows may be packed. */
static int64_t held_of(const app_data_set *d, const app_source *s)
{
    int64_t held = (int64_t)((double)s->tokens * d->options.val_fraction);
    int64_t length = d->options.seq_len, windows = windows_in(d, s->tokens - held);

    return d->options.documents && held ? s->tokens - windows * length : held;
}

/* Each source is trained on up to where its validation part begins; those of --val-data are that whole. */
static wf_status divide(app_data_set *d, wf_error *error)
{
    bool fraction = !d->options.val_data_count;

    for (int part = 0; part < 2; part++)
        d->part[part] = calloc((size_t)d->sources, sizeof(stretch));
    if (!d->part[0] || !d->part[1])
        return wf_error_set(error, WF_ENOMEM, "no memory for the parts of the data");
    for (int64_t i = 0; i < d->sources; i++) {
        const app_source *s = &d->source[i];
        int64_t held = fraction ? held_of(d, s) : 0;
        /* The last target of training is the first token that is kept. */
        int64_t shared = d->options.documents && held;

        if (i < d->trained)
            add_stretch(d, APP_DATA_TRAIN, s, 0, s->tokens - held + shared);
        if (fraction || i >= d->trained)
            add_stretch(d, APP_DATA_VALIDATION, s, fraction ? s->tokens - held : 0,
                        fraction ? held : s->tokens);
    }
    if (app_data_check_part(d, APP_DATA_TRAIN, error) == WF_OK && d->options.validates)
        app_data_check_part(d, APP_DATA_VALIDATION, error);
    return error->code;
}

static wf_status open_sources(app_data_set *d, const app_source_list *list, const char *flag,
                              wf_error *error)
{
    wf_status status = WF_OK;

    for (int64_t i = 0; i < list->count && status == WF_OK; i++) {
        app_source *s = &d->source[d->sources++];

        status = app_source_open(&list->source[i], flag, d->options.vocabulary, s, error);
        if (status == WF_OK && s->is_text != d->source->is_text)
            status = wf_error_set(error, WF_EINVAL,
                                  "%s: source %s has %s, and source %s %s; turn the text into "
                                  "token ids too",
                                  flag, s->name, s->is_text ? "text" : "token ids",
                                  d->source->name, d->source->is_text ? "text" : "token ids");
    }
    return status;
}

/* The sources of both flags. */
static wf_status open_all(app_data_set *d, wf_error *error)
{
    const app_data_options *o = &d->options;
    app_source_list data = {.count = 0}, val = {.count = 0};
    wf_status status = app_source_list_parse(o->data, o->data_count, "--data", &data, error);

    if (status == WF_OK && o->val_data_count)
        status =
            app_source_list_parse(o->val_data, o->val_data_count, "--val-data", &val, error);
    if (status == WF_OK) {
        d->source = calloc((size_t)(data.count + val.count), sizeof *d->source);
        if (!d->source)
            status = wf_error_set(error, WF_ENOMEM, "no memory for the sources of the data");
    }
    if (status == WF_OK)
        status = open_sources(d, &data, "--data", error);
    d->trained = data.count;
    d->mixture = data.mixture;
    if (status == WF_OK)
        status = open_sources(d, &val, "--val-data", error);
    app_source_list_free(&data);
    app_source_list_free(&val);
    return status;
}

static wf_status mix(app_data_set *d, wf_error *error)
{
    double *weights = calloc((size_t)d->trained, sizeof *weights);
    wf_status status =
        weights ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for the weights");

    for (int64_t i = 0; i < d->trained && weights; i++)
        weights[i] = d->source[i].weight;
    if (status == WF_OK)
        status = app_mixture_new(d->order_key, weights, d->trained, &d->order, error);
    for (int64_t i = 0; i < d->trained && status == WF_OK; i++)
        if (!app_mixture_quota(d->order, i))
            status = wf_error_set(error, WF_EINVAL,
                                  "the weight %g of source %s is less than one sequence in %d, "
                                  "so that it would never be read; raise it, or leave it out",
                                  weights[i], d->source[i].name, APP_ORDER_PERIOD);
    free(weights);
    return status;
}

static wf_status open_counts(app_data_set *d, wf_error *error)
{
    d->counts = malloc(sizeof *d->counts);
    if (!d->counts)
        return wf_error_set(error, WF_ENOMEM, "no memory for the data set");
    *d->counts = (data_counts){.batch = {-1, -1}};
    pthread_mutex_init(&d->counts->lock, NULL);
    return WF_OK;
}

wf_status app_data_set_open(const app_data_options *options, app_data_set **data,
                            wf_error *error)
{
    app_data_set *d = calloc(1, sizeof *d);
    wf_status status;

    *data = NULL;
    if (!d)
        return wf_error_set(error, WF_ENOMEM, "no memory for the data set");
    d->options = *options;
    d->ends = -1;
    d->order_key = wf_random_key(options->seed, WF_RANDOM_ORDER);
    d->place_key = wf_random_key(options->seed, WF_RANDOM_DATA);
    status = open_all(d, error);
    if (status == WF_OK) {
        d->anywhere[APP_DATA_TRAIN] = !d->mixture && d->source[0].is_text;
        d->anywhere[APP_DATA_VALIDATION] =
            d->anywhere[APP_DATA_TRAIN] && !options->val_data_count && !options->every_window;
        status = divide(d, error);
    }
    if (status == WF_OK)
        status = mix(d, error);
    if (status == WF_OK)
        status = open_counts(d, error);
    if (status == WF_OK)
        *data = d;
    else
        app_data_set_close(d);
    return status;
}

void app_data_set_close(app_data_set *data)
{
    if (!data)
        return;
    for (int64_t i = 0; i < data->sources; i++)
        app_source_close(&data->source[i]);
    free(data->source);
    free(data->part[0]);
    free(data->part[1]);
    app_mixture_free(data->order);
    if (data->counts)
        pthread_mutex_destroy(&data->counts->lock);
    free(data->counts);
    free(data);
}
