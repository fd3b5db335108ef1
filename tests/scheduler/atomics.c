/*
 * tests/scheduler/atomics.c - atomic operations as points. What is compiled with
 * -fsanitize=thread calls these functions, which are ThreadSanitizer's interface to the
 * compiler (compiler-rt, sanitizer/tsan_interface_atomic.h), instead of them.
 */
#include "tests/scheduler/scheduler_internal.h"
#include <string.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

void __tsan_init(void)
{
}

void __tsan_func_entry(const void *pc)
{
    (void)pc;
}

void __tsan_func_exit(void)
{
}

void __tsan_vptr_update(void **at, void *value)
{
    (void)at;
    (void)value;
}

#define PLAIN(name)                                                                            \
    void __tsan_##name(const void *at)                                                         \
    {                                                                                          \
        (void)at;                                                                              \
    }
#define SIZES(kind) PLAIN(kind##1) PLAIN(kind##2) PLAIN(kind##4) PLAIN(kind##8) PLAIN(kind##16)
SIZES(read)
SIZES(write)
SIZES(unaligned_read)
SIZES(unaligned_write)
SIZES(volatile_read)
SIZES(volatile_write)
SIZES(unaligned_volatile_read)
SIZES(unaligned_volatile_write)

void __tsan_read_range(const void *at, unsigned long size)
{
    (void)at;
    (void)size;
}

void __tsan_write_range(const void *at, unsigned long size)
{
    (void)at;
    (void)size;
}

/* Clang's forms of what copies and fills. */
void *__tsan_memcpy(void *to, const void *from, unsigned long size)
{
    return memcpy(to, from, size);
}

void *__tsan_memmove(void *to, const void *from, unsigned long size)
{
    return memmove(to, from, size);
}

void *__tsan_memset(void *at, int byte, unsigned long size)
{
    return memset(at, byte, size);
}

#define FETCH(bits, type, name)                                                                \
    type __tsan_atomic##bits##_fetch_##name(volatile type *at, type value, int order)          \
    {                                                                                          \
        (void)order;                                                                           \
        scheduler_point();                                                                     \
        return __atomic_fetch_##name(at, value, __ATOMIC_SEQ_CST);                             \
    }

#define COMPARE(bits, type, strength, weak)                                                    \
    int __tsan_atomic##bits##_compare_exchange_##strength(volatile type *at, type *expected,   \
                                                          type value, int order, int failure)  \
    {                                                                                          \
        (void)order;                                                                           \
        (void)failure;                                                                         \
        scheduler_point();                                                                     \
        return __atomic_compare_exchange_n(at, expected, value, weak, __ATOMIC_SEQ_CST,        \
                                           __ATOMIC_SEQ_CST);                                  \
    }

#define ATOMICS(bits, type)                                                                    \
    type __tsan_atomic##bits##_load(const volatile type *at, int order)                        \
    {                                                                                          \
        (void)order;                                                                           \
        scheduler_point();                                                                     \
        return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                          \
    }                                                                                          \
    void __tsan_atomic##bits##_store(volatile type *at, type value, int order)                 \
    {                                                                                          \
        (void)order;                                                                           \
        scheduler_point();                                                                     \
        __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                         \
    }                                                                                          \
    type __tsan_atomic##bits##_exchange(volatile type *at, type value, int order)              \
    {                                                                                          \
        (void)order;                                                                           \
        scheduler_point();                                                                     \
        return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                               \
    }                                                                                          \
    FETCH(bits, type, add)                                                                     \
    FETCH(bits, type, sub)                                                                     \
    FETCH(bits, type, and)                                                                     \
    FETCH(bits, type, or)                                                                      \
    FETCH(bits, type, xor)                                                                     \
    FETCH(bits, type, nand)                                                                    \
    COMPARE(bits, type, strong, 0)                                                             \
    COMPARE(bits, type, weak, 1)                                                               \
    type __tsan_atomic##bits##_compare_exchange_val(volatile type *at, type expected,          \
                                                    type value, int order, int failure)        \
    {                                                                                          \
        __tsan_atomic##bits##_compare_exchange_strong(at, &expected, value, order, failure);   \
        return expected; /* clang's form: what was there */                                    \
    }

ATOMICS(8, uint8_t)
ATOMICS(16, uint16_t)
ATOMICS(32, uint32_t)
ATOMICS(64, uint64_t)

void __tsan_atomic_thread_fence(int order)
{
    (void)order;
    scheduler_point();
}

void __tsan_atomic_signal_fence(int order)
{
    (void)order;
}

void *__tsan_get_current_fiber(void)
{
    return NULL;
}

void *__tsan_create_fiber(unsigned flags)
{
    (void)flags;
    return NULL;
}

void __tsan_destroy_fiber(void *fiber)
{
    (void)fiber;
}

void __tsan_switch_to_fiber(void *fiber, unsigned flags)
{
    (void)fiber;
    (void)flags;
}
