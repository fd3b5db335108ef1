/* core/files/input.c - see the header. */
#include "core/files/input.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

FILE *wf_input_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "r") : NULL;

    if (fd >= 0 && !file)
        close(fd);
    return file;
}

const char *wf_input_pointer(const void *begin, size_t bytes)
{
    static const char magic[] = "version https://git-lfs";

    return bytes >= sizeof magic - 1 && memcmp(begin, magic, sizeof magic - 1) == 0
               ? "is the pointer that Git LFS left instead of a file: git lfs pull brings the "
                 "file itself"
               : NULL;
}

const char *wf_input_pointer_at(const char *path)
{
    int last = errno, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat s;
    char begin[64];
    ssize_t n = fd >= 0 && fstat(fd, &s) == 0 && S_ISREG(s.st_mode)
                    ? read(fd, begin, sizeof begin)
                    : -1;

    if (fd >= 0)
        close(fd);
    errno = last;
    return n > 0 ? wf_input_pointer(begin, (size_t)n) : NULL;
}

/* Finds the part of a path that is a file; returns its length, 0: there is none. */
static size_t file_in(const char *path, char *part, size_t size)
{
    struct stat s;

    for (size_t n = 1; n < size && path[n - 1]; n++) {
        if (path[n] && path[n] != '/')
            continue;
        memcpy(part, path, n);
        part[n] = 0;
        if (stat(part, &s) == 0 && !S_ISDIR(s.st_mode))
            return n;
    }
    return 0;
}

const char *wf_input_why_not(const char *path, char *text, size_t size)
{
    int why = errno;
    const char *pointer = NULL;
    char part[4096];

    if (why != ENOTDIR || !file_in(path, part, sizeof part)) {
        snprintf(text, size, "%s", strerror(why));
    } else {
        pointer = wf_input_pointer_at(part);
        snprintf(text, size, "%s: %.1000s %s", strerror(why), part,
                 pointer ? pointer : "is a file");
    }
    errno = why;
    return text;
}
