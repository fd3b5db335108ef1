/* parallel/report/atomic_write.c - rows and records of logs, which are in a file whole or not at all. */
#include "parallel/report/atomic_write_internal.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

/* One write, if the system takes it: a run that is killed leaves whole rows. */
wf_status wf_write_whole(int file, const char *path, const void *bytes, size_t size,
                         wf_error *error)
{
    const char *next = bytes;
    off_t end = lseek(file, 0, SEEK_END);

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
