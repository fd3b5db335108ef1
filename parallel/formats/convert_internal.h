/*
 * parallel/formats/convert_internal.h - numbers as files store them. To f32 every bf16 and fp16
 * is exact; back, the nearest one is taken, the even one of two. Not installed.
 */
#ifndef WF_PARALLEL_FORMATS_CONVERT_INTERNAL_H
#define WF_PARALLEL_FORMATS_CONVERT_INTERNAL_H

#include "parallel/formats/safetensors_internal.h"

float wf_from_bf16(uint16_t bits);
float wf_from_f16(uint16_t bits);
uint16_t wf_to_bf16(float x); /* a NaN stays one, quiet */
uint16_t wf_to_f16(float x);  /* beyond 65504: infinity */

/* Returns true for a type that can be converted: F32, BF16 and F16. */
bool wf_converts(wf_safetensors_dtype dtype);
void wf_convert_from(wf_safetensors_dtype dtype, const void *from, float *to, int64_t n);
void wf_convert_to(wf_safetensors_dtype dtype, const float *from, void *to, int64_t n);

/* to[c * to_step + r] = from[r * from_step + c] for r < rows, c < columns. */
void wf_hf_transpose(const float *from, int64_t from_step, int64_t rows, int64_t columns,
                     float *to, int64_t to_step);

#endif
