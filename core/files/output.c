/* core/files/output.c - files that are written under a random name, and renamed; see the
   headers. */
#include "core/files/output_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PARTIAL ".partial"

struct wf_output_folder {
    wf_folder folder;
};

enum {
    DIGITS = 16,   /* in a mark */
    LONGEST = 200, /* bytes of NAME that are in its partial file's */
    TRIES = 16,    /* names, each of which an attacker would have had to guess */
};

uint64_t wf_output_mark(void)
{
    uint64_t mark;
    struct timespec t;

    if (getrandom(&mark, sizeof mark, GRND_NONBLOCK) == (ssize_t)sizeof mark)
        return mark | 1; /* 0 is none */
    clock_gettime(CLOCK_REALTIME, &t);
    return (((uint64_t)t.tv_sec << 30 ^ (uint64_t)t.tv_nsec) * 0x9e3779b97f4a7c15u ^
            (uint64_t)getpid() << 1) |
           1;
}

char *wf_output_partial(const char *name, uint64_t mark, char partial[WF_FILES_NAME])
{
    snprintf(partial, WF_FILES_NAME, ".%.*s.%016llx" PARTIAL, LONGEST, name,
             (unsigned long long)mark);
    return partial;
}

/* ---- what killed programs have left ---- */

/* Returns whether a name is that of a partial file, of NAME where it is not NULL. */
static bool is_partial(const char *found, const char *name)
{
    size_t n = strlen(found), tail = 1 + DIGITS + strlen(PARTIAL);
    size_t own = name ? strnlen(name, LONGEST) : 0;
    const char *mark;

    if (*found != '.' || n < 1 + tail || strcmp(found + n - strlen(PARTIAL), PARTIAL) != 0)
        return false;
    mark = found + n - tail;
    return *mark == '.' && strspn(mark + 1, "0123456789abcdef") == DIGITS &&
           (!name || (n == 1 + own + tail && strncmp(found + 1, name, own) == 0));
}

/* Removes a partial file of a dead program. A writer has its file locked; a locked one, another
   user's, or one that is no file stays. */
static void remove_dead(const wf_folder *in, const char *name)
{
    int fd = openat(in->fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat s;

    if (fd < 0)
        return;
    if (fstat(fd, &s) == 0 && S_ISREG(s.st_mode) && s.st_uid == geteuid() &&
        flock(fd, LOCK_EX | LOCK_NB) == 0)
        unlinkat(in->fd, name, 0);
    close(fd);
}

void wf_output_clean(const wf_folder *folder, const char *name)
{
    wf_error ignored = {WF_OK, ""};
    char **names = NULL;
    int64_t n = 0;

    if (wf_folder_list(folder, &names, &n, &ignored) == WF_OK)
        for (int64_t i = 0; i < n; i++)
            if (is_partial(names[i], name))
                remove_dead(folder, names[i]);
    wf_folder_free_names(names, n);
}

/* ---- begin ---- */

wf_status wf_output_failed(const wf_output *o, wf_error *error)
{
    return wf_error_set(error, WF_EIO, "cannot write %s: %s", o->path, strerror(errno));
}

static wf_output *new_output(const char *path, wf_error *error)
{
    wf_output *o = calloc(1, sizeof *o);

    if (o) {
        o->folder.fd = o->file.fd = -1;
        o->file.calls = &wf_system_files;
        o->path = strdup(path);
        snprintf(o->file.path, sizeof o->file.path, "%s", path);
    }
    if (o && o->path)
        return o;
    wf_error_set(error, WF_ENOMEM, "no memory to write %s", path);
    free(o);
    return NULL;
}

void wf_output_discard(wf_output *o)
{
    int fd = o && !o->stream ? o->file.fd : -1;

    if (!o)
        return;
    if (*o->partial)
        unlinkat(o->folder.fd, o->partial, 0);
    if (o->stream)
        fclose(o->stream);
    if (fd >= 0)
        close(fd);
    wf_folder_close(&o->folder);
    free(o->path);
    free(o);
}

/* Checks that the file of the name may be replaced: a file or a link, and, in a folder like
   /tmp, an own one. */
static wf_status check_old(const wf_output *o, mode_t *mode, wf_error *error)
{
    struct stat s, in;
    uid_t me = geteuid();

    if (fstatat(o->folder.fd, o->name, &s, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? WF_OK : wf_output_failed(o, error);
    if (S_ISDIR(s.st_mode))
        return wf_error_set(error, WF_EIO, "cannot write %s: it is a directory", o->path);
    if (!S_ISREG(s.st_mode) && !S_ISLNK(s.st_mode))
        return wf_error_set(error, WF_EIO,
                            "cannot write %s: it is no regular file, which would be replaced",
                            o->path);
    if (me && s.st_uid != me && fstat(o->folder.fd, &in) == 0 && in.st_mode & S_ISVTX &&
        in.st_uid != me)
        return wf_error_set(error, WF_EIO,
                            "cannot write %s: it is another user's, and only that one may "
                            "replace it there: give another name",
                            o->path);
    if (S_ISREG(s.st_mode) && s.st_uid == me)
        *mode = s.st_mode & 0777;
    return WF_OK;
}

/* Makes the partial file. One that is found before it is locked is taken for a dead one and
   removed: then another. */
static wf_status create(wf_output *o, uint64_t mark, mode_t mode, wf_error *error)
{
    for (int i = 0; i < TRIES; i++, mark = wf_output_mark()) {
        struct stat s;
        int fd = openat(o->folder.fd, wf_output_partial(o->name, mark, o->partial),
                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);

        if (fd < 0 && errno == EEXIST)
            continue;
        if (fd < 0)
            break;
        flock(fd, LOCK_EX | LOCK_NB); /* some file systems have none: then nothing is removed */
        if (fstat(fd, &s) == 0 && s.st_nlink == 1) {
            o->file.fd = fd;
            if (mode)
                fchmod(fd, mode);
            return WF_OK;
        }
        close(fd);
        errno = EEXIST;
    }
    *o->partial = 0; /* it is not ours */
    return wf_output_failed(o, error);
}

/* The folder is open, and the output has its name. */
static wf_status begin(wf_output *o, const char *name, uint64_t mark, wf_error *error)
{
    mode_t mode = 0;

    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strchr(name, '/') ||
        snprintf(o->name, sizeof o->name, "%s", name) >= (int)sizeof o->name)
        return wf_error_set(error, WF_EINVAL,
                            "cannot write %.200s: \"%.200s\" is no name of a file", o->path,
                            name);
    return check_old(o, &mode, error) == WF_OK ? create(o, mark, mode, error) : error->code;
}

wf_output *wf_output_begin(const wf_folder *folder, const char *name, uint64_t mark,
                           wf_error *error)
{
    wf_error failed = {WF_OK, ""};
    char path[WF_FILES_PATH];
    wf_output *o;

    snprintf(path, sizeof path, "%.3800s/%.255s", folder->path, name);
    o = new_output(path, error);
    if (!o)
        return NULL;
    o->folder = *folder;
    o->folder.fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    o->file.need = folder->need;
    if (o->folder.fd < 0)
        wf_output_failed(o, &failed);
    else if (begin(o, name, mark, &failed) == WF_OK)
        return o;
    wf_error_set(error, failed.code, "%s", failed.text);
    wf_output_discard(o);
    return NULL;
}

/* Returns the open descriptor that a name in /dev means; -1: it is no such name. */
static int descriptor_of(const char *path)
{
    static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};

    if (strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    if (strcmp(path, "/dev/stderr") == 0)
        return STDERR_FILENO;
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(folders[i]);
        char *end;
        long fd = strncmp(path, folders[i], n) == 0 ? strtol(path + n, &end, 10) : -1;

        if (fd >= 0 && end != path + n && !*end && fd < 1 << 20)
            return (int)fd;
    }
    return -1;
}

/* A pipe or a device of this user or the system, which does not wait for a reader; -1: why is
   in errno. */
static int open_special(const char *path)
{
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    struct stat s;

    if (fd < 0)
        return -1;
    errno = EACCES; /* another file has replaced it, or it is another user's */
    if (fstat(fd, &s) == 0 && (S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode)) &&
        (s.st_uid == geteuid() || s.st_uid == 0) && fcntl(fd, F_SETFL, 0) == 0)
        return fd;
    close(fd);
    return -1;
}

/* Opens a pipe or device for writing as it is. Returns false where the name is that of a file,
   or none. */
static bool open_direct(wf_output *o, wf_error *error)
{
    int named = descriptor_of(o->path);
    struct stat s;

    if (named < 0 && (lstat(o->path, &s) != 0 || !(S_ISFIFO(s.st_mode) || S_ISCHR(s.st_mode))))
        return false;
    o->direct = true;
    o->file.fd = named >= 0 ? fcntl(named, F_DUPFD_CLOEXEC, 3) : open_special(o->path);
    if (o->file.fd < 0)
        wf_output_failed(o, error);
    return true;
}

/* The folder of a path, whose links are the user's, and the name in it. */
static wf_status enter(wf_output *o, const char **name, wf_error *error)
{
    const char *slash = strrchr(o->path, '/');
    char where[WF_FILES_PATH] = ".";
    wf_error why = {WF_OK, ""};

    *name = slash ? slash + 1 : o->path;
    if (slash &&
        snprintf(where, sizeof where, "%.*s", slash == o->path ? 1 : (int)(slash - o->path),
                 o->path) >= (int)sizeof where)
        return wf_error_set(error, WF_EIO, "cannot write %.200s..: the path is too long",
                            o->path);
    return wf_folder_open(&o->folder, &wf_system_files, where, &why) == WF_OK
               ? WF_OK
               : wf_output_failed(o, error);
}

wf_output *wf_output_open(const char *path, wf_error *error)
{
    wf_output *o = new_output(path, error);
    wf_error failed = {WF_OK, ""};
    const char *name;

    if (!o)
        return NULL;
    if (!open_direct(o, &failed) && enter(o, &name, &failed) == WF_OK) {
        wf_output_clean(&o->folder, name);
        begin(o, name, wf_output_mark(), &failed);
    }
    if (failed.code == WF_OK)
        return o;
    wf_error_set(error, failed.code, "%s", failed.text);
    wf_output_discard(o);
    return NULL;
}

wf_output_folder *wf_output_folder_open(const char *path, wf_error *error)
{
    wf_output_folder *f = calloc(1, sizeof *f);

    if (!f) {
        wf_error_set(error, WF_ENOMEM, "no memory for folder %s", path);
        return NULL;
    }
    f->folder.fd = -1;
    if (wf_files_make_directory(&wf_system_files, path, error) == WF_OK &&
        wf_folder_open(&f->folder, &wf_system_files, path, error) == WF_OK) {
        wf_output_clean(&f->folder, NULL);
        return f;
    }
    free(f);
    return NULL;
}

void wf_output_folder_close(wf_output_folder *folder)
{
    if (folder)
        wf_folder_close(&folder->folder);
    free(folder);
}

wf_output *wf_output_open_in(wf_output_folder *folder, const char *name, wf_error *error)
{
    return wf_output_begin(&folder->folder, name, wf_output_mark(), error);
}
