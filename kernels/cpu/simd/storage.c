/*
 * kernels/cpu/simd/storage.c - floats as bf16 and back: integer operations of every element,
 * which the compiler makes vectors of.
 */
#include "core/numerics/bf16.h"
#include "kernels/cpu/simd/kernels_internal.h"

void WF_ISA_NAME(wf_narrow)(const float *restrict from, uint16_t *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_of(from[i]);
}

void WF_ISA_NAME(wf_widen)(const uint16_t *restrict from, float *restrict to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = wf_bf16_value(from[i]);
}
