/* apps/gpt_train/text_data.c - see text_data.h. Files are read with pread: shared by all ranks, no copy.
 */
#include "apps/gpt_train/text_data.h"
#include "core/numerics/random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct text_file {
    char *name;
    int descriptor;
    int64_t first; /* place of its first byte in the whole text */
} text_file;

struct app_text_data {
    text_file *files;
    int64_t file_count;
    int64_t size, train_size;
    double val_fraction;
    int64_t seq_len;
    uint64_t key;
};

static wf_status open_file(app_text_data *data, text_file *file, const char *name,
                           wf_error *error)
{
    struct stat info;

    file->name = strdup(name);
    if (!file->name)
        return wf_error_set(error, WF_ENOMEM, "no memory for the data file's name");
    /* This does not wait for a writer where the name is a pipe's. */
    file->descriptor = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->descriptor < 0 || fstat(file->descriptor, &info))
        return wf_error_set(error, WF_EIO, "cannot open data file %s: %s", name,
                            strerror(errno));
    if (!S_ISREG(info.st_mode))
        return wf_error_set(error, WF_EIO, "data file %s is %s; --data takes regular files",
                            name, S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    if (!info.st_size)
        return wf_error_set(error, WF_EINVAL, "data file %s is empty; leave it out of --data",
                            name);
    file->first = data->size;
    data->size += info.st_size;
    return WF_OK;
}

static wf_status check_part(const app_text_data *data, app_text_part part, wf_error *error)
{
    long long have = app_text_data_size(data, part), need = data->seq_len + 1;

    if (have >= need)
        return WF_OK;
    if (have < 2)
        return wf_error_set(
            error, WF_EINVAL,
            "the %s part has %lld of the data's %lld bytes (--val-fraction %g), and "
            "the shortest sequence needs 2; use more --data, or another "
            "--val-fraction",
            part == APP_TEXT_TRAIN ? "training" : "validation", have, (long long)data->size,
            data->val_fraction);
    return wf_error_set(
        error, WF_EINVAL,
        "a sequence of --seq-len %lld needs %lld bytes (one more, for the last target), but "
        "the "
        "%s part has %lld of the data's %lld (--val-fraction %g); use a --seq-len of at most "
        "%lld, more --data, or another --val-fraction",
        (long long)data->seq_len, need, part == APP_TEXT_TRAIN ? "training" : "validation",
        have, (long long)data->size, data->val_fraction, have - 1);
}

wf_status app_text_data_open(const app_text_options *options, app_text_data **data,
                             wf_error *error)
{
    app_text_data *d = calloc(1, sizeof *d);
    wf_status status = WF_OK;

    *data = NULL;
    if (d)
        d->files = calloc((size_t)options->file_count + 1, sizeof *d->files);
    if (!d || !d->files) {
        free(d);
        return wf_error_set(error, WF_ENOMEM, "no memory for the list of data files");
    }
    d->seq_len = options->seq_len;
    d->val_fraction = options->val_fraction;
    d->key = wf_random_key(options->seed, WF_RANDOM_DATA);
    if (!options->file_count)
        status = wf_error_set(error, WF_EINVAL, "no data file was given; use --data FILE...");
    for (int64_t i = 0; i < options->file_count && status == WF_OK; i++) {
        d->files[i].descriptor = -1;
        d->file_count = i + 1;
        status = open_file(d, &d->files[i], options->files[i], error);
    }
    d->train_size = d->size - (int64_t)((double)d->size * options->val_fraction);
    if (status == WF_OK)
        status = check_part(d, APP_TEXT_TRAIN, error);
    if (status == WF_OK && options->validates)
        status = check_part(d, APP_TEXT_VALIDATION, error);
    if (status == WF_OK)
        *data = d;
    else
        app_text_data_close(d);
    return status;
}

void app_text_data_close(app_text_data *data)
{
    if (!data)
        return;
    for (int64_t i = 0; i < data->file_count; i++) {
        if (data->files[i].descriptor >= 0)
            close(data->files[i].descriptor);
        free(data->files[i].name);
    }
    free(data->files);
    free(data);
}

int64_t app_text_data_size(const app_text_data *data, app_text_part part)
{
    return part == APP_TEXT_TRAIN ? data->train_size : data->size - data->train_size;
}

/* The file that holds a byte of the whole text. */
static const text_file *file_at(const app_text_data *data, int64_t at)
{
    int64_t low = 0, high = data->file_count;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (data->files[middle].first <= at)
            low = middle;
        else
            high = middle;
    }
    return &data->files[low];
}

/* size bytes of the whole text, which may lie in several files. */
static wf_status read_bytes(const app_text_data *data, int64_t at, unsigned char *to,
                            int64_t size, wf_error *error)
{
    while (size) {
        const text_file *file = file_at(data, at);
        bool is_last = file == data->files + data->file_count - 1;
        int64_t end = is_last ? data->size : file[1].first;
        int64_t wanted = end - at < size ? end - at : size;
        ssize_t got = pread(file->descriptor, to, (size_t)wanted, at - file->first);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return wf_error_set(error, WF_EIO, "cannot read data file %s: %s", file->name,
                                got < 0 ? strerror(errno)
                                        : "it became shorter while it was in use");
        at += got;
        to += got;
        size -= got;
    }
    return WF_OK;
}

/* Where a sequence begins. Validation draws from streams that no step reaches. */
static int64_t start_of(const app_text_data *data, app_text_part part, int64_t batch,
                        int64_t index)
{
    bool validation = part == APP_TEXT_VALIDATION;
    uint64_t stream = (uint64_t)batch | (validation ? UINT64_C(1) << 63 : 0);
    uint64_t starts = (uint64_t)(app_text_data_size(data, part) - data->seq_len);

    return (int64_t)wf_random_below(data->key, stream, (uint64_t)index, starts) +
           (validation ? data->train_size : 0);
}

wf_status app_text_data_read(const app_text_data *data, app_text_part part, int64_t batch,
                             int64_t first, int64_t count, int32_t *tokens, int32_t *targets,
                             wf_error *error)
{
    int64_t length = data->seq_len;
    wf_status status = check_part(data, part, error);
    unsigned char *bytes = status == WF_OK ? malloc((size_t)length + 1) : NULL;

    if (status != WF_OK)
        return status;
    if (!bytes)
        return wf_error_set(error, WF_ENOMEM, "no memory for a sequence of the data");
    for (int64_t s = 0; s < count && status == WF_OK; s++) {
        status =
            read_bytes(data, start_of(data, part, batch, first + s), bytes, length + 1, error);
        for (int64_t i = 0; i < length && status == WF_OK; i++) {
            tokens[s * length + i] = bytes[i];
            targets[s * length + i] = bytes[i + 1];
        }
    }
    free(bytes);
    return status;
}
