/* parallel/formats/hf_files.c - the weights of a folder; see the header. */
#include "parallel/formats/hf_files_internal.h"
#include "core/files/folder_internal.h"
#include "parallel/formats/json_internal.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_BYTES = 16 << 20, INDEX_DEPTH = 8, MOST_FILES = 10000 };

static const char single[] = "model.safetensors", index_name[] = "model.safetensors.index.json";

/* "folder/name"; NULL where memory is short. */
static char *join(const char *folder, const char *name)
{
    size_t n = strlen(folder) + strlen(name) + 2;
    char *path = malloc(n);

    if (path)
        snprintf(path, n, "%s/%s", folder, name);
    return path;
}

static bool good_name(const char *name)
{
    static const char end[] = ".safetensors";
    size_t n = strlen(name), m = sizeof end - 1;

    return n > m && n < NAME_MAX && strcmp(name + n - m, end) == 0 && !strchr(name, '/') &&
           name[0] != '.' && wf_json_printable(name);
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void free_names(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* The values of a weight map, sorted, each once, as copies. */
static wf_status collect(const char *name, const json_t *map, char ***files, int64_t *count,
                         wf_error *error)
{
    const char **all = calloc(json_object_size(map) + 1, sizeof *all), *key;
    wf_status status = WF_OK;
    size_t n = 0, different = 0;
    json_t *value;

    json_object_foreach((json_t *)map, key, value)
    {
        const char *text = json_string_value(value);

        if (status == WF_OK && !(text && good_name(text)))
            status = wf_error_set(error, WF_EDATA,
                                  "%s: a file in \"weight_map\" is no name of a .safetensors "
                                  "file in the same folder",
                                  name);
        if (all && status == WF_OK)
            all[n++] = text;
    }
    if (n)
        qsort(all, n, sizeof *all, by_text);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || strcmp(all[i], all[different - 1]) != 0)
            all[different++] = all[i];
    if (status == WF_OK && different > MOST_FILES)
        status = wf_error_set(error, WF_EDATA, "%s names more than %d files", name, MOST_FILES);
    *files = all && status == WF_OK ? calloc(different + 1, sizeof **files) : NULL;
    if (!*files && status == WF_OK)
        status = wf_error_set(error, WF_ENOMEM, "no memory for the files of %s", name);
    for (*count = 0; status == WF_OK && *count < (int64_t)different; ++*count)
        if (!((*files)[*count] = strdup(all[*count])))
            status = wf_error_set(error, WF_ENOMEM, "no memory for the files of %s", name);
    if (status != WF_OK) {
        free_names(*files, *files ? *count : 0);
        *files = NULL;
        *count = 0;
    }
    free(all);
    return status;
}

wf_status wf_hf_index_parse(const char *name, const char *text, size_t bytes, char ***files,
                            int64_t *count, wf_error *error)
{
    wf_json_source s = {.name = name, .error = error};
    const json_t *map;
    json_t *object;
    wf_status status = wf_json_parse(&object, name, text, bytes, INDEX_DEPTH, error);

    *files = NULL;
    *count = 0;
    if (status != WF_OK)
        return status;
    s.object = object;
    status = wf_json_object(&s, "weight_map", &map);
    if (status == WF_OK && json_object_size(map) == 0)
        status = wf_error_set(error, WF_EDATA, "%s: \"weight_map\" is empty", name);
    if (status == WF_OK)
        status = collect(name, map, files, count, error);
    json_decref(object);
    return status;
}

static bool is_pickle(const char *name)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".ckpt", ".pkl"};

    for (size_t k = 0; k < sizeof pickles / sizeof *pickles; k++) {
        size_t length = strlen(name), end = strlen(pickles[k]);

        if (length > end && strcmp(name + length - end, pickles[k]) == 0)
            return true;
    }
    return false;
}

/* Reports a folder without safetensors: it may have a pickle, which runs code when it is
   opened. */
static wf_status no_weights(const wf_hf_files *files, wf_error *error)
{
    const char *folder = files->folder;
    char **names = NULL;
    int64_t n = 0;
    wf_folder open;
    wf_status status = wf_folder_open(&open, files->calls, folder, error);

    if (status == WF_OK)
        status = wf_folder_list(&open, &names, &n, error);
    wf_folder_close(&open);
    for (int64_t i = 0; i < n && status == WF_OK; i++)
        if (is_pickle(names[i]))
            status = wf_error_set(error, WF_EUNSUPPORTED,
                                  "%s/%s is a pickle, which can run code when it is opened; "
                                  "convert it first, "
                                  "where you trust it: python3 -c \"from transformers import "
                                  "AutoModelForCausalLM as M; "
                                  "M.from_pretrained('%s').save_pretrained('%s')\"",
                                  folder, names[i], folder, folder);
    wf_folder_free_names(names, n);
    if (status != WF_OK)
        return status;
    return wf_error_set(error, WF_EIO, "%s has neither %s nor %s: it is no folder of weights",
                        folder, single, index_name);
}

/* Also what cannot be looked at: to open it says why. */
static bool exists(const char *folder, const char *name)
{
    char *path = join(folder, name);
    bool there = path && (access(path, F_OK) == 0 || errno != ENOENT);

    free(path);
    return there;
}

/* The names of the files, and of an index its text, which the caller frees. */
static wf_status list_files(const wf_hf_files *files, char ***names, int64_t *count,
                            char **index, size_t *bytes, wf_error *error)
{
    char *path;
    wf_status status;

    if (!wf_hf_files_there(files->folder))
        return no_weights(files, error);
    if (exists(files->folder, single)) {
        *names = calloc(1, sizeof **names);
        *count = *names && ((*names)[0] = strdup(single));
        return *count ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for a name");
    }
    path = join(files->folder, index_name);
    if (!path)
        return wf_error_set(error, WF_ENOMEM, "no memory for a name");
    status = wf_files_read(files->calls, path, INDEX_BYTES, index, bytes, error);
    if (status == WF_OK)
        status = wf_hf_index_parse(path, *index, *bytes, names, count, error);
    free(path);
    return status;
}

static wf_status read_header(wf_hf_files *files, const char *name, wf_error *error)
{
    wf_hf_file *f = &files->file[files->count++];
    wf_file file;
    wf_status status;

    f->path = join(files->folder, name);
    if (!f->path)
        return wf_error_set(error, WF_ENOMEM, "no memory for a name");
    status = wf_file_open(&file, files->calls, f->path, WF_FILE_READ, error);
    if (status != WF_OK)
        return status;
    status = wf_safetensors_read(&f->header, &file, error);
    wf_file_close(&file, NULL);
    f->used = calloc((size_t)f->header.count + 1, sizeof *f->used);
    if (status == WF_OK && !f->used)
        status = wf_error_set(error, WF_ENOMEM, "no memory for the header of %s", f->path);
    return status;
}

/* The file of the folder that has this name; NULL: none. */
static const wf_hf_file *file_of(const wf_hf_files *files, const char *name)
{
    for (int64_t i = 0; i < files->count; i++)
        if (strcmp(files->file[i].path + strlen(files->folder) + 1, name) == 0)
            return &files->file[i];
    return NULL;
}

/* Refuses an index with a tensor that its file does not have: the files are of several models,
   or one was not downloaded whole. */
static wf_status check_index(const wf_hf_files *files, const char *text, size_t bytes,
                             wf_error *error)
{
    json_t *object, *value;
    const char *key;
    wf_status status = wf_json_parse(&object, index_name, text, bytes, INDEX_DEPTH, error);

    json_object_foreach(json_object_get(object, "weight_map"), key, value)
    {
        const wf_hf_file *f = file_of(files, json_string_value(value));

        if (status == WF_OK && !(f && wf_safetensors_find(&f->header, key)))
            status = wf_error_set(error, WF_EDATA,
                                  "%s/%s: tensor \"%.200s\" is not in %s, where it says so",
                                  files->folder, index_name, wf_json_printable(key) ? key : "?",
                                  json_string_value(value));
    }
    json_decref(object);
    return status;
}

bool wf_hf_files_there(const char *folder)
{
    return exists(folder, single) || exists(folder, index_name);
}

wf_status wf_hf_files_open(wf_hf_files *files, const wf_file_calls *calls, const char *folder,
                           wf_error *error)
{
    char **names = NULL, *index = NULL;
    size_t bytes = 0;
    int64_t n = 0;
    wf_status status;

    *files = (wf_hf_files){.calls = calls, .folder = strdup(folder), .open = -1};
    if (!files->folder)
        return wf_error_set(error, WF_ENOMEM, "no memory for a name");
    status = list_files(files, &names, &n, &index, &bytes, error);
    if (status == WF_OK && !(files->file = calloc((size_t)n, sizeof *files->file)))
        status = wf_error_set(error, WF_ENOMEM, "no memory for %lld headers", (long long)n);
    for (int64_t i = 0; i < n && status == WF_OK; i++)
        status = read_header(files, names[i], error);
    if (status == WF_OK && index)
        status = check_index(files, index, bytes, error);
    free(index);
    free_names(names, n);
    return status;
}

void wf_hf_files_close(wf_hf_files *files)
{
    if (files->open >= 0)
        wf_file_close(&files->reader, NULL);
    for (int64_t i = 0; i < files->count; i++) {
        wf_safetensors_close(&files->file[i].header);
        free(files->file[i].path);
        free(files->file[i].used);
    }
    free(files->file);
    free(files->folder);
    *files = (wf_hf_files){.open = -1};
}

const wf_safetensors_entry *wf_hf_find(wf_hf_files *files, const char *name, int64_t *file)
{
    for (int64_t i = 0; i < files->count; i++) {
        const wf_safetensors *h = &files->file[i].header;
        const wf_safetensors_entry *e = wf_safetensors_find(h, name);

        if (!e)
            continue;
        files->file[i].used[e - h->entry] = true;
        *file = i;
        return e;
    }
    return NULL;
}

wf_status wf_hf_reader(wf_hf_files *files, int64_t file, const wf_file **reader,
                       wf_error *error)
{
    wf_status status;

    *reader = &files->reader;
    if (files->open == file)
        return WF_OK;
    if (files->open >= 0)
        wf_file_close(&files->reader, NULL);
    status =
        wf_file_open(&files->reader, files->calls, files->file[file].path, WF_FILE_READ, error);
    files->open = status == WF_OK ? file : -1;
    return status;
}

const char *wf_hf_unused(const wf_hf_files *files, bool (*idle)(const char *name))
{
    for (int64_t i = 0; i < files->count; i++)
        for (int64_t k = 0; k < files->file[i].header.count; k++)
            if (!files->file[i].used[k] && !idle(files->file[i].header.entry[k].name))
                return files->file[i].header.entry[k].name;
    return NULL;
}
