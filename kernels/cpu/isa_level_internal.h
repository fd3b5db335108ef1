/*
 * kernels/cpu/isa_level_internal.h - the instruction set that a file of this folder is being
 * compiled for. The build compiles each file once with -DWF_ISA=portable, and with avx2 and
 * avx512 on x86-64, neon on AArch64; every function that is not static is named through
 * WF_ISA_NAME, so these builds live in one library.
 */
#ifndef WF_KERNELS_CPU_ISA_LEVEL_INTERNAL_H
#define WF_KERNELS_CPU_ISA_LEVEL_INTERNAL_H

#ifndef WF_ISA
#error "WF_ISA must be portable, neon, avx2 or avx512 (see kernels/CMakeLists.txt)"
#endif

#define WF_ISA_PASTE(a, b) a##b
#define WF_ISA_JOIN(a, b)  WF_ISA_PASTE(a, b)
#define WF_ISA_STRING(a)   #a
#define WF_ISA_QUOTE(a)    WF_ISA_STRING(a)

/* WF_ISA_NAME(wf_add) is wf_add_portable, wf_add_neon, wf_add_avx2 or wf_add_avx512. */
#define WF_ISA_NAME(x) WF_ISA_JOIN(x##_, WF_ISA)
/* "portable", "neon", "avx2" or "avx512" */
#define WF_ISA_TEXT WF_ISA_QUOTE(WF_ISA)

/* For #if: WF_ISA_LEVEL is one of the next four. */
#define WF_ISA_LEVEL_portable 0
#define WF_ISA_LEVEL_neon     1
#define WF_ISA_LEVEL_avx2     2
#define WF_ISA_LEVEL_avx512   3
#define WF_ISA_LEVEL          WF_ISA_JOIN(WF_ISA_LEVEL_, WF_ISA)

/* Loops over a tile's rows and vectors must vanish early, or its sums are no registers; the
   loop around them is unrolled by two. */
#if defined(WF_ROLLED)
#define UNROLL
#define UNROLL_TWICE
#elif defined(__clang__)
#define UNROLL       _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL       _Pragma("GCC unroll 16")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif

#endif
