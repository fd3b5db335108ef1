/*
 * kernels/elementwise.h - ops by expression: one line gives an op, its gradient and their
 * kernels.
 *
 *     #include <weft/kernels/elementwise.h>
 *
 *     WF_ELEMENTWISE(exp_times, (s, x), WF_EXP(s) * x, (dy * WF_EXP(s) * x, dy * WF_EXP(s)))
 *
 * at file scope defines wf_tensor *exp_times(wf_tensor *s, wf_tensor *x), the op exp_times_op
 * and that of its gradients, exp_times_grad_op, which wf_check_op proves. The text is the
 * reference loop in double, the kernels of the CPU for each instruction set (this library's
 * choice, as for its own ops), the sharding rule "...,...->..." and, where nvcc compiles the
 * same file once more as CUDA (nvcc -x cu -c), the GPU's kernels: such a file holds nothing
 * else. An element is one fixed expression, so layouts, threads, instruction sets and devices
 * have the same bits. The language is that of kernels/lanes.h.
 *
 * The header is no part of <weft/weft.h>: it brings the compiler's vectors with it.
 */
#ifndef WF_KERNELS_ELEMENTWISE_H
#define WF_KERNELS_ELEMENTWISE_H

#include "core/context.h"
#include "core/op.h"
#include "kernels/lanes.h"

WF_BEGIN_DECLS

/* One op's loops over n elements, for vectors of 4, 8 and 16 lanes; a NULL is not compiled
   here. */
typedef struct wf_elementwise {
    int n_in, n_numbers, n_out;
    void (*lanes[3])(const float *const *in, const float *number, float *const *out, int64_t n);
} wf_elementwise;

/** wf_elementwise_cpu - runs an op's lanes for this machine's instruction set over a call, on
 * all threads of the rank;
 * wf_elementwise_workspace - returns the workspace bytes that it needs for bf16 tensors. */
WF_API wf_status wf_elementwise_cpu(const wf_call *call, void *workspace,
                                    const wf_elementwise *op);
WF_API size_t wf_elementwise_workspace(const wf_call *call);

/** wf_elementwise_backward - computes gradients by an op of the saved tensors and the output's
 * gradient, whose outputs are the gradients of the first operands. */
WF_API void wf_elementwise_backward(wf_gradient *g, const wf_op *gradients, int n_numbers);

/** wf_elementwise_apply - runs an op by expression over operands that are made alike
 * (wf_broadcast_all), as wf_apply does otherwise. */
WF_API wf_tensor *wf_elementwise_apply(const wf_op *op, const void *attr, size_t attr_size,
                                       int n_in, ...);

WF_END_DECLS

/* Gives the numbers of a call: those of its attributes, zeros where it has none. */
static inline void wf_elementwise_numbers(const wf_call *call, int n, float *number)
{
    for (int i = 0; i < n; i++)
        number[i] = call->attr ? ((const float *)call->attr)[i] : 0;
}

/* `body` is one element, in double. The call of a fused op's reference may have more operands
   than these. */
static inline wf_status wf_elementwise_reference(const wf_call *call, int n_in, int n_numbers,
                                                 int n_out,
                                                 void (*body)(const double *x,
                                                              const double *number, double *y))
{
    int64_t n = wf_tensor_local_count(call->out[0]);
    double x[WF_MAX_INPUTS] = {0}, y[WF_MAX_OUTPUTS] = {0}, number[4] = {0};
    float as_given[4] = {0};

    wf_elementwise_numbers(call, n_numbers, as_given);
    for (int k = 0; k < n_numbers; k++)
        number[k] = (double)as_given[k];
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < n_in; k++)
            x[k] = ((const double *)call->in[k]->data)[i];
        body(x, number, y);
        for (int k = 0; k < n_out; k++)
            ((double *)call->out[k]->data)[i] = y[k];
    }
    return WF_OK;
}

/* ---- what the tables of ops by expression are made of; inputs, numbers, outputs: lists (a, b)
   ---- */

#define WF_X_INPUT(i, name)  const wf_type name = wf_x[i];
#define WF_X_NUMBER(i, name) const wf_type name = wf_number[i];
#define WF_X_UNUSED(i, name) (void)name;
#define WF_X_OUTPUT(i, text) wf_y[i] = WF_X_AS(wf_type, text);
#define WF_X_BODY(inputs, numbers, outputs)                                                    \
    WF_EACH(WF_X_INPUT, inputs)                                                                \
    WF_EACH(WF_X_NUMBER, numbers)                                                              \
    WF_EACH(WF_X_UNUSED, inputs)                                                               \
    WF_EACH(WF_X_UNUSED, numbers)                                                              \
    WF_EACH(WF_X_OUTPUT, outputs)

/* An op without a number has this one, which is not used. */
#define WF_NO_NUMBERS (wf_no_number)

#ifndef __cplusplus
#define WF_X_AS(type, text) ((text) - (type){0})

/* name_reference: the loop in double. */
#define WF_X_REFERENCE(name, inputs, numbers, outputs)                                         \
    WF_LANES_BODY()                                                                            \
    void name##_double(const double *wf_x, const double *wf_number, double *wf_y)              \
    {                                                                                          \
        WF_LANES_UNJOINED typedef double wf_type;                                              \
                                                                                               \
        WF_X_BODY(inputs, numbers, outputs)                                                    \
    }                                                                                          \
    static wf_status name##_reference(const wf_call *call, void *workspace)                    \
    {                                                                                          \
        (void)workspace;                                                                       \
        return wf_elementwise_reference(call, WF_COUNT(inputs), WF_COUNT(numbers),             \
                                        WF_COUNT(outputs), name##_double);                     \
    }

#define WF_X_LANES(width, name, inputs, numbers, outputs)                                      \
    WF_LANES_BODY(WF_LANES_TARGET_##width)                                                     \
    void name##_at##width(const wf_lanes##width *wf_x, const wf_lanes##width *wf_number,       \
                          wf_lanes##width *wf_y)                                               \
    {                                                                                          \
        WF_LANES_UNJOINED typedef wf_lanes##width wf_type;                                     \
                                                                                               \
        WF_X_BODY(inputs, numbers, outputs)                                                    \
    }                                                                                          \
    static __attribute__((WF_LANES_OPTIONS WF_LANES_TARGET_##width unused)) void               \
        name##_lanes##width(const float *const *in, const float *number, float *const *out,    \
                            int64_t n)                                                         \
    {                                                                                          \
        wf_lanes##width##_run(WF_COUNT(inputs), WF_COUNT(numbers), WF_COUNT(outputs),          \
                              name##_at##width, in, number, out, n);                           \
        WF_LANES_LEAVE_##width                                                                 \
    }

#if defined(WF_LANES_WITHOUT_8) /* one set of vectors beside the portable ones */
#define WF_X_EVERY_WIDTH(name, inputs, numbers, outputs)                                       \
    WF_X_LANES(4, name, inputs, numbers, outputs)                                              \
    WF_X_LANES(16, name, inputs, numbers, outputs)
#define WF_X_LOOPS(name)                                                                       \
    {                                                                                          \
        name##_lanes4, NULL, name##_lanes16                                                    \
    }
#elif defined(__x86_64__)
#define WF_X_EVERY_WIDTH(name, inputs, numbers, outputs)                                       \
    WF_X_LANES(4, name, inputs, numbers, outputs)                                              \
    WF_X_LANES(8, name, inputs, numbers, outputs)                                              \
    WF_X_LANES(16, name, inputs, numbers, outputs)
#define WF_X_LOOPS(name)                                                                       \
    {                                                                                          \
        name##_lanes4, name##_lanes8, name##_lanes16                                           \
    }
#else
#define WF_X_EVERY_WIDTH(name, inputs, numbers, outputs)                                       \
    WF_X_LANES(4, name, inputs, numbers, outputs)
#define WF_X_LOOPS(name)                                                                       \
    {                                                                                          \
        name##_lanes4, NULL, NULL                                                              \
    }
#endif

/* name_cpu: the CPU's kernel. */
#define WF_X_CPU(name, inputs, numbers, outputs)                                               \
    WF_X_EVERY_WIDTH(name, inputs, numbers, outputs)                                           \
    static wf_status name##_run(const wf_call *call, void *workspace)                          \
    {                                                                                          \
        static const wf_elementwise loops = {WF_COUNT(inputs), WF_COUNT(numbers),              \
                                             WF_COUNT(outputs), WF_X_LOOPS(name)};             \
                                                                                               \
        return wf_elementwise_cpu(call, workspace, &loops);                                    \
    }
#define WF_X_KERNEL(name, inputs, outputs)                                                     \
    {                                                                                          \
        .run = name##_run, .workspace = wf_elementwise_workspace,                              \
        .mixed_ok = (WF_IN(WF_COUNT(inputs)) - 1) | (WF_OUT(WF_COUNT(outputs)) - WF_OUT(0))    \
    }

#define WF_X_OPERAND(i, name) , name

#define WF_X_ONE(called, signature_text, inputs, numbers, outputs, ...)                        \
    WF_X_REFERENCE(called, inputs, numbers, outputs)                                           \
    WF_X_CPU(called, inputs, numbers, outputs)                                                 \
    extern const wf_op called##_op;                                                            \
    extern const wf_kernel called##_cuda __attribute__((weak));                                \
    static const wf_kernel called##_cpu = WF_X_KERNEL(called, inputs, outputs);                \
    const wf_op called##_op = {                                                                \
        .name = #called,                                                                       \
        .signature = signature_text,                                                           \
        .reference = {.run = called##_reference},                                              \
        .kernels = WF_KERNELS({"cpu", &called##_cpu}, {"cuda", &called##_cuda}),               \
        __VA_ARGS__};

/* The op and that of its gradients. */
#define WF_X_BOTH(name, inputs, numbers, expression, gradients)                                \
    WF_X_ONE(name##_grad, WF_DOTS(inputs) ",...->" WF_DOTS(gradients), (WF_OPEN inputs, dy),   \
             numbers, gradients, .backward = NULL)                                             \
    static void name##_backward(wf_gradient *g)                                                \
    {                                                                                          \
        wf_elementwise_backward(g, &name##_grad_op, WF_COUNT(numbers));                        \
    }                                                                                          \
    WF_X_ONE(name, WF_DOTS(inputs) "->...", inputs, numbers, (expression),                     \
             .save = WF_SAVE_IN(WF_COUNT(inputs)) - 1, .backward = name##_backward)

/*
 * WF_ELEMENTWISE - an op of one to three tensors, of shapes that wf_broadcast_all makes alike
 *
 * @param name        of the function, and the op's
 * @param inputs      (a, b): what the tensors are called in the text
 * @param expression  an element of the result
 * @param gradients   a list as long as inputs: the gradient of each, of the inputs and dy; a
 *                    shorter one, for the first of them: the others take none
 *
 * WF_ELEMENTWISE_WITH - the same with one to four numbers, (low, high), which the function
 * takes as floats after the tensors
 */
#define WF_ELEMENTWISE(name, inputs, expression, gradients)                                    \
    WF_X_BOTH(name, inputs, WF_NO_NUMBERS, expression, gradients)                              \
    WF_X_FUNCTION(name, inputs)
#define WF_ELEMENTWISE_WITH(name, inputs, numbers, expression, gradients)                      \
    WF_X_BOTH(name, inputs, numbers, expression, gradients)                                    \
    WF_X_FUNCTION_WITH(name, inputs, numbers)

#define WF_X_FUNCTION(name, inputs)                                                            \
    wf_tensor *name WF_X_TENSORS(inputs);                                                      \
    wf_tensor *name WF_X_TENSORS(inputs)                                                       \
    {                                                                                          \
        return wf_elementwise_apply(&name##_op, NULL, 0,                                       \
                                    WF_COUNT(inputs) WF_EACH(WF_X_OPERAND, inputs));           \
    }
#define WF_X_FUNCTION_WITH(name, inputs, numbers)                                              \
    wf_tensor *name WF_X_TENSORS_WITH(inputs, numbers);                                        \
    wf_tensor *name WF_X_TENSORS_WITH(inputs, numbers)                                         \
    {                                                                                          \
        const float wf_number[] = {WF_OPEN numbers};                                           \
                                                                                               \
        return wf_elementwise_apply(&name##_op, wf_number, sizeof wf_number,                   \
                                    WF_COUNT(inputs) WF_EACH(WF_X_OPERAND, inputs));           \
    }

/* (wf_tensor *a, wf_tensor *b) and (wf_tensor *a, float low, float high) */
#define WF_X_T_1(a)             wf_tensor *a
#define WF_X_T_2(a, b)          wf_tensor *a, wf_tensor *b
#define WF_X_T_3(a, b, c)       wf_tensor *a, wf_tensor *b, wf_tensor *c
#define WF_X_T_4(a, b, c, d)    wf_tensor *a, wf_tensor *b, wf_tensor *c, wf_tensor *d
#define WF_X_F_1(a)             float a
#define WF_X_F_2(a, b)          float a, float b
#define WF_X_F_3(a, b, c)       float a, float b, float c
#define WF_X_F_4(a, b, c, d)    float a, float b, float c, float d
#define WF_X_LIST(prefix, list) WF_EACH_CALL(WF_JOIN(prefix, WF_COUNT(list)), list)
#define WF_X_TENSORS(inputs)    (WF_X_LIST(WF_X_T_, inputs))
#define WF_X_TENSORS_WITH(inputs, numbers)                                                     \
    (WF_X_LIST(WF_X_T_, inputs), WF_X_LIST(WF_X_F_, numbers))

#else
#include "kernels/elementwise_cuda.h"
#endif

#endif
