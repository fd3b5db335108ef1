/* core/files/folder.c - directories that are open; see the header. */
#include "core/files/folder_internal.h"
#include "core/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wf_status failed(wf_error *error, const char *what, const wf_folder *in,
                        const char *name)
{
    char why[1400];

    return wf_error_set(error, WF_EIO, "cannot %s %s%s%s: %s", what, in->path, *name ? "/" : "",
                        name, wf_input_why_not(in->path, why, sizeof why));
}

static wf_status open_directory(wf_folder *folder, int in, const char *name, int flags,
                                wf_error *error)
{
    const wf_file_calls *calls = folder->calls;

    do
        folder->fd = calls->open(calls->self, in, name, O_RDONLY | O_DIRECTORY | flags);
    while (folder->fd < 0 && errno == EINTR);
    if (folder->fd >= 0)
        return WF_OK;
    folder->missing = errno == ENOENT;
    return failed(error, "open directory", folder, "");
}

wf_status wf_folder_open(wf_folder *folder, const wf_file_calls *calls, const char *path,
                         wf_error *error)
{
    *folder = (wf_folder){.calls = calls, .fd = -1};
    if (snprintf(folder->path, sizeof folder->path, "%s", path) >= (int)sizeof folder->path)
        return wf_error_set(error, WF_EIO, "cannot open %.200s..: the path is too long", path);
    return open_directory(folder, AT_FDCWD, path, 0, error);
}

wf_status wf_folder_enter(wf_folder *folder, const wf_folder *in, const char *name,
                          wf_error *error)
{
    *folder = (wf_folder){.calls = in->calls, .fd = -1};
    if (snprintf(folder->path, sizeof folder->path, "%s/%s", in->path, name) >=
        (int)sizeof folder->path)
        return wf_error_set(error, WF_EIO, "cannot open %.200s..: the path is too long",
                            in->path);
    return open_directory(folder, in->fd, name, O_NOFOLLOW, error);
}

void wf_folder_close(wf_folder *folder)
{
    if (folder->fd >= 0)
        folder->calls->close(folder->calls->self, folder->fd);
    folder->fd = -1;
}

wf_status wf_folder_file(const wf_folder *in, const char *name, wf_file_mode mode,
                         wf_file *file, wf_error *error)
{
    wf_status status = wf_file_open_in(file, in->calls, in->fd, in->path, name, mode, error);

    file->need = in->need;
    return status;
}

wf_status wf_folder_has(const wf_folder *in, const char *name, bool *has, wf_error *error)
{
    struct stat s;

    *has = fstatat(in->fd, name, &s, AT_SYMLINK_NOFOLLOW) == 0;
    return *has || errno == ENOENT ? WF_OK : failed(error, "look at", in, name);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void wf_folder_free_names(char **names, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        free(names[i]);
    free(names);
}

/* Lists all names of an open directory. A read that fails is an error, not an end: unknown
   names must not be deleted, nor is it a reason to begin anew. */
static wf_status read_names(const wf_folder *in, DIR *directory, char ***list, int64_t *n,
                            wf_error *error)
{
    char name[WF_FILES_NAME];
    int more;

    while ((more = in->calls->next(in->calls->self, directory, name)) > 0) {
        char **longer;

        if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
            continue;
        longer = realloc(*list, (size_t)(*n + 1) * sizeof **list);
        if (longer)
            *list = longer;
        if (!longer || !(longer[*n] = strdup(name)))
            return wf_error_set(error, WF_ENOMEM, "no memory for the names in %s", in->path);
        ++*n;
    }
    return more == 0 ? WF_OK : failed(error, "read directory", in, "");
}

wf_status wf_folder_list(const wf_folder *in, char ***names, int64_t *count, wf_error *error)
{
    wf_folder twin; /* a descriptor of its own: the position in a directory belongs to it */
    DIR *directory = NULL;
    char **list = NULL;
    int64_t n = 0;
    wf_status status = wf_folder_enter(&twin, in, ".", error);

    *names = NULL;
    *count = 0;
    if (status != WF_OK)
        return status;
    directory = fdopendir(twin.fd);
    status = directory ? read_names(in, directory, &list, &n, error)
                       : failed(error, "read directory", in, "");
    if (directory)
        closedir(directory);
    else
        wf_folder_close(&twin);
    if (status != WF_OK) {
        wf_folder_free_names(list, n);
        return status;
    }
    if (n > 1)
        qsort(list, (size_t)n, sizeof *list, by_name);
    *names = list;
    *count = n;
    return WF_OK;
}

wf_status wf_folder_make(const wf_folder *in, const char *name, wf_error *error)
{
    if (in->calls->make_directory(in->calls->self, in->fd, name) == 0)
        return WF_OK;
    return failed(error, "make directory", in, name);
}

wf_status wf_folder_rename(const wf_folder *in, const char *from, const char *to,
                           wf_error *error)
{
    if (in->calls->rename(in->calls->self, in->fd, from, to) == 0)
        return WF_OK;
    return wf_error_set(error, WF_EIO, "cannot rename %s/%s to %s: %s", in->path, from, to,
                        strerror(errno));
}

wf_status wf_folder_sync(const wf_folder *in, wf_error *error)
{
    return in->calls->sync(in->calls->self, in->fd) == 0 ? WF_OK
                                                         : failed(error, "sync", in, "");
}

/* Removes the files in a directory that is to be removed. */
static wf_status empty(const wf_folder *in, const char *name, wf_error *error)
{
    wf_folder inside;
    char **names = NULL;
    int64_t n = 0;
    wf_status status = wf_folder_enter(&inside, in, name, error);

    if (status == WF_OK)
        status = wf_folder_list(&inside, &names, &n, error);
    for (int64_t i = 0; i < n && status == WF_OK; i++)
        if (in->calls->remove(in->calls->self, inside.fd, names[i], false) != 0 &&
            errno != ENOENT)
            status = failed(error, "remove", &inside, names[i]);
    wf_folder_free_names(names, n);
    wf_folder_close(&inside);
    return status;
}

wf_status wf_folder_remove(const wf_folder *in, const char *name, wf_error *error)
{
    const wf_file_calls *calls = in->calls;

    if (calls->remove(calls->self, in->fd, name, false) == 0 || errno == ENOENT)
        return WF_OK;
    if (errno != EISDIR && errno != EPERM) /* POSIX allows either for a directory */
        return failed(error, "remove", in, name);
    if (empty(in, name, error) != WF_OK)
        return WF_EIO;
    if (calls->remove(calls->self, in->fd, name, true) == 0 || errno == ENOENT)
        return WF_OK;
    return failed(error, "remove", in, name);
}
