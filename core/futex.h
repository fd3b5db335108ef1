/* core/futex.h - sleep until a word changes, and wake who sleeps on it (futex(2), one process).
 */
#ifndef WF_CORE_FUTEX_H
#define WF_CORE_FUTEX_H

#include <errno.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Sleep while *word == value, for at most `milliseconds`; true where the time ran out. Returns
   early without a reason now and then: callers look at their condition again. */
static inline bool wf_futex_wait(_Atomic uint32_t *word, uint32_t value, int milliseconds)
{
    struct timespec limit = {.tv_sec = milliseconds / 1000,
                             .tv_nsec = milliseconds % 1000 * 1000000L};

    return syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &limit, NULL, 0) < 0 &&
           errno == ETIMEDOUT;
}

static inline void wf_futex_wake(_Atomic uint32_t *word, int most)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, most, NULL, NULL, 0);
}

/* Let a moment pass without giving the core away. */
static inline void wf_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

#endif
