/* parallel/report/atomic_write.c - rows and records of logs, which are in a file whole or not
   at all. */
#include "parallel/report/atomic_write_internal.h"
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns whether the file has no name any more: what is written is lost. */
static bool is_removed(int file)
{
    struct stat s;

    return fstat(file, &s) == 0 && S_ISREG(s.st_mode) && s.st_nlink == 0;
}

/* One write, if the system takes it: a run that is killed leaves whole rows. */
wf_status wf_write_whole(int file, const char *path, const void *bytes, size_t size,
                         wf_error *error)
{
    const char *next = bytes;
    off_t end = lseek(file, 0, SEEK_END);

    if (is_removed(file))
        return wf_error_set(
            error, WF_EIO,
            "log file %s was removed while the run writes to it: what follows is "
            "lost",
            path);
    while (size) {
        ssize_t done = write(file, next, size);
        int failure = errno;

        if (done < 0 && failure == EINTR)
            continue;
        if (done <= 0) {
            if (end >= 0 && ftruncate(file, end) == 0)
                lseek(file, end, SEEK_SET);
            return wf_error_set(error, WF_EIO, "cannot write log file %s: %s", path,
                                done < 0 ? strerror(failure) : "no byte was taken");
        }
        next += done;
        size -= (size_t)done;
    }
    return WF_OK;
}
