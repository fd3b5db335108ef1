/* core/files/prepare.c - checks outputs and makes their folders; see the header. */
#include "core/files/prepare.h"
#include "core/files/output.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static wf_status no_memory(wf_error *error)
{
    return wf_error_set(error, WF_ENOMEM, "no memory for the name of an output");
}

static wf_status cannot_make(const char *flag, const char *path, wf_error *error)
{
    return wf_error_set(error, WF_EIO, "%s: cannot make folder %s: %s", flag, path,
                        strerror(errno));
}

/* Makes the folders above the last component of a path; existing ones stay. Changes the text
   and restores it. */
static wf_status make_parents(const char *flag, char *path, wf_error *error)
{
    struct stat s;

    for (char *slash = strchr(path + (*path == '/'), '/'); slash;
         slash = strchr(slash + 1, '/')) {
        bool made;

        *slash = 0;
        made = mkdir(path, 0777) == 0;
        if (!made && errno == EEXIST && stat(path, &s) == 0) {
            made = S_ISDIR(s.st_mode);
            errno = ENOTDIR;
        }
        if (!made)
            cannot_make(flag, path, error);
        *slash = '/';
        if (!made)
            return error->code;
    }
    return WF_OK;
}

/* Checks that a file could be made in the folder that has the last component of a path. */
static wf_status check_parent(const char *flag, char *path, wf_error *error)
{
    char *slash = strrchr(path, '/');
    const char *folder = !slash ? "." : slash == path ? "/" : path;
    bool may;

    if (slash && slash != path)
        *slash = 0;
    may = access(folder, W_OK | X_OK) == 0;
    if (!may)
        wf_error_set(error, WF_EIO, "%s: cannot write to folder %s: %s", flag, folder,
                     strerror(errno));
    if (slash)
        *slash = '/';
    return error->code;
}

/* Checks a file that is there, without waiting for a pipe's reader. A pipe stays open until the
   program ends, or its reader would see the end of it now. */
static wf_status check_file(const char *flag, const char *path, const struct stat *s,
                            wf_error *error)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd >= 0 && (S_ISFIFO(s->st_mode) || close(fd) == 0))
        return WF_OK;
    return wf_error_set(error, WF_EIO, "%s: cannot write %s: %s", flag, path, strerror(errno));
}

/* Checks a file that is not there, by one that is begun and thrown away. */
static wf_status check_new(const char *flag, const char *path, wf_error *error)
{
    wf_error why = {WF_OK, ""};

    wf_output_discard(wf_output_open(path, &why));
    return why.code == WF_OK ? WF_OK : wf_error_set(error, why.code, "%s: %s", flag, why.text);
}

wf_status wf_output_prepare(const char *flag, const char *path, wf_error *error)
{
    struct stat s;
    char *text;
    wf_status status;

    if (stat(path, &s) == 0)
        return check_file(flag, path, &s, error);
    text = strdup(path);
    if (!text)
        return no_memory(error);
    status = make_parents(flag, text, error);
    free(text);
    return status == WF_OK ? check_new(flag, path, error) : status;
}

wf_status wf_output_prepare_folder(const char *flag, const char *path, wf_error *error)
{
    size_t length = strlen(path);
    char *text = malloc(length + 2);
    wf_status status;

    if (!text)
        return no_memory(error);
    memcpy(text, path, length);
    memcpy(text + length, "/", 2); /* the folder is above what will be in it */
    status = make_parents(flag, text, error);
    if (status == WF_OK)
        status = check_parent(flag, text, error);
    free(text);
    return status;
}
