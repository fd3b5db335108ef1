/* parallel/check/files.c - safetensors of a file or a folder, whole tensors by name. */
#include "parallel/check/check_internal.h"
#include "parallel/formats/convert_internal.h"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char ending[] = ".safetensors";

int64_t wf_check_entry_count(const wf_safetensors_entry *entry)
{
    int64_t n = 1;

    for (int d = 0; d < entry->ndim; d++)
        n *= entry->shape[d];
    return n;
}

const char *wf_check_shape(int ndim, const int64_t *shape, char text[96])
{
    size_t used = (size_t)snprintf(text, 96, "[");

    for (int d = 0; d < ndim && used < 70; d++)
        used += (size_t)snprintf(text + used, 96 - used, "%s%lld", d ? ", " : "",
                                 (long long)shape[d]);
    snprintf(text + used, 96 - used, "]");
    return text;
}

static wf_status check_magic(const wf_file *file, wf_error *error)
{
    char magic[2] = "";

    if (file->bytes < 2 || wf_file_read(file, magic, 2, 0, error) != WF_OK)
        return error->code;
    if (memcmp(magic, "PK", 2) == 0 || memcmp(magic, "\x80\x02", 2) == 0)
        return wf_error_set(error, WF_EUNSUPPORTED,
                            "%s is a pickle of torch, which may run code when it is read: "
                            "python3 -m weft_hooks.convert makes it safetensors",
                            file->path);
    return WF_OK;
}

static wf_status add_file(wf_check_files *files, const char *path, wf_error *error)
{
    wf_check_file *grown =
                      realloc(files->file, (size_t)(files->count + 1) * sizeof *files->file),
                  *f;

    if (!grown)
        return wf_error_set(error, WF_ENOMEM, "no memory for a list of files");
    files->file = grown;
    f = &files->file[files->count];
    *f = (wf_check_file){.used = NULL};
    if (wf_file_open(&f->file, &wf_system_files, path, WF_FILE_READ, error) != WF_OK)
        return error->code;
    files->count++;
    if (check_magic(&f->file, error) != WF_OK ||
        wf_safetensors_read(&f->header, &f->file, error) != WF_OK)
        return error->code;
    f->used = calloc((size_t)f->header.count + 1, sizeof *f->used);
    return f->used ? WF_OK : wf_error_set(error, WF_ENOMEM, "no memory for a list of tensors");
}

static int has_ending(const struct dirent *entry)
{
    size_t n = strlen(entry->d_name);

    return n >= sizeof ending && strcmp(entry->d_name + n - sizeof ending + 1, ending) == 0;
}

static wf_status add_folder(wf_check_files *files, const char *folder, wf_error *error)
{
    struct dirent **name = NULL;
    char path[WF_FILES_PATH];
    int n = scandir(folder, &name, has_ending, alphasort);

    if (n < 0)
        return wf_error_set(error, WF_EIO, "%s: %s", folder, strerror(errno));
    if (n == 0)
        wf_error_set(error, WF_EIO, "%s has no file that ends with %s", folder, ending);
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%.3800s/%s", folder, name[i]->d_name);
        if (error->code == WF_OK)
            add_file(files, path, error);
        free(name[i]);
    }
    free(name);
    return error->code;
}

/* A name is in one file. */
static wf_status check_once(const wf_check_files *files, wf_error *error)
{
    for (int64_t a = 0; a < files->count; a++)
        for (int64_t b = a + 1; b < files->count; b++)
            for (int64_t i = 0; i < files->file[a].header.count; i++) {
                const char *name = files->file[a].header.entry[i].name;

                if (wf_safetensors_find(&files->file[b].header, name))
                    return wf_error_set(
                        error, WF_EDATA,
                        "\"%s\" is in both %s and %s: parts of ranks have to be put together "
                        "first (python3 -m weft_hooks.convert)",
                        name, files->file[a].file.path, files->file[b].file.path);
            }
    return WF_OK;
}

wf_status wf_check_files_open(wf_check_files *files, const char *path, wf_error *error)
{
    struct stat s;

    *files = (wf_check_files){.path = path};
    if (stat(path, &s) != 0)
        return wf_error_set(error, WF_EIO, "%s: %s", path, strerror(errno));
    if ((S_ISDIR(s.st_mode) ? add_folder : add_file)(files, path, error) != WF_OK)
        return error->code;
    return check_once(files, error);
}

void wf_check_files_close(wf_check_files *files)
{
    for (int64_t i = 0; i < files->count; i++) {
        wf_file_close(&files->file[i].file, NULL);
        wf_safetensors_close(&files->file[i].header);
        free(files->file[i].used);
    }
    free(files->file);
    *files = (wf_check_files){.path = NULL};
}

const wf_safetensors_entry *wf_check_files_find(wf_check_files *files, const char *name,
                                                int64_t *file)
{
    for (int64_t i = 0; i < files->count; i++) {
        wf_check_file *f = &files->file[i];
        const wf_safetensors_entry *e = wf_safetensors_find(&f->header, name);

        if (e) {
            f->used[e - f->header.entry] = true;
            *file = i;
            return e;
        }
    }
    return NULL;
}

const char *wf_check_files_unused(const wf_check_files *files)
{
    for (int64_t i = 0; i < files->count; i++)
        for (int64_t k = 0; k < files->file[i].header.count; k++)
            if (!files->file[i].used[k])
                return files->file[i].header.entry[k].name;
    return NULL;
}

/* All bytes of a tensor. */
static char *read_bytes(const wf_check_files *files, const wf_safetensors_entry *entry,
                        int64_t file, wf_error *error)
{
    const wf_check_file *f = &files->file[file];
    char *bytes = malloc((size_t)(entry->end - entry->begin) + 1);

    if (!bytes)
        wf_error_set(error, WF_ENOMEM, "no memory for \"%s\"", entry->name);
    else if (wf_file_read(&f->file, bytes, (size_t)(entry->end - entry->begin),
                          f->header.data + entry->begin, error) != WF_OK) {
        free(bytes);
        bytes = NULL;
    }
    return bytes;
}

wf_status wf_check_files_floats(const wf_check_files *files, const wf_safetensors_entry *entry,
                                int64_t file, float **numbers, wf_error *error)
{
    const int64_t n = wf_check_entry_count(entry);
    char *bytes;

    *numbers = NULL;
    if (!wf_converts(entry->dtype) && entry->dtype != WF_ST_F64)
        return wf_error_set(
            error, WF_EDATA,
            "%s: \"%s\" is %s, and numbers are read from F64, F32, BF16 and F16",
            files->file[file].file.path, entry->name, wf_safetensors_dtype_name(entry->dtype));
    bytes = read_bytes(files, entry, file, error);
    *numbers = bytes ? malloc((size_t)n * sizeof **numbers + 1) : NULL;
    if (bytes && !*numbers)
        wf_error_set(error, WF_ENOMEM, "no memory for \"%s\"", entry->name);
    for (int64_t i = 0; *numbers && entry->dtype == WF_ST_F64 && i < n; i++) {
        double x;

        memcpy(&x, bytes + i * (int64_t)sizeof x, sizeof x);
        (*numbers)[i] = (float)x;
    }
    if (*numbers && entry->dtype != WF_ST_F64)
        wf_convert_from(entry->dtype, bytes, *numbers, n);
    free(bytes);
    return error->code;
}

static int64_t integer_at(const char *bytes, wf_safetensors_dtype dtype, int64_t i)
{
    int64_t wide;
    int32_t narrow;

    if (dtype == WF_ST_I64) {
        memcpy(&wide, bytes + i * (int64_t)sizeof wide, sizeof wide);
        return wide;
    }
    if (dtype != WF_ST_I32)
        return (unsigned char)bytes[i];
    memcpy(&narrow, bytes + i * (int64_t)sizeof narrow, sizeof narrow);
    return narrow;
}

wf_status wf_check_files_integers(const wf_check_files *files,
                                  const wf_safetensors_entry *entry, int64_t file,
                                  int64_t **numbers, wf_error *error)
{
    const int64_t n = wf_check_entry_count(entry);
    const wf_safetensors_dtype d = entry->dtype;
    char *bytes;

    *numbers = NULL;
    if (d != WF_ST_I64 && d != WF_ST_I32 && d != WF_ST_U8 && d != WF_ST_BOOL)
        return wf_error_set(
            error, WF_EDATA,
            "%s: \"%s\" is %s, and whole numbers are read from I64, I32, U8 and "
            "BOOL",
            files->file[file].file.path, entry->name, wf_safetensors_dtype_name(d));
    bytes = read_bytes(files, entry, file, error);
    *numbers = bytes ? malloc((size_t)n * sizeof **numbers + 1) : NULL;
    if (bytes && !*numbers)
        wf_error_set(error, WF_ENOMEM, "no memory for \"%s\"", entry->name);
    for (int64_t i = 0; *numbers && i < n; i++)
        (*numbers)[i] = integer_at(bytes, d, i);
    free(bytes);
    return error->code;
}
