/* core/files/input.c - see the header. */
#include "core/files/input.h"
#include <fcntl.h>
#include <unistd.h>

FILE *wf_input_open(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    FILE *file = fd >= 0 && fcntl(fd, F_SETFL, 0) == 0 ? fdopen(fd, "r") : NULL;

    if (fd >= 0 && !file)
        close(fd);
    return file;
}
