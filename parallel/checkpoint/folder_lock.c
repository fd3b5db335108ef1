/* parallel/checkpoint/folder_lock.c - one run at a time saves into a directory; see the
   header. */
#include "parallel/checkpoint/folder_lock.h"
#include "parallel/main.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* The number of the process that has the lock is in the file; it may be of another host. */
static wf_status taken(const char *dir, int file, wf_error *error)
{
    char who[32] = "";
    ssize_t n = pread(file, who, sizeof who - 1, 0);

    who[n > 0 ? strcspn(who, "\n") : 0] = 0;
    return wf_error_set(error, WF_EIO,
                        "another run saves to %s (process %s): wait for its end, stop it, or "
                        "use another .save DIR",
                        dir, *who ? who : "unknown");
}

wf_status wf_folder_lock(const char *program, const char *dir, int *file, wf_error *error)
{
    char path[PATH_MAX];
    struct stat s;
    int fd;

    *file = -1;
    snprintf(path, sizeof path, "%s/lock", dir);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0)
        return wf_error_set(error, WF_EIO, "cannot write %s: %s", path, strerror(errno));
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode) || s.st_nlink > 1 || s.st_uid != geteuid()) {
        close(fd); /* its contents are about to be replaced */
        return wf_error_set(
            error, WF_EIO,
            "%s is no file of its own, but a link, a special file or another user's: remove it",
            path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        if (ftruncate(fd, 0) == 0)
            dprintf(fd, "%d\n", (int)getpid());
        *file = fd;
        return WF_OK;
    }
    if (errno == EWOULDBLOCK)
        taken(dir, fd, error);
    else
        wf_par_report_line(program,
                           "%s cannot be locked (%s): see to it that no other run saves there",
                           dir, strerror(errno));
    close(fd);
    return error->code;
}

void wf_folder_withdraw(const char *dir)
{
    char path[PATH_MAX];
    DIR *inside;
    struct dirent *e;
    bool more = false;

    snprintf(path, sizeof path, "%s/best", dir);
    rmdir(path); /* only an empty one goes */
    inside = opendir(dir);
    while (inside && (e = readdir(inside)))
        more = more ||
               (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, "lock"));
    if (inside)
        closedir(inside);
    if (!inside || more)
        return;
    snprintf(path, sizeof path, "%s/lock", dir);
    unlink(path);
    rmdir(dir);
}
