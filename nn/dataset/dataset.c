/* nn/dataset/dataset.c - what is in an open dataset; see dataset.h. */
#include "nn/dataset/dataset_internal.h"
#include "core/numerics/random.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int64_t part_sum(const wf_dataset *d, wf_dataset_part part, bool windows)
{
    int64_t sum = 0;

    for (int64_t i = 0; i < d->stretches[part]; i++)
        sum += windows ? d->part[part][i].windows : d->part[part][i].tokens;
    return sum;
}

int64_t wf_dataset_tokens(const wf_dataset *data, wf_dataset_part part)
{
    return part_sum(data, part, false);
}

int64_t wf_dataset_windows(const wf_dataset *data, wf_dataset_part part)
{
    return part_sum(data, part, true);
}

int64_t wf_dataset_evaluations(const wf_dataset *data)
{
    int64_t batch = data->options.global_batch;

    return (wf_dataset_windows(data, WF_DATASET_VALIDATION) + batch - 1) / batch;
}

wf_status wf_dataset_fingerprint(const wf_dataset *data, uint64_t *fingerprint, wf_error *error)
{
    *fingerprint = 0;
    for (int64_t i = 0; i < data->trained; i++)
        if (wf_dataset_source_fingerprint(&data->source[i], fingerprint, error) != WF_OK)
            return error->code;
    return WF_OK;
}

bool wf_dataset_is_text(const wf_dataset *data)
{
    return data->source[0].is_text;
}

const char *wf_dataset_unit(const wf_dataset_source *source)
{
    return source->is_text ? "bytes" : "tokens";
}

/* Returns where a sequence of plain text begins. Validation draws from streams that no step
   reaches. */
static int64_t start_anywhere(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                              int64_t index)
{
    uint64_t stream = (uint64_t)batch | (part == WF_DATASET_VALIDATION ? UINT64_C(1) << 63 : 0);
    uint64_t starts = (uint64_t)(d->part[part]->tokens - d->options.seq_len);

    return (int64_t)wf_random_below(d->start_key, stream, (uint64_t)index, starts);
}

/* Returns the number of a sequence in its part. */
static int64_t sample_of(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                         int64_t index)
{
    return (part == WF_DATASET_TRAIN ? batch - 1 : batch) * d->options.global_batch + index;
}

/* Returns the stretch of a sequence, and the token of it at which it begins. */
static const stretch *stretch_of(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                                 int64_t index, int64_t *first)
{
    const stretch *s = d->part[part];
    int64_t sample = sample_of(d, part, batch, index), before, window;

    if (d->anywhere[part]) {
        *first = start_anywhere(d, part, batch, index);
        return s;
    }
    if (part == WF_DATASET_TRAIN) {
        int64_t source = wf_dataset_mixture_at(d->order, sample, &before);

        s += source;
        window = wf_dataset_order_permuted(d->order_key, (uint32_t)source, before / s->windows,
                                           s->windows, before % s->windows);
    } else {
        int64_t all = wf_dataset_windows(d, part);

        window = wf_dataset_order_permuted(d->order_key, WF_DATASET_ORDER_VALIDATION, 0, all,
                                           sample % all);
        while (window >= s->before + s->windows)
            s++;
        window -= s->before;
    }
    *first = window * d->options.seq_len;
    return s;
}

/* Returns true for a sequence that fills up the last batch where every window is read once. */
static bool is_filling(const wf_dataset *d, wf_dataset_part part, int64_t batch, int64_t index)
{
    return part == WF_DATASET_VALIDATION && d->options.every_window &&
           sample_of(d, part, batch, index) >= wf_dataset_windows(d, part);
}

/* Reads a window of tokens, and which of them begin a document where that is asked for:
   [seq_len + 1] each. */
static wf_status read_window(const wf_dataset *d, const stretch *s, int64_t at, int32_t *ids,
                             int32_t *begins, wf_error *error)
{
    int64_t count = d->options.seq_len + 1;

    if (wf_dataset_source_read(s->source, s->first + at, count, ids, error) != WF_OK)
        return error->code;
    return d->options.documents ? wf_dataset_source_documents(s->source, s->first + at, count,
                                                              ids, d->ends, begins, error)
                                : WF_OK;
}

/* Reads the sequence that begins at token `at` of a stretch. scratch: 2 (seq_len + 1) */
static wf_status read_at(const wf_dataset *d, const stretch *s, int64_t at, int32_t *scratch,
                         int32_t *tokens, int32_t *targets, wf_error *error)
{
    int64_t length = d->options.seq_len;
    int32_t *ids = scratch, *begins = scratch + length + 1;

    if (read_window(d, s, at, ids, begins, error) != WF_OK)
        return error->code;
    memcpy(tokens, ids, (size_t)length * sizeof *ids);
    memcpy(targets, ids + 1, (size_t)length * sizeof *ids);
    for (int64_t i = 0; d->options.documents && i < length; i++)
        targets[i] = begins[i + 1] ? -1 : targets[i];
    if (!s->source->masked)
        return WF_OK;
    if (wf_dataset_source_read_mask(s->source, s->first + at + 1, length, ids, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < length; i++)
        targets[i] = ids[i] ? targets[i] : -1;
    return WF_OK;
}

static wf_status read_one(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                          int64_t index, int32_t *scratch, int32_t *tokens, int32_t *targets,
                          wf_error *error)
{
    int64_t length = d->options.seq_len, at;
    const stretch *s;

    if (is_filling(d, part, batch, index)) {
        memset(tokens, 0, (size_t)length * sizeof *tokens);
        memset(targets, -1, (size_t)length * sizeof *targets);
        return WF_OK;
    }
    s = stretch_of(d, part, batch, index, &at);
    return read_at(d, s, at, scratch, tokens, targets, error);
}

static wf_status lay_out_one(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                             int64_t index, int32_t *scratch, int32_t *begin,
                             int32_t *positions, wf_error *error)
{
    int64_t length = d->options.seq_len, at;
    int32_t *begins = scratch + length + 1, last = 0;
    bool filling = is_filling(d, part, batch, index);
    const stretch *s = filling ? NULL : stretch_of(d, part, batch, index, &at);

    if (!filling && read_window(d, s, at, scratch, begins, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < length; i++) {
        last = !filling && begins[i] ? (int32_t)i : last;
        begin[i] = last;
        positions[i] = (int32_t)i - last;
    }
    return WF_OK;
}

typedef wf_status read_function(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                                int64_t index, int32_t *scratch, int32_t *a, int32_t *b,
                                wf_error *error);

static wf_status read_each(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                           int64_t first, int64_t count, read_function *read, int32_t *a,
                           int32_t *b, wf_error *error)
{
    int64_t length = data->options.seq_len;
    wf_status status = wf_dataset_check_part(data, part, error);
    int32_t *scratch =
        status == WF_OK ? malloc(2 * (size_t)(length + 1) * sizeof *scratch) : NULL;

    if (status != WF_OK)
        return status;
    if (!scratch)
        return wf_error_set(error, WF_ENOMEM, "no memory for a sequence of the data");
    for (int64_t i = 0; i < count && status == WF_OK; i++)
        status =
            read(data, part, batch, first + i, scratch, a + i * length, b + i * length, error);
    free(scratch);
    return status;
}

wf_status wf_dataset_read(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                          int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                          wf_error *error)
{
    return read_each(data, part, batch, first, count, read_one, tokens, targets, error);
}

wf_status wf_dataset_documents(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                               int64_t first, int64_t count, int32_t *begin, int32_t *positions,
                               wf_error *error)
{
    return read_each(data, part, batch, first, count, lay_out_one, begin, positions, error);
}

bool wf_dataset_masks_documents(const wf_dataset *data)
{
    return data->options.documents;
}

bool wf_dataset_has_documents(const wf_dataset *data)
{
    bool has_documents = true;

    for (int64_t i = 0; i < data->sources; i++)
        has_documents = has_documents && wf_dataset_source_has_documents(&data->source[i]);
    return has_documents;
}

void wf_dataset_ends(wf_dataset *data, int32_t id)
{
    data->ends = id;
}

bool wf_dataset_counts(const wf_dataset *data, wf_dataset_part part)
{
    return data->masked[part] ||
           (part == WF_DATASET_VALIDATION && data->options.every_window &&
            wf_dataset_windows(data, part) % data->options.global_batch != 0);
}

/* Counts the targets that are trained on of the sequence at token `at` of a stretch; scratch: 4
   (seq_len + 1). */
static wf_status count_at(const wf_dataset *d, const stretch *s, int64_t at, int32_t *scratch,
                          int64_t *count, wf_error *error)
{
    int64_t length = d->options.seq_len;
    int32_t *targets = scratch + 3 * (length + 1);

    *count = 0;
    if (!s->source->masked && !d->options.documents) {
        *count = length;
        return WF_OK;
    }
    if (d->options.documents)
        read_at(d, s, at, scratch, scratch + 2 * (length + 1), targets, error);
    else
        wf_dataset_source_read_mask(s->source, s->first + at + 1, length, targets, error);
    for (int64_t i = 0; i < length && error->code == WF_OK; i++)
        *count += d->options.documents ? targets[i] >= 0 : targets[i] != 0;
    return error->code;
}

static wf_status count_one(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                           int64_t index, int32_t *scratch, int64_t *count, wf_error *error)
{
    int64_t at;
    const stretch *s;

    *count = 0;
    if (is_filling(d, part, batch, index))
        return WF_OK;
    s = stretch_of(d, part, batch, index, &at);
    return count_at(d, s, at, scratch, count, error);
}

static wf_status count_all(const wf_dataset *d, wf_dataset_part part, int64_t batch,
                           int64_t *count, wf_error *error)
{
    int32_t *scratch = malloc(4 * (size_t)(d->options.seq_len + 1) * sizeof *scratch);
    wf_status status =
        scratch ? WF_OK
                : wf_error_set(error, WF_ENOMEM, "no memory for a sequence of the data");

    *count = 0;
    for (int64_t i = 0; i < d->options.global_batch && status == WF_OK; i++) {
        int64_t one;

        status = count_one(d, part, batch, i, scratch, &one, error);
        *count += one;
    }
    free(scratch);
    return status;
}

wf_status wf_dataset_counted(const wf_dataset *data, wf_dataset_part part, int64_t batch,
                             int64_t *count, wf_error *error)
{
    data_counts *c = data->counts;
    wf_status status = WF_OK;

    pthread_mutex_lock(&c->lock);
    if (c->batch[part] != batch)
        status = count_all(data, part, batch, &c->count[part], error);
    c->batch[part] = status == WF_OK ? batch : -1;
    *count = c->count[part];
    pthread_mutex_unlock(&c->lock);
    return status;
}

/* Looks for a window of the part that has a target which is trained on; mostly the first one
   has. */
static wf_status find_counted(const wf_dataset *d, wf_dataset_part part, bool *found,
                              wf_error *error)
{
    int32_t *scratch = malloc(4 * (size_t)(d->options.seq_len + 1) * sizeof *scratch);
    int64_t count = 0;

    *found = false;
    if (!scratch)
        wf_error_set(error, WF_ENOMEM, "no memory for a sequence of the data");
    for (int64_t i = 0; i < d->stretches[part] && !*found && error->code == WF_OK; i++) {
        const stretch *s = &d->part[part][i];

        for (int64_t w = 0; w < s->windows && !*found && error->code == WF_OK; w++)
            *found = count_at(d, s, w * d->options.seq_len, scratch, &count, error) == WF_OK &&
                     count;
    }
    free(scratch);
    return error->code;
}

wf_status wf_dataset_check_counts(const wf_dataset *d, int64_t batches, wf_error *error)
{
    bool found = true;
    int64_t count = 0;

    if (wf_dataset_counts(d, WF_DATASET_TRAIN) &&
        find_counted(d, WF_DATASET_TRAIN, &found, error) != WF_OK)
        return error->code;
    if (!found)
        return wf_error_set(error, WF_EDATA,
                            "no token of the data is trained on (loss masks, or documents of "
                            "one token): there is nothing to learn from");
    if (batches && wf_dataset_check_part(d, WF_DATASET_VALIDATION, error) != WF_OK)
        return error->code;
    found = !batches || !wf_dataset_counts(d, WF_DATASET_VALIDATION);
    for (int64_t i = 0; i < batches && !found && error->code == WF_OK; i++)
        found =
            wf_dataset_counted(d, WF_DATASET_VALIDATION, i, &count, error) == WF_OK && count;
    if (error->code != WF_OK || found)
        return error->code;
    return wf_error_set(error, WF_EDATA,
                        "no token counts in the %" PRId64
                        " batches of an evaluation (loss masks, or documents of one token), so "
                        "that there is no validation loss: use other .val_data, more "
                        "batches (.eval_iters), or .eval_interval 0",
                        batches);
}

/* Returns how often `samples` samples of a mixture read a source. */
static double epochs_of(const wf_dataset *d, int64_t source, double samples)
{
    double share = (double)wf_dataset_mixture_quota(d->order, source) / WF_DATASET_ORDER_PERIOD;

    return samples * share / (double)d->part[WF_DATASET_TRAIN][source].windows;
}

void wf_dataset_print(FILE *out, const wf_dataset *data, int64_t steps)
{
    const wf_dataset_options *o = &data->options;
    const char *units = wf_dataset_unit(data->source);
    int64_t files = 0;

    for (int64_t i = 0; i < data->trained; i++)
        files += data->source[i].parts;
    fprintf(out, "data: %s", data->source->part->file.name);
    if (files > 1)
        fprintf(out, " and %" PRId64 " more", files - 1);
    fprintf(out,
            ": %" PRId64 " %s to train on, %" PRId64 " to validate on; a step is %" PRId64
            " sequences of %" PRId64 " %s\n",
            wf_dataset_tokens(data, WF_DATASET_TRAIN), units,
            wf_dataset_tokens(data, WF_DATASET_VALIDATION), o->global_batch, o->seq_len, units);
    for (int64_t i = 0; i < data->trained && !data->anywhere[WF_DATASET_TRAIN]; i++) {
        const wf_dataset_source *s = &data->source[i];
        const stretch *trained = &data->part[WF_DATASET_TRAIN][i];

        fprintf(out, "data: %s", s->part->file.format);
        if (data->mixture)
            fprintf(out, " of %s, weight %g", s->name, s->weight);
        if (s->masked)
            fprintf(out, " with loss masks");
        fprintf(out,
                ": %" PRId64 " %s, %" PRId64 " windows, %.2f epochs in %" PRId64 " steps\n",
                trained->tokens, units, trained->windows,
                epochs_of(data, i, (double)steps * (double)o->global_batch), steps);
    }
}
