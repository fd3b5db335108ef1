/* core/coroutine.c - a switch of stacks by ucontext, which is reported to sanitizers. */
#include "core/coroutine_internal.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define WF_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define WF_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define WF_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define WF_TSAN 1
#endif
#ifdef WF_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef WF_TSAN
/* Declared here: clang's header of them comes with the sanitizers, which a machine that
   compiles tests/scheduler, with functions of its own under these names, need not have. */
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void *fiber);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#endif

enum { STACK = 8 << 20 }; /* as a thread's; pages that are not touched take no memory */

struct wf_coroutine {
    ucontext_t own, caller;
    char *stack; /* after a page without access */
    size_t page;
    void (*run)(void *arg);
    void *arg;
#ifdef WF_ASAN
    const void *caller_bottom;
    size_t caller_bytes;
#endif
#ifdef WF_TSAN
    void *fiber, *caller_fiber;
#endif
};

wf_coroutine *wf_coroutine_open(void)
{
    wf_coroutine *c = calloc(1, sizeof *c);
    void *memory;

    if (!c)
        return NULL;
    c->page = (size_t)sysconf(_SC_PAGESIZE);
    memory = mmap(NULL, c->page + STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, c->page, PROT_NONE) != 0) {
        if (memory != MAP_FAILED)
            munmap(memory, c->page + STACK);
        free(c);
        return NULL;
    }
    c->stack = (char *)memory + c->page;
    return c;
}

void wf_coroutine_close(wf_coroutine *c)
{
    if (!c)
        return;
#ifdef WF_TSAN
    if (c->fiber)
        __tsan_destroy_fiber(c->fiber);
#endif
    munmap(c->stack - c->page, c->page + STACK);
    free(c);
}

/* Report to sanitizers a switch to the stack of the caller, and of the next one back. Inlined:
   no function may return between such a call and its switch. */
#define INLINE static inline __attribute__((always_inline))

INLINE void leaves(wf_coroutine *c, void **fake)
{
#ifdef WF_ASAN
    __sanitizer_start_switch_fiber(fake, c->caller_bottom, c->caller_bytes);
#endif
#ifdef WF_TSAN
    __tsan_switch_to_fiber(c->caller_fiber, 0);
#endif
    (void)c;
    (void)fake;
}

INLINE void arrives(wf_coroutine *c, void *fake)
{
#ifdef WF_ASAN
    __sanitizer_finish_switch_fiber(fake, &c->caller_bottom, &c->caller_bytes);
#endif
    (void)c;
    (void)fake;
}

/* The first function on a stack. makecontext passes ints alone: a pointer in two of them. */
static void begin(unsigned high, unsigned low)
{
    wf_coroutine *c = (wf_coroutine *)(((uintptr_t)high << 16 << 16) | low);

    arrives(c, NULL);
    c->run(c->arg);
    leaves(c, NULL);
    setcontext(&c->caller);
}

void wf_coroutine_continue(wf_coroutine *c)
{
#ifdef WF_ASAN
    void *fake = NULL;

    __sanitizer_start_switch_fiber(&fake, c->stack, STACK);
#endif
#ifdef WF_TSAN
    c->caller_fiber = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(c->fiber, 0);
#endif
    swapcontext(&c->caller, &c->own);
#ifdef WF_ASAN
    __sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
}

void wf_coroutine_start(wf_coroutine *c, void (*run)(void *arg), void *arg)
{
    union {
        void (*two)(unsigned, unsigned);
        void (*none)(void);
    } entry = {begin};
    uintptr_t self = (uintptr_t)c;

    c->run = run;
    c->arg = arg;
    getcontext(&c->own);
    c->own.uc_stack.ss_sp = c->stack;
    c->own.uc_stack.ss_size = STACK;
    c->own.uc_link = NULL; /* begin does not return */
    makecontext(&c->own, entry.none, 2, (unsigned)(self >> 16 >> 16), (unsigned)self);
#ifdef WF_TSAN
    if (c->fiber)
        __tsan_destroy_fiber(c->fiber);
    c->fiber = __tsan_create_fiber(0);
#endif
    wf_coroutine_continue(c);
}

void wf_coroutine_stop(wf_coroutine *c)
{
    void *fake = NULL;

    leaves(c, &fake);
    swapcontext(&c->own, &c->caller);
    arrives(c, fake);
}
