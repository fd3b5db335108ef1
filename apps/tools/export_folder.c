/* apps/tools/export_folder.c - see the header. */
#include "apps/tools/export_folder.h"
#include "apps/tools/export_files.h"
#include "core/files/prepare.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define PARTIAL ".partial"

enum { DIGITS = 16 };

/* A folder of a model's file's name is not replaced by the file. */
static wf_status check_names(int folder, const char *path, wf_error *error)
{
    app_export_names all = app_export_list(folder, app_export_is_of_model);
    struct stat s;

    for (int i = 0; i < all.count; i++) {
        const char *name = all.entry[i]->d_name;

        if (strcmp(name, WF_PAR_PRETRAINED_TEMPLATES) != 0 &&
            fstatat(folder, name, &s, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(s.st_mode))
            wf_error_set(
                error, WF_EINVAL,
                "%s/%s is a folder, where a model has a file: remove it, or name another "
                "folder",
                path, name);
    }
    app_export_free_names(&all);
    return error->code;
}

wf_status app_export_folder_check(const char *path, bool overwrite, wf_error *error)
{
    int folder;
    app_export_names found;

    if (strlen(path) + 300 > APP_EXPORT_PATH)
        return wf_error_set(error, WF_EINVAL, "the name of folder TO is too long");
    folder = app_export_open(AT_FDCWD, path, 0);
    if (folder < 0 && errno == ENOTDIR)
        return wf_error_set(error, WF_EINVAL, "%s is a file, and TO is a folder", path);
    if (folder >= 0 && check_names(folder, path, error) != WF_OK) {
        app_export_shut(folder);
        return error->code;
    }
    if (folder < 0 || overwrite) {
        app_export_shut(folder);
        return WF_OK;
    }
    found = app_export_list(folder, app_export_is_to_be_kept);
    if (found.count > 0)
        wf_error_set(
            error, WF_EINVAL,
            "%s has a model's %s, which would be written over: name another folder, or "
            "give --overwrite",
            path, found.entry[found.count - 1]->d_name);
    app_export_free_names(&found);
    app_export_shut(folder);
    return error->code;
}

/* ---- where the new model is written ---- */

static wf_status failed(wf_error *error, const char *what, const char *path)
{
    return wf_error_set(error, WF_EIO, "cannot %s %.900s: %s", what, path, strerror(errno));
}

/* Splits the real path of a folder into the one above it and its name. */
static bool real_names(const char *path, char above[APP_EXPORT_PATH], char name[NAME_MAX + 1])
{
    char real[PATH_MAX], *slash;

    if (!realpath(path, real))
        return false;
    slash = strrchr(real, '/');
    snprintf(name, NAME_MAX + 1, "%s", slash + 1);
    slash[slash == real] = 0;
    snprintf(above, APP_EXPORT_PATH, "%s", real);
    return *name != 0;
}

/* Returns true where the folder can be exchanged for another one: it is no mount, its owner is
   this user, and it is not the working folder, in which a shell would be left in a deleted
   folder. */
static bool may_exchange(int folder, int above)
{
    struct stat own, in, here;

    return fstat(folder, &own) == 0 && fstat(above, &in) == 0 && own.st_dev == in.st_dev &&
           own.st_uid == geteuid() && !(stat(".", &here) == 0 && wf_same_file(&here, &own));
}

/* Returns whether a name is .NAME.0123456789abcdef.partial, of any NAME where it is NULL: a
   part, or a file in one. */
static bool is_part(const char *found, const char *name)
{
    size_t n = strlen(found), tail = 1 + DIGITS + strlen(PARTIAL);
    size_t own = name ? strnlen(name, 200) : n > tail ? n - tail - 1 : 0;

    return *found == '.' && n == 1 + own + tail && (!name || !strncmp(found + 1, name, own)) &&
           found[1 + own] == '.' && strspn(found + own + 2, "0123456789abcdef") == DIGITS &&
           strcmp(found + own + 2 + DIGITS, PARTIAL) == 0;
}

/* A folder of this user that no living program has locked. */
static bool is_dead(int in, const char *name)
{
    int fd = app_export_open(in, name, O_NOFOLLOW);
    struct stat s;
    bool dead = fd >= 0 && fstat(fd, &s) == 0 && s.st_uid == geteuid() &&
                flock(fd, LOCK_EX | LOCK_NB) == 0;

    app_export_shut(fd);
    return dead;
}

/* Empties a folder, whose files of a model go; what else is in it goes to another folder, where
   it has not got it. Returns whether nothing is left. */
static bool empty(int from, int to)
{
    app_export_names all = app_export_list(from, app_export_is_any);
    bool good = all.count >= 0;

    for (int i = 0; i < all.count; i++) {
        const char *name = all.entry[i]->d_name;
        struct stat s;

        if (app_export_is_to_be_kept(all.entry[i]) || is_part(name, NULL))
            good = app_export_remove(from, name) && good;
        else if (fstatat(to, name, &s, AT_SYMLINK_NOFOLLOW) == 0)
            good = unlinkat(from, name, 0) == 0 && good;
        else
            good = renameat(from, name, to, name) == 0 && good;
    }
    app_export_free_names(&all);
    return good;
}

/* Removes what killed exports have left; what is no model's of it was of the folder that is
   there. */
static void clean(int in, const char *name, int folder)
{
    app_export_names all = app_export_list(in, app_export_is_any);

    for (int i = 0; i < all.count; i++) {
        const char *part = all.entry[i]->d_name;
        int fd = is_part(part, name) && is_dead(in, part)
                     ? app_export_open(in, part, O_NOFOLLOW)
                     : -1;

        if (fd >= 0 && empty(fd, folder))
            unlinkat(in, part, AT_REMOVEDIR);
        app_export_shut(fd);
    }
    app_export_free_names(&all);
}

/* Makes an empty folder of a name that cannot be guessed. */
static bool make_part(app_export_folder *f, int in, const char *name)
{
    unsigned long long mark;

    if (getrandom(&mark, sizeof mark, 0) != (ssize_t)sizeof mark)
        return false;
    snprintf(f->name, sizeof f->name, ".%.200s.%016llx" PARTIAL, name, mark);
    if (mkdirat(in, f->name, 0755) != 0)
        return false;
    f->part_fd = app_export_open(in, f->name, O_NOFOLLOW);
    if (f->part_fd >= 0)
        flock(f->part_fd, LOCK_EX | LOCK_NB); /* without a lock nothing is removed */
    return f->part_fd >= 0;
}

wf_status app_export_folder_begin(app_export_folder *f, const char *path, wf_error *error)
{
    char above[APP_EXPORT_PATH], name[NAME_MAX + 1];

    *f = (app_export_folder){.path = path, .fd = -1, .above = -1, .part_fd = -1};
    f->made = mkdir(path, 0755) == 0;
    if (!f->made && errno != EEXIST)
        return failed(error, "make directory", path);
    f->fd = app_export_open(AT_FDCWD, path, 0);
    if (f->fd < 0 || !real_names(path, above, name))
        return failed(error, "open directory", path);
    f->above = app_export_open(AT_FDCWD, above, 0);
    f->beside = f->above >= 0 && may_exchange(f->fd, f->above);
    if (f->beside) {
        clean(f->above, name, f->fd);
        f->beside = make_part(f, f->above, name);
    }
    if (!f->beside) {
        clean(f->fd, "", f->fd);
        snprintf(above, sizeof above, "%.*s", APP_EXPORT_PATH - 300, path);
        if (!make_part(f, f->fd, ""))
            return failed(error, "make a directory in", path);
    }
    snprintf(f->real, sizeof f->real, "%s", name);
    snprintf(f->part, sizeof f->part, "%.3700s/%s", above, f->name);
    return WF_OK;
}

/* ---- publishing ---- */

/* All that is not of the model that is there goes into the new folder too, files as further
   links of the same. What cannot have two, as folders, comes when the folders are exchanged. */
static int link_others(const app_export_folder *f)
{
    app_export_names all = app_export_list(f->fd, app_export_is_any);
    int linked = 0;

    for (int i = 0; i < all.count; i++)
        if (!app_export_is_to_be_kept(all.entry[i]) && !is_part(all.entry[i]->d_name, NULL))
            linked +=
                linkat(f->fd, all.entry[i]->d_name, f->part_fd, all.entry[i]->d_name, 0) == 0;
    app_export_free_names(&all);
    return linked;
}

/* Returns whether the new folder has taken the old one's name, at once for any reader. */
static bool exchange_folders(const app_export_folder *f)
{
    struct stat s;

    if (fstat(f->fd, &s) == 0)
        fchmod(f->part_fd, s.st_mode & 07777);
    (void)link_others(f); /* others follow */
    return fsync(f->part_fd) == 0 &&
           renameat2(f->above, f->name, f->above, f->real, RENAME_EXCHANGE) == 0;
}

/* Removes the links that an exchange that could not be has made. */
static void unlink_others(const app_export_folder *f)
{
    app_export_names all = app_export_list(f->fd, app_export_is_any);

    for (int i = 0; i < all.count; i++)
        if (!app_export_is_to_be_kept(all.entry[i]) && !is_part(all.entry[i]->d_name, NULL))
            unlinkat(f->part_fd, all.entry[i]->d_name, 0);
    app_export_free_names(&all);
}

/* Replaces files in place, one at a time, where folders cannot be exchanged. */
static bool replace_files(const app_export_folder *f)
{
    app_export_names written = app_export_list(f->part_fd, app_export_is_any),
                     old = app_export_list(f->fd, app_export_is_of_model);
    bool good = written.count >= 0 && old.count >= 0 &&
                app_export_replace(f->fd, f->part_fd, &written, &old);
    int reason = errno;

    app_export_free_names(&written);
    app_export_free_names(&old);
    errno = reason;
    return good;
}

wf_status app_export_folder_publish(app_export_folder *f, wf_error *error)
{
    bool clean;

    if (f->beside && exchange_folders(f)) {
        fsync(f->above);
        clean = empty(f->fd, f->part_fd) && unlinkat(f->above, f->name, AT_REMOVEDIR) == 0;
    } else {
        if (f->beside && errno != EINVAL && errno != ENOSYS && errno != EBUSY)
            return wf_error_set(error, WF_EIO, "%.900s: the model cannot replace it: %s",
                                f->path, strerror(errno));
        if (f->beside)
            unlink_others(f);
        if (!replace_files(f))
            return wf_error_set(error, WF_EIO, "%.900s: the model cannot replace it: %s",
                                f->path, strerror(errno));
        clean = app_export_remove(f->fd, APP_EXPORT_OLD) &&
                app_export_remove(f->beside ? f->above : f->fd, f->name);
    }
    *f->name = 0;
    if (!clean)
        wf_error_set(error, WF_EIO,
                     "%.900s has the model, and beside it what cannot be removed: %s", f->path,
                     strerror(errno));
    return error->code;
}

void app_export_folder_close(app_export_folder *f)
{
    if (*f->name) {
        app_export_remove(f->beside ? f->above : f->fd, f->name);
        if (f->made)
            rmdir(f->path);
    }
    app_export_shut(f->part_fd);
    app_export_shut(f->above);
    app_export_shut(f->fd);
}
