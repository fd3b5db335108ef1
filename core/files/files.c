/* core/files/files.c - the file calls of checkpoints; see the header. */
#include "core/files/files_internal.h"
#include "core/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static int system_open(void *self, int in, const char *name, int flags)
{
    (void)self;
    return openat(in, name, flags | O_CLOEXEC | O_NOCTTY, 0644);
}

static int64_t system_read(void *self, int fd, void *data, size_t bytes, int64_t at)
{
    (void)self;
    return pread(fd, data, bytes, at);
}

/* Writes, and starts the disk on large blocks while the next is being written: the sync then
   waits less. */
static int64_t system_write(void *self, int fd, const void *data, size_t bytes, int64_t at)
{
    enum { LARGE = 1 << 18 };
    int64_t n = pwrite(fd, data, bytes, at);

    (void)self;
    if (n >= LARGE)
        sync_file_range(fd, at, n, SYNC_FILE_RANGE_WRITE); /* a hint: it may fail */
    return n;
}

static int system_resize(void *self, int fd, int64_t bytes)
{
    (void)self;
    return ftruncate(fd, bytes);
}

static int system_sync(void *self, int fd)
{
    (void)self;
    return fsync(fd);
}

static int system_close(void *self, int fd)
{
    (void)self;
    return close(fd);
}

static int system_rename(void *self, int in, const char *from, const char *to)
{
    (void)self;
    return renameat(in, from, in, to);
}

static int system_make_directory(void *self, int in, const char *name)
{
    (void)self;
    return mkdirat(in, name, 0755);
}

static int system_remove(void *self, int in, const char *name, bool directory)
{
    (void)self;
    return unlinkat(in, name, directory ? AT_REMOVEDIR : 0);
}

static int system_next(void *self, DIR *directory, char name[WF_FILES_NAME])
{
    const struct dirent *entry;

    (void)self;
    errno = 0;
    entry = readdir(directory);
    if (!entry)
        return errno ? -1 : 0;
    snprintf(name, WF_FILES_NAME, "%s", entry->d_name);
    return 1;
}

const wf_file_calls wf_system_files = {.open = system_open,
                                       .read = system_read,
                                       .write = system_write,
                                       .resize = system_resize,
                                       .sync = system_sync,
                                       .close = system_close,
                                       .rename = system_rename,
                                       .make_directory = system_make_directory,
                                       .remove = system_remove,
                                       .next = system_next};

static wf_status failed(wf_error *error, const char *what, const char *path)
{
    char why[1400];

    return wf_error_set(error, WF_EIO, "cannot %s %s: %s", what, path,
                        wf_input_why_not(path, why, sizeof why));
}

/* Fails with what could not be done to an open file; of a full disk also with the bytes that
   were needed, and those that are free. */
static wf_status failed_file(wf_error *error, const char *what, const wf_file *file)
{
    bool full = errno == ENOSPC || errno == EDQUOT;
    const char *reason = strerror(errno);
    struct statvfs s;
    unsigned long long left;

    if (!full)
        return failed(error, what, file->path);
    left = fstatvfs(file->fd, &s) == 0 ? (unsigned long long)s.f_bavail * s.f_frsize : 0;
    if (!file->need) /* its size is not known beforehand */
        return wf_error_set(error, WF_EIO,
                            "cannot %s %s: %s; %llu bytes are free: make room, or save "
                            "elsewhere",
                            what, file->path, reason, left);
    return wf_error_set(error, WF_EIO,
                        "cannot %s %s: %s; %lld bytes are needed in all, and %llu are free: "
                        "make room, or save elsewhere",
                        what, file->path, reason, (long long)file->need, left);
}

static int open_flags(wf_file_mode mode)
{
    switch (mode) {
    case WF_FILE_READ: /* without O_NONBLOCK a named pipe would hold the reader for a writer */
        return O_RDONLY | O_NONBLOCK;
    case WF_FILE_READ_OWN:
        return O_RDONLY | O_NONBLOCK | O_NOFOLLOW;
    case WF_FILE_WRITE:
        return O_WRONLY | O_CREAT | O_NOFOLLOW;
    case WF_FILE_CREATE:
        return O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW;
    }
    return O_RDONLY;
}

static wf_status open_named(wf_file *file, int in, const char *name, wf_file_mode mode,
                            wf_error *error)
{
    const wf_file_calls *calls = file->calls;
    struct stat s;

    do
        file->fd = calls->open(calls->self, in, name, open_flags(mode));
    while (file->fd < 0 && errno == EINTR);
    if (file->fd < 0)
        return failed(error, "open", file->path);
    if (mode != WF_FILE_READ && mode != WF_FILE_READ_OWN)
        return WF_OK;
    if (mode == WF_FILE_READ_OWN && wf_file_check_own(file->fd, file->path, error) != WF_OK) {
        calls->close(calls->self, file->fd);
        return WF_EIO;
    }
    if (fstat(file->fd, &s) == 0 && S_ISREG(s.st_mode)) {
        file->bytes = s.st_size;
        return WF_OK;
    }
    calls->close(calls->self, file->fd);
    return wf_error_set(error, WF_EIO, "cannot read %s: it is no regular file", file->path);
}

static wf_status too_long(wf_error *error, const char *path)
{
    return wf_error_set(error, WF_EIO, "cannot open %.200s..: the path is too long", path);
}

wf_status wf_file_open_in(wf_file *file, const wf_file_calls *calls, int in, const char *folder,
                          const char *name, wf_file_mode mode, wf_error *error)
{
    *file = (wf_file){.calls = calls, .fd = -1};
    if (snprintf(file->path, sizeof file->path, "%s/%s", folder, name) >=
        (int)sizeof file->path)
        return too_long(error, folder);
    return open_named(file, in, name, mode, error);
}

wf_status wf_file_open(wf_file *file, const wf_file_calls *calls, const char *path,
                       wf_file_mode mode, wf_error *error)
{
    *file = (wf_file){.calls = calls, .fd = -1};
    if (snprintf(file->path, sizeof file->path, "%s", path) >= (int)sizeof file->path)
        return too_long(error, path);
    return open_named(file, AT_FDCWD, path, mode, error);
}

wf_status wf_file_read(const wf_file *file, void *data, size_t bytes, int64_t at,
                       wf_error *error)
{
    size_t done = 0;

    while (done < bytes) {
        int64_t n = file->calls->read(file->calls->self, file->fd, (char *)data + done,
                                      bytes - done, at + (int64_t)done);

        if (n == 0)
            return wf_error_set(error, WF_EDATA,
                                "%s ends at byte %lld, where %zu more were to come: it is cut "
                                "short",
                                file->path, (long long)(at + (int64_t)done), bytes - done);
        if (n > 0)
            done += (size_t)n;
        else if (errno != EINTR)
            return failed(error, "read", file->path);
    }
    return WF_OK;
}

wf_status wf_file_write(const wf_file *file, const void *data, size_t bytes, int64_t at,
                        wf_error *error)
{
    size_t done = 0;

    while (done < bytes) {
        int64_t n = file->calls->write(file->calls->self, file->fd, (const char *)data + done,
                                       bytes - done, at + (int64_t)done);

        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            return wf_error_set(error, WF_EIO, "cannot write %s: nothing is taken any more",
                                file->path);
        else if (errno != EINTR)
            return failed_file(error, "write", file);
    }
    return WF_OK;
}

wf_status wf_file_resize(wf_file *file, int64_t bytes, wf_error *error)
{
    if (file->need < bytes)
        file->need = bytes;
    if (file->calls->resize(file->calls->self, file->fd, bytes) == 0)
        return WF_OK;
    return failed_file(error, "give its size to", file);
}

wf_status wf_file_sync(const wf_file *file, wf_error *error)
{
    if (file->calls->sync(file->calls->self, file->fd) == 0)
        return WF_OK;
    return failed_file(error, "sync", file);
}

wf_status wf_file_close(wf_file *file, wf_error *error)
{
    int status = file->calls->close(file->calls->self, file->fd);

    file->fd = -1;
    return status == 0 ? WF_OK : failed(error, "close", file->path);
}

wf_status wf_files_make_directory(const wf_file_calls *calls, const char *path, wf_error *error)
{
    struct stat s;

    if (calls->make_directory(calls->self, AT_FDCWD, path) == 0)
        return WF_OK;
    if (errno == EEXIST && stat(path, &s) == 0 && S_ISDIR(s.st_mode))
        return WF_OK;
    return failed(error, "make directory", path);
}

wf_status wf_file_take(wf_file *file, int64_t most, char **data, size_t *bytes, wf_error *error)
{
    wf_status status;

    *data = NULL;
    *bytes = (size_t)file->bytes;
    if (file->bytes > most)
        status = wf_error_set(error, WF_EDATA,
                              "%s has %lld bytes, and a file of its kind has %lld at most",
                              file->path, (long long)file->bytes, (long long)most);
    else if (!(*data = malloc(*bytes + 1)))
        status = wf_error_set(error, WF_ENOMEM, "no memory for the %zu bytes of %s", *bytes,
                              file->path);
    else
        status = wf_file_read(file, *data, *bytes, 0, error);
    wf_file_close(file, NULL);
    if (status != WF_OK) {
        free(*data);
        *data = NULL;
    }
    return status;
}

wf_status wf_files_read(const wf_file_calls *calls, const char *path, int64_t most, char **data,
                        size_t *bytes, wf_error *error)
{
    wf_file file;
    wf_status status = wf_file_open(&file, calls, path, WF_FILE_READ, error);

    *data = NULL;
    return status == WF_OK ? wf_file_take(&file, most, data, bytes, error) : status;
}
