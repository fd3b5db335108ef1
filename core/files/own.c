/* core/files/own.c - folders and files of this user alone; see output.h and
   files_internal.h. */
#include "core/files/files_internal.h"
#include "core/files/output.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Which rule an open file or folder breaks; NULL: it is this user's, who alone can write to
   it. */
static const char *broken_rule(const struct stat *s)
{
    if (s->st_uid != geteuid())
        return "another user's";
    if (s->st_mode & (S_IWGRP | S_IWOTH))
        return "writable for other users (chmod go-w mends that)";
    return NULL;
}

wf_status wf_file_check_own(int fd, const char *path, wf_error *error)
{
    const char *rule;
    struct stat s;

    if (fstat(fd, &s) != 0)
        return wf_error_set(error, WF_EIO, "cannot read %s: %s", path, strerror(errno));
    rule = !S_ISREG(s.st_mode) ? "no regular file"
           : s.st_nlink > 1    ? "a file that has other names too"
                               : broken_rule(&s);
    return rule
               ? wf_error_set(error, WF_EIO,
                              "%s is not trusted, because it is %s: remove it, or name another "
                              "folder",
                              path, rule)
               : WF_OK;
}

int wf_own_folder_open(const char *path, bool make, wf_error *error)
{
    const char *rule;
    struct stat s;
    int fd;

    if (make && mkdir(path, 0700) != 0 && errno != EEXIST) {
        wf_error_set(error, WF_EIO, "cannot make directory %s: %s", path, strerror(errno));
        return -1;
    }
    fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !make)
        return -1;
    if (fd < 0) {
        bool is_link =
            (errno == ELOOP || errno == ENOTDIR) && lstat(path, &s) == 0 && S_ISLNK(s.st_mode);

        wf_error_set(error, WF_EIO, "cannot open directory %s: %s", path,
                     is_link
                         ? "it is a symbolic link, and is not followed: name the folder itself"
                         : strerror(errno));
        return -1;
    }
    rule = fstat(fd, &s) == 0 ? broken_rule(&s) : strerror(errno);
    if (!rule)
        return fd;
    close(fd);
    wf_error_set(error, WF_EIO,
                 "directory %s is not trusted, because it is %s: name one of this user's own",
                 path, rule);
    return -1;
}
