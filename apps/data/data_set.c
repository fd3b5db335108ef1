/* apps/data/data_set.c - see data_set.h. */
#include "apps/data/data_set.h"
#include "apps/data/order.h"
#include "apps/data/source.h"
#include "core/numerics/random.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A run of tokens of a source, in windows. */
typedef struct stretch {
    const app_source *source;
    int64_t first, tokens, windows;
    int64_t before; /* windows of the stretches before it */
} stretch;

struct app_data_set {
    app_data_options options; /* its texts are not looked at after opening */
    app_source *source;       /* first those of --data, then those of --val-data */
    int64_t sources, trained; /* how many there are, and of --data */
    stretch *part[2];         /* by app_data_part: a stretch a source */
    int64_t stretches[2];
    bool mixture;     /* sources have names and weights */
    bool anywhere[2]; /* sequences of plain text begin anywhere */
    app_mixture *order;
    uint64_t order_key, place_key;
};

/* The largest number of whole windows in so many tokens. */
static int64_t windows_in(const app_data_set *d, int64_t tokens)
{
    return tokens > 0 ? (tokens - 1) / d->options.seq_len : 0;
}

static int64_t part_sum(const app_data_set *d, app_data_part part, bool windows)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < d->stretches[part]; i++)
        sum += windows ? d->part[part][i].windows : d->part[part][i].tokens;
    return sum;
}

int64_t app_data_set_tokens(const app_data_set *data, app_data_part part)
{
    return part_sum(data, part, false);
}

int64_t app_data_set_windows(const app_data_set *data, app_data_part part)
{
    return part_sum(data, part, true);
}

int64_t app_data_set_evaluations(const app_data_set *data)
{
    return app_data_set_windows(data, APP_DATA_VALIDATION) / data->options.global_batch;
}

bool app_data_set_is_text(const app_data_set *data)
{
    return data->source[0].is_text;
}

static const char *unit(const app_source *source)
{
    return source->is_text ? "bytes" : "tokens";
}

/* A stretch that is read has to hold a window. */
static wf_status check_stretch(const app_data_set *d, app_data_part part, const stretch *s,
                               wf_error *error)
{
    long long have = s->tokens, need = d->options.seq_len + 1, all = s->source->tokens;
    const char *which = part == APP_DATA_TRAIN ? "training" : "validation";
    const char *units = unit(s->source);
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
static wf_status check_part(const app_data_set *d, app_data_part part, wf_error *error)
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
    d->stretches[part]++;
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
        int64_t held = fraction ? (int64_t)((double)s->tokens * d->options.val_fraction) : 0;

        if (i < d->trained)
            add_stretch(d, APP_DATA_TRAIN, s, 0, s->tokens - held);
        if (fraction || i >= d->trained)
            add_stretch(d, APP_DATA_VALIDATION, s, fraction ? s->tokens - held : 0,
                        fraction ? held : s->tokens);
    }
    if (check_part(d, APP_DATA_TRAIN, error) == WF_OK && d->options.validates)
        check_part(d, APP_DATA_VALIDATION, error);
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

/* Every window once: they have to be whole batches. */
static wf_status check_every_window(const app_data_set *d, wf_error *error)
{
    int64_t windows = app_data_set_windows(d, APP_DATA_VALIDATION);
    int64_t batch = d->options.global_batch, fits = batch < windows ? batch : windows;

    if (!d->options.validates || !d->options.every_window || windows % batch == 0)
        return WF_OK;
    while (windows % fits)
        fits--;
    return wf_error_set(error, WF_EINVAL,
                        "--eval-iters 0 reads each of the %" PRId64
                        " windows of validation once, and they are no multiple of "
                        "--global-batch-size %" PRId64 "; use --global-batch-size %" PRId64
                        ", --val-data with %" PRId64 " windows, or --eval-iters %" PRId64,
                        windows, batch, fits, (windows / batch + 1) * batch,
                        windows / batch ? windows / batch : 1);
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
        status = check_every_window(d, error);
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
    free(data);
}

/* Where a sequence of plain text begins. Validation draws from streams that no step reaches. */
static int64_t place_anywhere(const app_data_set *d, app_data_part part, int64_t batch,
                              int64_t index)
{
    uint64_t stream = (uint64_t)batch | (part == APP_DATA_VALIDATION ? UINT64_C(1) << 63 : 0);
    uint64_t places = (uint64_t)(d->part[part]->tokens - d->options.seq_len);

    return (int64_t)wf_random_below(d->place_key, stream, (uint64_t)index, places);
}

/* The stretch of a sequence, and the token of it at which it begins. */
static const stretch *place_of(const app_data_set *d, app_data_part part, int64_t batch,
                               int64_t index, int64_t *first)
{
    const stretch *s = d->part[part];
    int64_t sample =
        (part == APP_DATA_TRAIN ? batch - 1 : batch) * d->options.global_batch + index;
    int64_t before, window;

    if (d->anywhere[part]) {
        *first = place_anywhere(d, part, batch, index);
        return s;
    }
    if (part == APP_DATA_TRAIN) {
        int64_t source = app_mixture_at(d->order, sample, &before);

        s += source;
        window = app_order_permuted(d->order_key, (uint32_t)source, before / s->windows,
                                    s->windows, before % s->windows);
    } else {
        int64_t all = app_data_set_windows(d, part);

        window = app_order_permuted(d->order_key, APP_ORDER_VALIDATION, 0, all, sample % all);
        while (window >= s->before + s->windows)
            s++;
        window -= s->before;
    }
    *first = window * d->options.seq_len;
    return s;
}

wf_status app_data_set_read(const app_data_set *data, app_data_part part, int64_t batch,
                            int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                            wf_error *error)
{
    int64_t length = data->options.seq_len;
    wf_status status = check_part(data, part, error);
    int32_t *ids = status == WF_OK ? malloc((size_t)(length + 1) * sizeof *ids) : NULL;

    if (status != WF_OK)
        return status;
    if (!ids)
        return wf_error_set(error, WF_ENOMEM, "no memory for a sequence of the data");
    for (int64_t i = 0; i < count && status == WF_OK; i++) {
        int64_t at;
        const stretch *s = place_of(data, part, batch, first + i, &at);

        status = app_source_read(s->source, s->first + at, length + 1, ids, error);
        if (status != WF_OK)
            break;
        memcpy(tokens + i * length, ids, (size_t)length * sizeof *ids);
        memcpy(targets + i * length, ids + 1, (size_t)length * sizeof *ids);
    }
    free(ids);
    return status;
}

/* How often so many samples of a mixture read a source. */
static double epochs_of(const app_data_set *d, int64_t source, double samples)
{
    double share = (double)app_mixture_quota(d->order, source) / APP_ORDER_PERIOD;

    return samples * share / (double)d->part[APP_DATA_TRAIN][source].windows;
}

void app_data_set_tell(FILE *out, const app_data_set *data, int64_t steps)
{
    const app_data_options *o = &data->options;
    const char *units = unit(data->source);
    int64_t files = 0;

    for (int64_t i = 0; i < data->trained; i++)
        files += data->source[i].parts;
    fprintf(out, "data: %s", data->source->part->file.name);
    if (files > 1)
        fprintf(out, " and %" PRId64 " more", files - 1);
    fprintf(out,
            ": %" PRId64 " %s to train on, %" PRId64 " to validate on; a step is %" PRId64
            " sequences of %" PRId64 " %s\n",
            app_data_set_tokens(data, APP_DATA_TRAIN), units,
            app_data_set_tokens(data, APP_DATA_VALIDATION), o->global_batch, o->seq_len, units);
    for (int64_t i = 0; i < data->trained && !data->anywhere[APP_DATA_TRAIN]; i++) {
        const app_source *s = &data->source[i];
        const stretch *trained = &data->part[APP_DATA_TRAIN][i];

        fprintf(out, "data: %s", s->part->file.format);
        if (data->mixture)
            fprintf(out, " of %s, weight %g", s->name, s->weight);
        fprintf(out,
                ": %" PRId64 " %s, %" PRId64 " windows, %.2f epochs in %" PRId64 " steps\n",
                trained->tokens, units, trained->windows,
                epochs_of(data, i, (double)steps * (double)o->global_batch), steps);
    }
}
