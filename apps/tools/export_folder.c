/* apps/tools/export_folder.c - see the header. */
#include "apps/tools/export_folder.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PART ".partial"
#define OLD  ".replaced"

/* Names in a folder, those of configs last. */
typedef struct names {
    struct dirent **entry;
    int count; /* -1: the folder cannot be read */
} names;

/* Without it a folder is no model for anybody, so it goes first and comes last. */
static bool is_config(const char *name)
{
    return strcmp(name, "config.json") == 0 || strcmp(name, "adapter_config.json") == 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    int x = is_config((*a)->d_name), y = is_config((*b)->d_name);

    return x == y ? strcmp((*a)->d_name, (*b)->d_name) : x - y;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);

    return n >= k && strcmp(name + n - k, end) == 0;
}

static int is_any(const struct dirent *entry)
{
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

/* What is a model's: an old tokenizer, template or adapter beside new weights would be taken for theirs. */
static int is_of_model(const struct dirent *entry)
{
    const char *name = entry->d_name, *of_model;

    for (int i = 0; (of_model = wf_par_pretrained_file(i)) != NULL; i++)
        if (strcmp(name, of_model) == 0)
            return 1;
    return is_config(name) || ends_with(name, ".safetensors") ||
           ends_with(name, ".safetensors.index.json");
}

/* The same, or what is left of a model that was being replaced. */
static int is_to_be_kept(const struct dirent *entry)
{
    return is_of_model(entry) || strcmp(entry->d_name, OLD) == 0;
}

static names list(int folder, int (*wanted)(const struct dirent *))
{
    names found = {.count = -1};

    found.count = scandirat(folder, ".", &found.entry, wanted, by_name);
    return found;
}

static void free_names(names *n)
{
    for (int i = 0; i < n->count; i++)
        free(n->entry[i]);
    free(n->entry);
}

static int open_folder(int in, const char *name, int flags)
{
    return openat(in, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | flags);
}

static void close_folder(int folder)
{
    if (folder >= 0)
        close(folder);
}

/* A folder with the files in it, or a link of that name; what is not there is fine. */
static bool remove_folder(int in, const char *name)
{
    int folder = open_folder(in, name, O_NOFOLLOW);
    names all;
    bool good = true;

    if (folder < 0)
        return unlinkat(in, name, 0) == 0 || errno == ENOENT;
    all = list(folder, is_any);
    for (int i = 0; i < all.count; i++)
        good = unlinkat(folder, all.entry[i]->d_name, 0) == 0 && good;
    good = all.count >= 0 && good;
    free_names(&all);
    close_folder(folder);
    return good && unlinkat(in, name, AT_REMOVEDIR) == 0;
}

/* Bring files from one folder to another, configs first or last. If one cannot be, those before it go back. */
static bool move_all(const names *n, int from, int to, bool configs_first)
{
    for (int k = 0; k < n->count; k++) {
        const char *name = n->entry[configs_first ? n->count - 1 - k : k]->d_name;
        int reason;

        if (renameat(from, name, to, name) == 0)
            continue;
        reason = errno;
        while (k-- > 0) {
            name = n->entry[configs_first ? n->count - 1 - k : k]->d_name;
            renameat(to, name, from, name);
        }
        errno = reason;
        return false;
    }
    return true;
}

/* The old files go aside before the first new one comes: whoever is stopped in between leaves no mixture. */
static bool exchange(int folder, int part, const names *written, const names *old)
{
    int aside = -1, reason;

    if (old->count > 0) {
        if (mkdirat(folder, OLD, 0755) == 0 || errno == EEXIST)
            aside = open_folder(folder, OLD, O_NOFOLLOW);
        if (aside < 0 || !move_all(old, folder, aside, true)) {
            close_folder(aside);
            return false;
        }
    }
    if (fsync(folder) == 0 && move_all(written, part, folder, false)) {
        close_folder(aside);
        return fsync(folder) == 0;
    }
    reason = errno;
    if (aside >= 0)
        move_all(old, aside, folder, false);
    close_folder(aside);
    errno = reason;
    return false;
}

const char *app_export_folder_part(const char *path, char part[APP_EXPORT_PATH])
{
    snprintf(part, APP_EXPORT_PATH, "%.*s/" PART, APP_EXPORT_PATH - 1 - (int)sizeof PART, path);
    return part;
}

wf_status app_export_folder_check(const char *path, bool overwrite, wf_error *error)
{
    int folder;
    names found;

    if (strlen(path) + 1 + sizeof PART > APP_EXPORT_PATH)
        return wf_error_set(error, WF_EINVAL, "the name of folder TO is too long");
    folder = open_folder(AT_FDCWD, path, 0);
    if (folder < 0 && errno == ENOTDIR)
        return wf_error_set(error, WF_EINVAL, "%s is a file, and TO is a folder", path);
    if (folder < 0 || overwrite) {
        close_folder(folder);
        return WF_OK;
    }
    found = list(folder, is_to_be_kept);
    if (found.count > 0)
        wf_error_set(
            error, WF_EINVAL,
            "%s has a model's %s, which would be written over: name another folder, or "
            "give --overwrite",
            path, found.entry[found.count - 1]->d_name);
    free_names(&found);
    close_folder(folder);
    return error->code;
}

wf_status app_export_folder_begin(const char *path, bool *made, wf_error *error)
{
    char part[APP_EXPORT_PATH];
    int folder;

    *made = mkdir(path, 0755) == 0;
    if (!*made && errno != EEXIST)
        return wf_error_set(error, WF_EIO, "cannot make directory %.900s: %s", path,
                            strerror(errno));
    app_export_folder_part(path, part);
    folder = open_folder(AT_FDCWD, path, 0);
    if (folder < 0 || !remove_folder(folder, PART) || mkdirat(folder, PART, 0755) != 0)
        wf_error_set(error, WF_EIO, "cannot make directory %.900s: %s", part, strerror(errno));
    close_folder(folder);
    return error->code;
}

wf_status app_export_folder_publish(const char *path, wf_error *error)
{
    int folder = open_folder(AT_FDCWD, path, 0),
        part = folder < 0 ? -1 : open_folder(folder, PART, O_NOFOLLOW);
    names written = {.count = -1}, old = {.count = -1};

    if (part >= 0) {
        written = list(part, is_any);
        old = list(folder, is_of_model);
    }
    if (written.count < 0 || old.count < 0 || !exchange(folder, part, &written, &old))
        wf_error_set(error, WF_EIO, "%.900s: the model cannot take its place: %s", path,
                     strerror(errno));
    else if (!remove_folder(folder, OLD) || !remove_folder(folder, PART))
        wf_error_set(error, WF_EIO,
                     "%.900s has the model, and beside it what cannot be removed: %s", path,
                     strerror(errno));
    free_names(&written);
    free_names(&old);
    close_folder(part);
    close_folder(folder);
    return error->code;
}

void app_export_folder_abandon(const char *path, bool made)
{
    int folder = open_folder(AT_FDCWD, path, 0);

    if (folder >= 0)
        remove_folder(folder, PART);
    close_folder(folder);
    if (made)
        rmdir(path);
}
