/*
 * tests/cuda/emulator/fiber.c - a switch of stacks: six registers on x86-64, ucontext
 * elsewhere.
 */
#include "fiber.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FIBER_TSAN 1
#endif
#endif
#ifdef FIBER_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

#ifdef __x86_64__
enum { COLOUR = 832, COLOURED = 64 << 10 };

void emulator_switch_stacks(void **save, void *load);

/* Pushes the registers that a function must preserve; the stack pointer is all that is left to
   remember. */
__asm__(".text\n"
        ".globl emulator_switch_stacks\n"
        ".hidden emulator_switch_stacks\n"
        ".type emulator_switch_stacks,@function\n"
        "emulator_switch_stacks:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq %rsi, %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    ret\n"
        ".size emulator_switch_stacks,.-emulator_switch_stacks\n");

/* Begins stacks at different lines of a cache: where all begin at one address modulo a power
   of two, the few lines that every thread of a block uses are of one set. */
static size_t colour(void)
{
    static size_t stacks;

    return stacks++ * COLOUR % COLOURED;
}

static void prepare(fiber *f, void (*main)(void))
{
    void **top = (void **)(void *)(f->stack + f->bytes - colour());
    union {
        void (*code)(void);
        void *data;
    } entry = {main};

    *--top = NULL; /* main's return address; a call leaves the stack at 16 n + 8 */
    *--top = entry.data;
    for (int i = 0; i < 6; i++)
        *--top = NULL;
    f->at = top;
}

static void swap(fiber *from, fiber *to)
{
    emulator_switch_stacks(&from->at, to->at);
}
#else
#include <ucontext.h>

static ucontext_t *context_of(fiber *f)
{
    if (!f->at)
        f->at = calloc(1, sizeof(ucontext_t));
    return f->at;
}

static void prepare(fiber *f, void (*main)(void))
{
    ucontext_t *u = context_of(f);

    getcontext(u);
    u->uc_stack.ss_sp = f->stack;
    u->uc_stack.ss_size = f->bytes;
    u->uc_link = NULL;
    makecontext(u, main, 0);
}

static void swap(fiber *from, fiber *to)
{
    swapcontext(context_of(from), context_of(to));
}
#endif

#ifdef FIBER_ASAN
static fiber *came_from;

/* A thread's own stack is known when a fiber was reached from there. */
static void arrive(void *fake)
{
    const void *bottom;
    size_t bytes;

    __sanitizer_finish_switch_fiber(fake, &bottom, &bytes);
    if (!came_from->stack) {
        came_from->shadow = (void *)(uintptr_t)bottom;
        came_from->bytes = bytes;
    }
}
#endif

fiber *fiber_open(size_t bytes, void (*main)(void))
{
    fiber *f = calloc(1, sizeof *f);
    void *stack =
        f ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
          : MAP_FAILED;

    if (stack == MAP_FAILED) {
        free(f);
        return NULL;
    }
    f->stack = stack;
    f->bytes = bytes;
#ifdef FIBER_TSAN
    f->shadow = __tsan_create_fiber(0);
#endif
    prepare(f, main);
    return f;
}

void fiber_begins(void)
{
#ifdef FIBER_ASAN
    arrive(NULL);
#endif
}

void fiber_switch(fiber *from, fiber *to)
{
#ifdef FIBER_TSAN
    if (!from->stack)
        from->shadow = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->shadow, 0);
#endif
#ifdef FIBER_ASAN
    void *fake = NULL;

    came_from = from;
    __sanitizer_start_switch_fiber(&fake, to->stack ? to->stack : to->shadow, to->bytes);
#endif
    swap(from, to);
#ifdef FIBER_ASAN
    arrive(fake);
#endif
}
