/* nn/dataset/source.c - see source.h. */
#include "nn/dataset/source.h"
#include "nn/dataset/manifest.h"
#include "core/numerics/bits.h"
#include "core/files/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Checks a file against the one before it. */
static wf_status check_beside(const wf_dataset_source *source, const wf_token_file *before,
                              const wf_token_file *file, const char *flag, wf_error *error)
{
    if (strcmp(before->format, "Megatron") == 0 && strcmp(before->name, file->name) == 0)
        return wf_error_set(error, WF_EINVAL,
                            "%s, source %s: %s is named twice; of a pair of .bin and .idx "
                            "files name one",
                            flag, source->name, file->name);
    if (before->is_text != file->is_text)
        return wf_error_set(
            error, WF_EINVAL,
            "%s, source %s: %s has %s and %s has %s; convert the text to token ids too", flag,
            source->name, before->name, before->is_text ? "text" : "token ids", file->name,
            file->is_text ? "text" : "token ids");
    return WF_OK;
}

/* X.loss.idx beside X.bin, whose numbers wf_dataset_source_read_mask looks at. */
static wf_status open_mask(wf_dataset_source_part *part, const char *flag, wf_error *error)
{
    const wf_token_file *file = &part->file;
    size_t size = strlen(file->name) + 8;
    char *name = malloc(size);
    wf_status status = WF_OK;

    if (!name)
        return wf_error_set(error, WF_ENOMEM, "no memory for the name of a loss mask");
    snprintf(name, size, "%.*s.loss.idx", (int)strlen(file->name) - 4, file->name);
    part->masked = access(name, F_OK) == 0;
    if (part->masked)
        status = wf_token_file_open(name, flag, (wf_token_count){INT32_MAX, true}, &part->mask,
                                    error);
    if (status == WF_OK && part->masked && part->mask.tokens != file->tokens)
        status = wf_error_set(
            error, WF_EDATA, "%s has a number for each of %lld tokens, and %s has %lld tokens",
            name, (long long)part->mask.tokens, file->name, (long long)file->tokens);
    free(name);
    return status;
}

static bool ends_with(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);

    return n > m && strcmp(name + n - m, ending) == 0;
}

static wf_status open_part(wf_dataset_source *source, const char *name, const char *flag,
                           wf_token_count vocabulary, wf_error *error)
{
    wf_dataset_source_part *part = &source->part[source->parts++];
    wf_status status;

    if (ends_with(name, WF_DATASET_MANIFEST_ENDING))
        return wf_error_set(
            error, WF_EINVAL,
            "%s, source %s: %s says which files belong together, and is no data; "
            "name %.*s.idx alone",
            flag, source->name, name, (int)(strlen(name) - strlen(WF_DATASET_MANIFEST_ENDING)),
            name);
    status = wf_token_file_open(name, flag, vocabulary, &part->file, error);

    if (status == WF_OK && source->parts > 1)
        status = check_beside(source, &part[-1].file, &part->file, flag, error);
    if (status == WF_OK && strcmp(part->file.format, "Megatron") == 0)
        status = open_mask(part, flag, error);
    if (status == WF_OK && ends_with(part->file.name, ".bin"))
        status = wf_dataset_manifest_check(part->file.name, error);
    part->first = source->tokens;
    source->tokens += part->file.tokens;
    source->masked = source->masked || part->masked;
    return status;
}

wf_status wf_dataset_source_open(const wf_dataset_source_files *files, const char *flag,
                                 wf_token_count vocabulary, wf_dataset_source *source,
                                 wf_error *error)
{
    wf_status status = WF_OK;

    *source = (wf_dataset_source){.name = strdup(files->name), .weight = files->weight};
    source->part = calloc((size_t)files->count, sizeof *source->part);
    if (!source->name || !source->part)
        return wf_error_set(error, WF_ENOMEM, "no memory for the list of data files");
    for (int64_t i = 0; i < files->count && status == WF_OK; i++)
        status = open_part(source, files->file[i], flag, vocabulary, error);
    source->is_text = source->part[0].file.is_text;
    return status;
}

void wf_dataset_source_close(wf_dataset_source *source)
{
    for (int64_t i = 0; i < source->parts; i++) {
        wf_token_file_close(&source->part[i].file);
        if (source->part[i].masked)
            wf_token_file_close(&source->part[i].mask);
    }
    free(source->part);
    free(source->name);
    *source = (wf_dataset_source){.parts = 0};
}

static wf_status add_fingerprint(const wf_token_file *file, uint64_t *fingerprint,
                                 wf_error *error)
{
    uint64_t own;

    if (wf_output_fingerprint(file->descriptor, file->name, &own, error) == WF_OK)
        *fingerprint = wf_mix64(*fingerprint ^ own);
    return error->code;
}

wf_status wf_dataset_source_fingerprint(const wf_dataset_source *source, uint64_t *fingerprint,
                                        wf_error *error)
{
    for (int64_t i = 0; i < source->parts; i++)
        if (add_fingerprint(&source->part[i].file, fingerprint, error) != WF_OK ||
            (source->part[i].masked &&
             add_fingerprint(&source->part[i].mask, fingerprint, error) != WF_OK))
            return error->code;
    return WF_OK;
}

/* Returns the part that holds a token. */
static const wf_dataset_source_part *part_at(const wf_dataset_source *source, int64_t token)
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

/* Numbers of tokens first .. first + count - 1, part by part. */
static wf_status read_parts(const wf_dataset_source *source, int64_t first, int64_t count,
                            wf_status (*read)(const wf_dataset_source_part *part, int64_t at,
                                              int64_t count, int32_t *to, wf_error *error),
                            int32_t *to, wf_error *error)
{
    while (count) {
        const wf_dataset_source_part *part = part_at(source, first);
        int64_t at = first - part->first, left = part->file.tokens - at;
        int64_t some = count < left ? count : left;

        if (read(part, at, some, to, error) != WF_OK)
            return error->code;
        first += some;
        count -= some;
        to += some;
    }
    return WF_OK;
}

static wf_status read_ids(const wf_dataset_source_part *part, int64_t at, int64_t count,
                          int32_t *ids, wf_error *error)
{
    return wf_token_file_read(&part->file, at, count, ids, error);
}

wf_status wf_dataset_source_read(const wf_dataset_source *source, int64_t first, int64_t count,
                                 int32_t *ids, wf_error *error)
{
    return read_parts(source, first, count, read_ids, ids, error);
}

/* Reads the loss mask of one part. */
static wf_status read_mask(const wf_dataset_source_part *part, int64_t at, int64_t count,
                           int32_t *trained, wf_error *error)
{
    for (int64_t i = 0; !part->masked && i < count; i++)
        trained[i] = 1;
    if (!part->masked)
        return WF_OK;
    if (wf_token_file_read(&part->mask, at, count, trained, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < count; i++)
        if (trained[i] > 1)
            return wf_error_set(error, WF_EDATA,
                                "%s: number %lld is %d; a token is trained on (1) or not (0)",
                                part->mask.name, (long long)(at + i), trained[i]);
    return WF_OK;
}

wf_status wf_dataset_source_read_mask(const wf_dataset_source *source, int64_t first,
                                      int64_t count, int32_t *trained, wf_error *error)
{
    return read_parts(source, first, count, read_mask, trained, error);
}

bool wf_dataset_source_has_documents(const wf_dataset_source *source)
{
    bool has_documents = true;

    for (int64_t i = 0; i < source->parts; i++)
        has_documents = has_documents && source->part[i].file.documents.index.documents > 0;
    return has_documents;
}

static wf_status read_documents(const wf_dataset_source_part *part, int64_t at, int64_t count,
                                int32_t *begins, wf_error *error)
{
    const wf_megatron_documents *d = &part->file.documents;

    if (d->index.documents)
        return wf_megatron_documents_begin(d, at, count, begins, error);
    memset(begins, -1, (size_t)count * sizeof *begins); /* begins follow from the ids */
    begins[0] = at == 0 ? 1 : -1;
    return WF_OK;
}

wf_status wf_dataset_source_documents(const wf_dataset_source *source, int64_t first,
                                      int64_t count, const int32_t *ids, int32_t ends,
                                      int32_t *begins, wf_error *error)
{
    if (read_parts(source, first, count, read_documents, begins, error) != WF_OK)
        return error->code;
    for (int64_t i = 0; i < count; i++)
        if (begins[i] < 0)
            begins[i] = i > 0 && ends >= 0 && ids[i - 1] == ends;
    return WF_OK;
}
