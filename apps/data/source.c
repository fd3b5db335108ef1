/* apps/data/source.c - see source.h. */
#include "apps/data/source.h"
#include <stdlib.h>
#include <string.h>

/* What can be said of a file beside the one before it. */
static wf_status check_beside(const app_source *source, const app_token_file *before,
                              const app_token_file *file, const char *flag, wf_error *error)
{
    if (strcmp(before->format, "Megatron") == 0 && strcmp(before->name, file->name) == 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s, source %s: %s is named twice; of a pair of .bin and .idx "
                            "files name one",
                            flag, source->name, file->name);
    if (before->is_text != file->is_text)
        return wf_error_set(error, WF_EINVAL,
                            "%s, source %s: %s has %s and %s has %s; turn the text into token "
                            "ids too",
                            flag, source->name, before->name,
                            before->is_text ? "text" : "token ids", file->name,
                            file->is_text ? "text" : "token ids");
    return WF_OK;
}

wf_status app_source_open(const app_source_files *files, const char *flag,
                          app_vocabulary vocabulary, app_source *source, wf_error *error)
{
    wf_status status = WF_OK;

    *source = (app_source){.name = strdup(files->name), .weight = files->weight};
    source->part = calloc((size_t)files->count, sizeof *source->part);
    if (!source->name || !source->part)
        return wf_error_set(error, WF_ENOMEM, "no memory for the list of data files");
    for (int64_t i = 0; i < files->count && status == WF_OK; i++) {
        app_source_part *part = &source->part[i];

        source->parts = i + 1;
        status = app_token_file_open(files->file[i], flag, vocabulary, &part->file, error);
        if (status == WF_OK && i)
            status = check_beside(source, &part[-1].file, &part->file, flag, error);
        part->first = source->tokens;
        source->tokens += part->file.tokens;
    }
    source->is_text = source->part[0].file.is_text;
    return status;
}

void app_source_close(app_source *source)
{
    for (int64_t i = 0; i < source->parts; i++)
        app_token_file_close(&source->part[i].file);
    free(source->part);
    free(source->name);
    *source = (app_source){.parts = 0};
}

/* The part that holds a token. */
static const app_source_part *part_at(const app_source *source, int64_t token)
{
    int64_t low = 0, high = source->parts;

    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;

        if (source->part[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return &source->part[low];
}

wf_status app_source_read(const app_source *source, int64_t first, int64_t count, int32_t *ids,
                          wf_error *error)
{
    while (count) {
        const app_source_part *part = part_at(source, first);
        int64_t at = first - part->first, left = part->file.tokens - at;
        int64_t some = count < left ? count : left;

        if (app_token_file_read(&part->file, at, some, ids, error) != WF_OK)
            return error->code;
        first += some;
        count -= some;
        ids += some;
    }
    return WF_OK;
}
