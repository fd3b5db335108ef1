/*
 * kernels/cpu/denormals_internal.h - whether this thread takes and gives denormal floats as
 * zeros of their sign, as products of bf16 numbers do (kernels/DECISIONS.md): two bits of x86's
 * MXCSR, one of Arm's FPCR.
 *
 * What is to compute so is a function that is not inlined, called between wf_denormals_begin
 * and wf_denormals_end: a compiler knows nothing of the register, and moves arithmetic across.
 */
#ifndef WF_KERNELS_CPU_DENORMALS_INTERNAL_H
#define WF_KERNELS_CPU_DENORMALS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define WF_OUT_OF_LINE __attribute__((noinline))

/* Returns the thread's mode, for wf_denormals_end; with `zero` denormals are zeros from now
   on. */
static inline uint64_t wf_denormals_begin(bool zero)
{
#if defined(__x86_64__)
    uint32_t was = _mm_getcsr(), both = 1u << 15 | 1u << 6; /* results, operands */

    if (zero)
        _mm_setcsr(was | both);
    return was;
#elif defined(__aarch64__)
    uint64_t was;

    __asm__ volatile("mrs %0, fpcr" : "=r"(was));
    if (zero)
        __asm__ volatile("msr fpcr, %0" : : "r"(was | 1u << 24));
    return was;
#else
    return zero ? 0 : 1; /* no mode is known: denormals stay, and results may have other bits */
#endif
}

static inline void wf_denormals_end(uint64_t was)
{
#if defined(__x86_64__)
    _mm_setcsr((uint32_t)was);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(was));
#else
    (void)was;
#endif
}

#endif
