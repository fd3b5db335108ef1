/*
 * tests/campaign/file_call_faults.c - a library for LD_PRELOAD: a call of a program on files
 * that matter fails, or the program is killed there, once. For campaigns
 * (scripts/proofs/file_faults.py) and for tests of what no signal hits by chance.
 *
 *     WEFT_FAIL_UNDER  prefix of absolute paths that matter; without it nothing happens
 *     WEFT_FAIL_AT     number of the call, from 1 on; 0: none
 *     WEFT_FAIL_WITH   errno of a call that fails, or "kill": the process ends instead
 *     WEFT_FAIL_COUNT  a file that gets a line per call: its number and its name
 *     WEFT_FAIL_ONLY   the names of calls that count, "rename,fsync"; without it all do
 *     WEFT_FAIL_RANK   the process of several (OMPI_COMM_WORLD_RANK) in which calls count
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_FDS = 4096, PATH = 4096 };

static _Atomic int calls;
static char *_Atomic path_of[MOST_FDS];

/* Read before there are threads: MPI changes the environment while others open files. */
static struct {
    const char *under, *at, *with, *count, *only;
    bool elsewhere; /* another process is meant */
} fault;

static const char *kept(const char *name)
{
    const char *value = getenv(name);

    return value ? strdup(value) : NULL;
}

__attribute__((constructor)) static void read_fault(void)
{
    const char *rank = getenv("WEFT_FAIL_RANK"), *mine = getenv("OMPI_COMM_WORLD_RANK");

    fault.elsewhere = rank && strcmp(rank, mine ? mine : "0") != 0;
    fault.at = kept("WEFT_FAIL_AT");
    fault.with = kept("WEFT_FAIL_WITH");
    fault.count = kept("WEFT_FAIL_COUNT");
    fault.only = kept("WEFT_FAIL_ONLY");
    fault.under = kept("WEFT_FAIL_UNDER");
}

static bool matters(const char *path)
{
    return fault.under && *fault.under && path &&
           strncmp(path, fault.under, strlen(fault.under)) == 0;
}

/* One more call on a file that matters; whether it is the one that fails. */
static bool fails(const char *name, const char *path)
{
    const char *at = fault.at, *with = fault.with, *count = fault.count;
    int number;

    if (!matters(path) || fault.elsewhere || (fault.only && !strstr(fault.only, name)))
        return false;
    number = ++calls;
    if (count) {
        char line[PATH + 64];
        int n = snprintf(line, sizeof line, "%d %s %s\n", number, name, path);
        int fd = (int)syscall(SYS_openat, AT_FDCWD, count, O_WRONLY | O_CREAT | O_APPEND, 0644);

        if (fd >= 0) {
            if (syscall(SYS_write, fd, line, n) < 0)
                n = 0;
            syscall(SYS_close, fd);
        }
    }
    if (!at || atoi(at) != number)
        return false;
    if (with && strcmp(with, "kill") == 0)
        raise(SIGKILL);
    errno = with ? atoi(with) : EIO;
    return true;
}

static const char *of_fd(int fd)
{
    return fd >= 0 && fd < MOST_FDS ? path_of[fd] : NULL;
}

static void remember(int fd, const char *path)
{
    if (fd >= 0 && fd < MOST_FDS && matters(path))
        path_of[fd] = strdup(path);
}

static void forget(int fd)
{
    if (fd >= 0 && fd < MOST_FDS)
        path_of[fd] = NULL;
}

/* The absolute path of a name in a directory. */
static const char *full(int in, const char *name, char text[PATH])
{
    const char *folder = in == AT_FDCWD ? NULL : of_fd(in);

    if (*name == '/')
        snprintf(text, PATH, "%s", name);
    else if (folder)
        snprintf(text, PATH, "%s/%s", folder, name);
    else if (in == AT_FDCWD && getcwd(text, PATH / 2)) {
        size_t n = strlen(text);

        snprintf(text + n, PATH - n, "/%s", name);
    } else
        *text = 0;
    return text;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int open_in(int in, const char *name, int flags, mode_t mode)
{
    char path[PATH];
    int fd;

    if (fails("open", full(in, name, path)))
        return -1;
    fd = REAL(openat)(in, name, flags, mode);
    forget(fd);
    remember(fd, path);
    return fd;
}

int open(const char *name, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_in(AT_FDCWD, name, flags, mode);
}

int open64(const char *name, int flags, ...) __attribute__((alias("open")));

int openat(int in, const char *name, int flags, ...)
{
    va_list list;
    mode_t mode;

    va_start(list, flags);
    mode = flags & O_CREAT ? va_arg(list, mode_t) : 0;
    va_end(list);
    return open_in(in, name, flags, mode);
}

/* A fortified build calls this in place of openat where it does not know the flags. */
int __openat_2(int in, const char *name, int flags);
int __openat_2(int in, const char *name, int flags)
{
    return open_in(in, name, flags, 0);
}

FILE *fopen(const char *name, const char *how)
{
    char path[PATH];
    FILE *file;

    if (fails("fopen", full(AT_FDCWD, name, path)))
        return NULL;
    file = REAL(fopen)(name, how);
    if (file)
        remember(fileno(file), path);
    return file;
}

int fflush(FILE *file)
{
    return file && fails("fflush", of_fd(fileno(file))) ? EOF : REAL(fflush)(file);
}

int fclose(FILE *file)
{
    bool fail = fails("fclose", of_fd(fileno(file)));
    int error = errno, status;

    forget(fileno(file));
    status = REAL(fclose)(file);
    errno = error;
    return fail ? EOF : status;
}

ssize_t pread(int fd, void *data, size_t n, off_t at)
{
    return fails("pread", of_fd(fd)) ? -1 : REAL(pread)(fd, data, n, at);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    return fails("pwrite", of_fd(fd)) ? -1 : REAL(pwrite)(fd, data, n, at);
}

ssize_t write(int fd, const void *data, size_t n)
{
    return fails("write", of_fd(fd)) ? -1 : REAL(write)(fd, data, n);
}

int ftruncate(int fd, off_t n)
{
    return fails("ftruncate", of_fd(fd)) ? -1 : REAL(ftruncate)(fd, n);
}

int fsync(int fd)
{
    return fails("fsync", of_fd(fd)) ? -1 : REAL(fsync)(fd);
}

int fstat(int fd, struct stat *s)
{
    return fails("fstat", of_fd(fd)) ? -1 : REAL(fstat)(fd, s);
}

int stat(const char *name, struct stat *s)
{
    char path[PATH];

    return fails("stat", full(AT_FDCWD, name, path)) ? -1 : REAL(stat)(name, s);
}

int lstat(const char *name, struct stat *s)
{
    char path[PATH];

    return fails("lstat", full(AT_FDCWD, name, path)) ? -1 : REAL(lstat)(name, s);
}

int fstatat(int in, const char *name, struct stat *s, int flags)
{
    char path[PATH];

    return fails("fstatat", full(in, name, path)) ? -1 : REAL(fstatat)(in, name, s, flags);
}

int close(int fd)
{
    bool fail = fails("close", of_fd(fd));
    int error = errno, status;

    forget(fd);
    status = REAL(close)(fd);
    errno = fail ? error : errno;
    return fail ? -1 : status;
}

int flock(int fd, int how)
{
    return fails("flock", of_fd(fd)) ? -1 : REAL(flock)(fd, how);
}

int mkdir(const char *name, mode_t mode)
{
    char path[PATH];

    return fails("mkdir", full(AT_FDCWD, name, path)) ? -1 : REAL(mkdir)(name, mode);
}

int mkdirat(int in, const char *name, mode_t mode)
{
    char path[PATH];

    return fails("mkdir", full(in, name, path)) ? -1 : REAL(mkdirat)(in, name, mode);
}

int renameat(int in, const char *from, int to_in, const char *to)
{
    char path[PATH];

    return fails("rename", full(in, from, path)) ? -1 : REAL(renameat)(in, from, to_in, to);
}

int rename(const char *from, const char *to)
{
    char path[PATH];

    return fails("rename", full(AT_FDCWD, from, path)) ? -1 : REAL(rename)(from, to);
}

int renameat2(int in, const char *from, int to_in, const char *to, unsigned flags)
{
    char path[PATH];

    return fails("rename", full(in, from, path)) ? -1
                                                 : REAL(renameat2)(in, from, to_in, to, flags);
}

int unlinkat(int in, const char *name, int flags)
{
    char path[PATH];

    return fails("unlink", full(in, name, path)) ? -1 : REAL(unlinkat)(in, name, flags);
}

DIR *fdopendir(int fd)
{
    return fails("opendir", of_fd(fd)) ? NULL : REAL(fdopendir)(fd);
}

struct dirent *readdir(DIR *directory)
{
    return fails("readdir", of_fd(dirfd(directory))) ? NULL : REAL(readdir)(directory);
}

int closedir(DIR *directory)
{
    forget(dirfd(directory));
    return REAL(closedir)(directory);
}
