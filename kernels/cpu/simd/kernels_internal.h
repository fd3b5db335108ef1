/*
 * kernels/cpu/simd/kernels_internal.h - the functions of a table of
 * kernels/cpu/simd_internal.h, which says what each computes, named for the instruction set
 * that is being compiled. table.c collects them.
 */
#ifndef WF_KERNELS_CPU_SIMD_KERNELS_INTERNAL_H
#define WF_KERNELS_CPU_SIMD_KERNELS_INTERNAL_H

#include "kernels/cpu/simd_internal.h"
#include "kernels/cpu/isa_level_internal.h"

size_t WF_ISA_NAME(wf_gemm_workspace)(const wf_gemm *g, int threads);
void WF_ISA_NAME(wf_gemm)(struct wf_thread_pool *pool, const wf_gemm *g, void *workspace);
void WF_ISA_NAME(wf_gemv_run)(struct wf_thread_pool *pool, const wf_gemv *s, int members);
void WF_ISA_NAME(wf_add)(const float *a, const float *b, float *y, int64_t n);
void WF_ISA_NAME(wf_sub)(const float *a, const float *b, float *y, int64_t n);
void WF_ISA_NAME(wf_mul)(const float *a, const float *b, float *y, int64_t n);
void WF_ISA_NAME(wf_scale)(const float *a, float s, float *y, int64_t n);
void WF_ISA_NAME(wf_maximum)(const float *a, const float *b, float *y, int64_t n);
void WF_ISA_NAME(wf_sum)(const float *const *src, int64_t n_src, bool tree, float *y,
                         int64_t n);
void WF_ISA_NAME(wf_sum_to_all)(const float *const *src, int64_t n_src, bool tree,
                                float *const *dst, int64_t n_dst, bool non_temporal, int64_t n);
void WF_ISA_NAME(wf_narrow)(const float *from, uint16_t *to, int64_t n);
void WF_ISA_NAME(wf_widen)(const uint16_t *from, float *to, int64_t n);
void WF_ISA_NAME(wf_copy_non_temporal)(const void *from, void *to, size_t bytes);
void WF_ISA_NAME(wf_bias_add)(const float *x, const float *bias, float *y, int64_t rows,
                              int64_t d);
void WF_ISA_NAME(wf_swiglu)(const float *gate, const float *up, float *y, int64_t n);
void WF_ISA_NAME(wf_swiglu_grad)(const float *gate, const float *up, const float *dy,
                                 float *dgate, float *dup, int64_t n);
void WF_ISA_NAME(wf_bias_gelu)(const float *x, const float *bias, float *y, int64_t rows,
                               int64_t d);
void WF_ISA_NAME(wf_bias_gelu_grad)(const float *x, const float *bias, const float *dy,
                                    float *dx, int64_t rows, int64_t d);
void WF_ISA_NAME(wf_layernorm)(const float *x, const float *gain, const float *bias, float eps,
                               float *y, float *mean, float *rstd, int64_t rows, int64_t d);
void WF_ISA_NAME(wf_layernorm_grad)(const float *x, const float *gain, const float *mean,
                                    const float *rstd, const float *dy, float *dx, int64_t rows,
                                    int64_t d);
void WF_ISA_NAME(wf_layernorm_chunk)(const float *x, const float *mean, const float *rstd,
                                     const float *dy, float *dgain, float *dbias,
                                     wf_chunk_rows rows, int64_t d);
void WF_ISA_NAME(wf_rmsnorm)(const float *x, const float *gain, float eps, float *y,
                             float *rstd, int64_t rows, int64_t d);
void WF_ISA_NAME(wf_rmsnorm_grad)(const float *x, const float *gain, const float *rstd,
                                  const float *dy, float *dx, int64_t rows, int64_t d);
void WF_ISA_NAME(wf_rmsnorm_chunk)(const float *x, const float *rstd, const float *dy,
                                   float *dgain, wf_chunk_rows rows, int64_t d);
void WF_ISA_NAME(wf_bias_chunk)(const float *dy, int64_t stride, float *dbias,
                                wf_chunk_rows rows, int64_t d);
void WF_ISA_NAME(wf_softmax_grad)(const float *y, const float *dy, float *dx, int64_t rows,
                                  int64_t n);
float WF_ISA_NAME(wf_dot)(const float *a, const float *b, int64_t n);
void WF_ISA_NAME(wf_rope)(const float *x, const float *cosine, const float *sine, bool inverse,
                          float *y, int64_t heads, int64_t dim, int64_t features);
void WF_ISA_NAME(wf_dropout)(const float *x, float *y, int64_t n, uint64_t key,
                             const uint32_t counter[3], int64_t first, float p);
void WF_ISA_NAME(wf_fill_uniform)(float *dst, int64_t n, const wf_random_run *run, float shift,
                                  float factor);
void WF_ISA_NAME(wf_fill_normal)(float *dst, int64_t n, const wf_random_run *run, float mean,
                                 float deviation);
void WF_ISA_NAME(wf_fill_truncated)(float *dst, int64_t n, const wf_random_run *run,
                                    const struct wf_truncated *truncated);
float WF_ISA_NAME(wf_row_max)(const float *x, int64_t n);
float WF_ISA_NAME(wf_sum_exp)(const float *x, float max, int64_t n);
float WF_ISA_NAME(wf_row_sum)(const float *x, int64_t n);
void WF_ISA_NAME(wf_exp_scale)(const float *x, float max, float s, float *y, int64_t n);
size_t WF_ISA_NAME(wf_attention_workspace)(int64_t keys, int64_t dim);
void WF_ISA_NAME(wf_attention)(const wf_attention_head *head, void *out, int64_t out_stride,
                               float *lse, void *workspace);
size_t WF_ISA_NAME(wf_attention_row_workspace)(int64_t groups, int64_t heads, int64_t dim);
void WF_ISA_NAME(wf_attention_row)(const wf_attention_head *head, int64_t groups, int64_t heads,
                                   void *out, void *workspace);
size_t WF_ISA_NAME(wf_attention_grad_workspace)(int64_t keys, int64_t dim);
void WF_ISA_NAME(wf_attention_grad)(const wf_attention_head *head, const void *out,
                                    int64_t out_stride, const float *lse, const void *dout,
                                    int64_t dout_stride, void *dq, int64_t dq_stride, float *dk,
                                    float *dv, void *workspace);
void WF_ISA_NAME(wf_attention_sinks)(int64_t rows, int64_t first, int64_t heads, int64_t dim,
                                     const float *y, const float *dy, const float *lse,
                                     const float *sink, float *out);
void WF_ISA_NAME(wf_attention_unpack)(const float *packed, int64_t keys, int64_t dim, void *to,
                                      int64_t stride, bool bf16);
void WF_ISA_NAME(wf_adamw)(float *p, const float *g, float *m, float *v, int64_t n,
                           const wf_adamw_constants *c);
void WF_ISA_NAME(wf_adamw8)(float *p, const float *g, uint8_t *m8, uint8_t *v8, int64_t n,
                            const struct wf_dynamic8_map *map, const wf_adamw_constants *c);
void WF_ISA_NAME(wf_sgd)(float *p, const float *g, float *m, int64_t n,
                         const wf_adamw_constants *c);
double WF_ISA_NAME(wf_sum_squares)(const float *x, int64_t n);

extern const wf_simd WF_ISA_NAME(wf_simd);
extern const wf_simd WF_ISA_NAME(
    wf_simd_tiles); /* products alone: kernels/cpu/amx/gemm_tiles.c */

#endif
