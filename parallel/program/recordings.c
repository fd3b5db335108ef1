/* parallel/program/recordings.c - folders of flight recorders; see process_internal.h. */
#include "mesh/transport/launcher.h"
#include "parallel/program/process_internal.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KEPT = 8 }; /* temporary folders of runs that failed */

typedef struct folder {
    char name[NAME_MAX + 1];
    struct timespec changed;
} folder;

static const char *temporary(void)
{
    const char *tmp = getenv("TMPDIR");

    return tmp && *tmp ? tmp : "/tmp";
}

/* Follows links: a folder that is named may be one, which the recorder itself would not
   follow. */
void wf_recordings_directory(const char *directory, char *text, size_t size)
{
    int job = (int)(wf_launcher_detected().processes > 1 ? getppid() : getpid());
    char real[PATH_MAX];

    if (directory)
        snprintf(text, size, "%s", realpath(directory, real) ? real : directory);
    else
        snprintf(text, size, "%s/weft-recorder-%u-%d", temporary(), (unsigned)geteuid(), job);
}

/* The recorder makes the folder, and not what is above it. */
wf_status wf_recordings_check(const char *directory, wf_error *error)
{
    char path[PATH_MAX], *slash;
    const char *above = ".", *wrong = NULL;
    struct stat s;

    if (!directory)
        return WF_OK;
    wf_recordings_directory(directory, path, sizeof path);
    if (stat(path, &s) == 0) {
        wrong = !S_ISDIR(s.st_mode)                      ? "it is no folder"
                : s.st_uid != geteuid() && s.st_uid != 0 ? "it is another user's"
                : access(path, W_OK | X_OK) != 0         ? strerror(errno)
                                                         : NULL;
    } else {
        for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
            path[n - 1] = '\0';
        slash = strrchr(path, '/');
        if (slash) {
            *slash = '\0';
            above = slash == path ? "/" : path;
        }
        wrong = access(above, W_OK | X_OK) != 0 ? strerror(errno) : NULL;
    }
    return wrong
               ? wf_error_set(error, WF_EIO,
                              "--recorder-dir %s cannot be used: %s; name a folder, or one to "
                              "be made in a folder that is there",
                              directory, wrong)
               : WF_OK;
}

/* Opens a folder that is this user's, and no link to one; -1: it is not. */
static int open_own(int at, const char *name, struct stat *s)
{
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && (fstat(fd, s) != 0 || s->st_uid != geteuid())) {
        close(fd);
        fd = -1;
    }
    return fd;
}

static int newest_first(const void *a, const void *b)
{
    const struct timespec *x = &((const folder *)a)->changed,
                          *y = &((const folder *)b)->changed;

    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

/* Lists the temporary folders of this user. Owner: the caller, free */
static folder *list_own(DIR *top, size_t *n)
{
    char pattern[48];
    folder *all = NULL;
    struct dirent *e;

    *n = 0;
    snprintf(pattern, sizeof pattern, "weft-recorder-%u-*", (unsigned)geteuid());
    while ((e = readdir(top))) {
        struct stat s;
        folder *more;
        int fd;

        if (fnmatch(pattern, e->d_name, 0) != 0 ||
            (fd = open_own(dirfd(top), e->d_name, &s)) < 0)
            continue;
        close(fd);
        more = realloc(all, (*n + 1) * sizeof *all);
        if (!more)
            break;
        all = more;
        snprintf(all[*n].name, sizeof all[*n].name, "%s", e->d_name);
        all[(*n)++].changed = s.st_mtim;
    }
    return all;
}

static void forget(int top, const char *name)
{
    struct stat s;
    int fd = open_own(top, name, &s);
    DIR *inside = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *e;

    if (!inside) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((e = readdir(inside)))
        if (fnmatch("rank-*.rec", e->d_name, 0) == 0)
            unlinkat(fd, e->d_name, 0);
    closedir(inside);
    unlinkat(top, name, AT_REMOVEDIR); /* fails where other files are in it */
}

void wf_recordings_forget(void)
{
    DIR *top = opendir(temporary());
    folder *all;
    size_t n;

    if (!top)
        return;
    all = list_own(top, &n);
    if (n)
        qsort(all, n, sizeof *all, newest_first);
    for (size_t i = KEPT; i < n; i++)
        forget(dirfd(top), all[i].name);
    free(all);
    closedir(top);
}
