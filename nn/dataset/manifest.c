/* nn/dataset/manifest.c - see the header. */
#include "nn/dataset/manifest.h"
#include "nn/dataset/token_file.h"
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { VERSION = 1, PATH = 4200, HASH = 17 };

static const char *const endings[WF_DATASET_MANIFEST_PARTS] = {
    ".bin", ".idx", WF_DATASET_MANIFEST_MASK ".bin", WF_DATASET_MANIFEST_MASK ".idx"};

/* Returns the size and fingerprint of an open file. */
static json_t *describe(int fd, const char *path, wf_error *error)
{
    char hash[HASH];
    uint64_t fingerprint;
    struct stat s;

    if (wf_output_fingerprint(fd, path, &fingerprint, error) != WF_OK)
        return NULL;
    if (fstat(fd, &s) != 0) {
        wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
        return NULL;
    }
    snprintf(hash, sizeof hash, "%016" PRIx64, fingerprint);
    return json_pack("{s:I, s:s}", "bytes", (json_int_t)s.st_size, "xxh3", hash);
}

static wf_status write_manifest(wf_output *manifest, const wf_dataset_manifest_part *part,
                                int parts, int64_t tokens, int64_t documents, wf_error *error)
{
    FILE *stream = wf_output_stream(manifest);
    json_t *all = json_object(), *json = NULL;
    uint64_t random = 0;
    char id[HASH];

    for (int i = 0; i < parts && error->code == WF_OK; i++) {
        const char *path = wf_output_path(part[i].output);
        FILE *file = wf_output_stream(part[i].output);

        if (!file || fflush(file) != 0)
            return wf_output_failed(part[i].output, error);
        json_object_set_new(all, part[i].ending, describe(fileno(file), path, error));
    }
    if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
        wf_error_set(error, WF_EIO, "no random number for the id of a dataset: %s",
                     strerror(errno));
    snprintf(id, sizeof id, "%016" PRIx64, random);
    json = json_pack("{s:i, s:s, s:I, s:I, s:o}", "weft_dataset", VERSION, "id", id, "tokens",
                     (json_int_t)tokens, "documents", (json_int_t)documents, "parts", all);
    if (error->code == WF_OK && !json)
        wf_error_set(error, WF_ENOMEM, "no memory for %s", wf_output_path(manifest));
    else if (error->code == WF_OK &&
             (!stream || json_dumpf(json, stream, JSON_INDENT(2)) != 0 ||
              fputc('\n', stream) == EOF))
        wf_output_failed(manifest, error);
    json_decref(json);
    return error->code;
}

/* Names in the set's folder that an older one may have had, and this one has not. */
typedef struct stale_names {
    char text[3][300];
    const char *name[3];
    int count;
} stale_names;

static void add_stale(stale_names *s, const char *prefix, const char *ending)
{
    const char *slash = strrchr(prefix, '/');

    snprintf(s->text[s->count], sizeof s->text[0], "%.255s%s", slash ? slash + 1 : prefix,
             ending);
    s->name[s->count] = s->text[s->count];
    s->count++;
}

wf_status wf_dataset_manifest_publish(const char *prefix, const wf_dataset_manifest_part *part,
                                      int parts, int64_t tokens, int64_t documents,
                                      wf_error *error)
{
    wf_output *all[WF_DATASET_MANIFEST_PARTS + 1] = {NULL};
    stale_names stale = {.count = 0};
    char path[PATH];
    int n = 0;

    snprintf(path, sizeof path, "%.4100s" WF_DATASET_MANIFEST_ENDING, prefix);
    all[n++] = wf_output_open(path, error);
    for (int i = parts - 1; i >= 2; i--)
        all[n++] = part[i].output;
    all[n++] = part[0].output;
    all[n++] = part[1].output;
    add_stale(&stale, prefix, WF_DATASET_MANIFEST_MASK WF_DATASET_MANIFEST_ENDING);
    if (parts == 2) {
        add_stale(&stale, prefix, WF_DATASET_MANIFEST_MASK ".idx");
        add_stale(&stale, prefix, WF_DATASET_MANIFEST_MASK ".bin");
    }
    if (all[0] && write_manifest(all[0], part, parts, tokens, documents, error) == WF_OK)
        return wf_output_publish_set(all, n, stale.name, stale.count, error);
    for (int i = 0; i < n; i++)
        wf_output_discard(all[i]);
    return error->code;
}

/* ---- reading ---- */

/* One part of a dataset beside its line in the manifest; NULL: the manifest has none. */
typedef struct check {
    const char *manifest, *id;
    const char *path;
    const json_t *expected;
} check;

static wf_status refuse(const check *c, const char *why, wf_error *error)
{
    return wf_error_set(error, WF_EDATA,
                        "%s %s %s (id %s), so these files are not of one dataset: remake it "
                        "(gpt_data), or remove %s where they do belong together",
                        c->path, why, c->manifest, c->id, c->manifest);
}

/* Checks a part. A file that cannot be opened is reported by its reader, except for required
   ones. */
static wf_status check_part(const check *c, wf_error *error)
{
    int fd = wf_dataset_file_open(c->path);
    int missing = errno;
    json_t *found;
    bool same;

    if (fd < 0 && !c->expected)
        return WF_OK;
    if (fd < 0)
        return missing == ENOENT ? refuse(c, "is missing, which was published by", error)
                                 : wf_error_set(error, WF_EIO, "cannot open data file %s: %s",
                                                c->path, strerror(missing));
    found = c->expected ? describe(fd, c->path, error) : NULL;
    close(fd);
    if (!c->expected)
        return refuse(c, "is no part of what was published by", error);
    same = found && json_equal(found, c->expected);
    json_decref(found);
    if (error->code != WF_OK || same)
        return error->code;
    return refuse(c, "is not the file that was published by", error);
}

static wf_status check_all(const char *manifest, const char *bin, const json_t *json,
                           wf_error *error)
{
    const json_t *parts = json_object_get(json, "parts"), *id = json_object_get(json, "id");
    const json_t *version = json_object_get(json, "weft_dataset");
    char path[PATH];

    if (json_integer_value(version) != VERSION || !json_is_object(parts) || !json_is_string(id))
        return wf_error_set(error, WF_EDATA,
                            "%s is no manifest of a dataset of version %d: remake the data "
                            "(gpt_data), or remove it",
                            manifest, VERSION);
    for (int i = 0; i < WF_DATASET_MANIFEST_PARTS && error->code == WF_OK; i++) {
        const check c = {manifest, json_string_value(id), path,
                         json_object_get(parts, endings[i])};

        snprintf(path, sizeof path, "%.*s%s", (int)strlen(bin) - 4, bin, endings[i]);
        check_part(&c, error);
    }
    return error->code;
}

wf_status wf_dataset_manifest_check(const char *bin, wf_error *error)
{
    json_error_t why;
    char path[PATH];
    wf_status status;
    json_t *json;
    FILE *file;
    int fd;

    if (snprintf(path, sizeof path, "%.*s" WF_DATASET_MANIFEST_ENDING, (int)strlen(bin) - 4,
                 bin) >= (int)sizeof path)
        return WF_OK; /* the name is longer than any file's */
    fd = wf_dataset_file_open(path);
    if (fd < 0 && errno == ENOENT)
        return WF_OK;
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (!file)
        return wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    json = json_loadf(file, JSON_REJECT_DUPLICATES, &why);
    fclose(file);
    if (!json)
        return wf_error_set(
            error, WF_EDATA,
            "%s is no manifest of a dataset (%s): remake the data (gpt_data), or remove it",
            path, why.text);
    status = check_all(path, bin, json, error);
    json_decref(json);
    return status;
}
