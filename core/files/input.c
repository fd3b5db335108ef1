/* core/files/input.c - see the header. */
#include "core/files/input.h"
#include <fcntl.h>
#include <string.h>
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
               ? "is the pointer that Git LFS left in place of a file: git lfs pull brings the "
                 "file itself"
               : NULL;
}
