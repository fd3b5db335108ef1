/* core/futex.c - sleeping on a word by the kernel's futex(2). */
#include "core/futex.h"
#include <errno.h>
#include <linux/futex.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

bool wf_futex_wait(const void *word, uint32_t value, int milliseconds)
{
    struct timespec limit = {.tv_sec = milliseconds / 1000,
                             .tv_nsec = milliseconds % 1000 * 1000000L};

    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0) < 0 &&
           errno == ETIMEDOUT;
}

void wf_futex_wake(const void *word, int most)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}
