/* core/futex.h - sleep until a word changes, and wake who sleeps on it (futex(2), one
   process). */
#ifndef WF_CORE_FUTEX_H
#define WF_CORE_FUTEX_H

#include "core/export.h"
#include <stdbool.h>
#include <stdint.h>

WF_BEGIN_DECLS

/**
 * wf_futex_wait - sleeps while a word has this value. It may return early without a reason:
 * callers recheck their condition.
 *
 * @param word          an atomic word of 32 bits, of this process
 * @param milliseconds  how long at most
 * Returns: true where the time ran out
 */
WF_API bool wf_futex_wait(const void *word, uint32_t value, int milliseconds);

/** wf_futex_wake - wakes at most `most` of the threads that sleep on a word. */
WF_API void wf_futex_wake(const void *word, int most);

/** wf_cpu_relax - pauses for a moment without giving the core away. */
static inline void wf_cpu_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

WF_END_DECLS

#endif
