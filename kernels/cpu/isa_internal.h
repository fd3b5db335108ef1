/* kernels/cpu/isa_internal.h - a table of kernels by the name of its instruction set. */
#ifndef WF_KERNELS_CPU_ISA_INTERNAL_H
#define WF_KERNELS_CPU_ISA_INTERNAL_H

#include "kernels/cpu/simd_internal.h"

/* The names of the sets whose kernels are the files of kernels/cpu/simd/. */
#define WF_CPU_ISAS "portable", "neon", "avx2", "avx512"

/*
 * wf_cpu_simd_named - "portable", "neon", "avx2", "avx512" or "amx"; NULL and the reason in
 * *why (a static string; why may be NULL) where the name is unknown or the machine lacks the
 * instructions.
 */
const wf_simd *wf_cpu_simd_named(const char *name, const char **why);

#endif
