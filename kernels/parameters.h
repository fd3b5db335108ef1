/* kernels/parameters.h - ops that set and update parameters in place: initialisation, AdamW and
   SGD. */
#ifndef WF_KERNELS_PARAMETERS_H
#define WF_KERNELS_PARAMETERS_H

#include "core/tensor.h"

WF_BEGIN_DECLS

/**
 * wf_init_fill, wf_init_normal, wf_init_uniform - set a parameter in place
 * wf_init_truncated - sets it to a normal distribution cut to [low, high], see wf_truncate
 * (core/numerics/random.h)
 * wf_init_scale - multiplies it by a factor
 *
 * @param stream  number of the parameter: element i of the whole is a function of (seed,
 *                stream, i) alone, so a shard is the slice of the whole by construction
 * Layout:      any; each rank sets its own part
 * Errors:      WF_EINVAL: the interval holds too little of the distribution
 */
WF_API wf_status wf_init_fill(wf_tensor *t, float value);
WF_API wf_status wf_init_normal(wf_tensor *t, float mean, float deviation, uint64_t stream);
WF_API wf_status wf_init_uniform(wf_tensor *t, float low, float high, uint64_t stream);
WF_API wf_status wf_init_truncated(wf_tensor *t, float mean, float deviation, float low,
                                   float high, uint64_t stream);
WF_API wf_status wf_init_scale(wf_tensor *t, float factor);

enum { WF_INIT_ARGS = 4 };

/** wf_init_site - arguments of a custom initialisation, beside the index. */
typedef struct wf_init_site {
    uint64_t key,
        stream;       /* for wf_random_uniform and so on: made of the seed, and the tensor's */
    const float *arg; /* [WF_INIT_ARGS] */
} wf_init_site;

/* Sets, or changes, x[0 .. n), the elements first, first + 1, .. of the whole: each alone, as
   the bounds of runs depend on the layout and on threads. */
typedef void wf_init_run(float *x, int64_t n, int64_t first, const wf_init_site *site);

/* Sets all of x, a contiguous tensor of the dims of `like` (whose data is not to be touched),
   with the same bits on every rank. A failure is reported by wf_fail(like->ctx, ..). */
typedef wf_status wf_init_all(float *x, const wf_tensor *like, const wf_init_site *site);

/**
 * wf_init_elements, wf_init_whole - set a parameter in place by a custom function, of its
 * elements or of the whole tensor, of which each rank then keeps its part
 *
 * @param arg  numbers for the function; NULL: zeros
 * Layout:      any. For a tensor that is split, init_whole takes the whole one as workspace
 */
WF_API wf_status wf_init_elements(wf_tensor *t, wf_init_run *run, const float arg[WF_INIT_ARGS],
                                  uint64_t stream);
WF_API wf_status wf_init_whole(wf_tensor *t, wf_init_all *all, const float arg[WF_INIT_ARGS],
                               uint64_t stream);

enum { WF_UPDATE_OWN = 4, WF_UPDATE_STATES = 3 };

typedef struct wf_update {
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 / (1 - beta^t) */
    float grad_scale;   /* the gradient is multiplied by it first: clipping */
    /* mark numbers as the training step's: a captured graph takes them from wf_now
       (kernels/now.h) whenever it runs. With step_lr bias1, bias2 and lr, which is lr_times the
       step's; with step_scale grad_scale */
    bool step_lr, step_scale;
    float lr_times;
    int64_t step;             /* 1, 2, ..: of wf_update_elements */
    float own[WF_UPDATE_OWN]; /* numbers of an optimizer of one's own */
} wf_update;

/**
 * wf_update_run - updates elements of a parameter and of its states, each alone: the bounds of
 * runs depend on the layout and on threads
 *
 * @param u      the step's numbers
 * @param p      [n] the parameter, in place
 * @param g      [n] its gradient, times u->grad_scale
 * @param state  [WF_UPDATE_STATES][n], in place; NULL after the last one
 */
typedef void wf_update_run(const wf_update *u, int64_t n, float *p, const float *g,
                           float *const *state);

/**
 * wf_adamw - makes one step of AdamW (Loshchilov & Hutter 2019) on param, m and v, in place:
 *
 *     m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2
 *     param = param - lr (m bias1 / (sqrt(v bias2) + eps) + weight_decay param)
 *
 * wf_sgd - makes one step of SGD with momentum (Sutskever et al. 2013), in place, as
 * torch.optim.SGD defines it without dampening or Nesterov; the decay goes through the
 * momentum:
 *
 *     m = beta1 m + g + weight_decay param,  param = param - lr m
 *
 * In both, g = grad_scale grad. Where beta1 is 0, wf_sgd neither reads nor writes m.
 *
 * @param m, v  of wf_adamw also stored in 8 bits, both: WF_DYNAMIC8 and WF_DYNAMIC8U. They are
 *           widened, the step is that of floats, and m and v are stored narrow
 * Layout:      all four alike, any but partial
 */
WF_API wf_status wf_adamw(wf_tensor *param, wf_tensor *grad, wf_tensor *m, wf_tensor *v,
                          const wf_update *update);
WF_API wf_status wf_sgd(wf_tensor *param, wf_tensor *grad, wf_tensor *m,
                        const wf_update *update);

/**
 * wf_unit_norm - divides a matrix by its Frobenius norm, in place, without the host waiting for
 * it: x = x (1 / (|x| + eps)), of which the factor is rounded to float. The squares are added
 * as wf_squares_add adds them.
 *
 * @param x     [m, n]
 * Layout:      whole
 */
WF_API wf_status wf_unit_norm(wf_tensor *x, double eps);

/**
 * wf_update_elements - makes one step of an optimizer of one's own, in place, by a function of
 * elements
 *
 * On the CPU by all threads of the rank; on a GPU on the host, to which what it reads is copied
 * and from which what it writes comes back, but for the functions below.
 *
 * @param states  those there are, 0 to WF_UPDATE_STATES
 * @param state   [states] each like param, or a matrix in 8 bits, which is widened, updated and
 *                stored narrow
 * Layout:        all alike, any but partial
 * Errors:        WF_EINVAL: more states than there may be
 */
WF_API wf_status wf_update_elements(wf_tensor *param, wf_tensor *grad, int states,
                                    wf_tensor *const *state, wf_update_run *run,
                                    const wf_update *update);

/**
 * wf_update_lion - is the function of Lion (Chen et al. 2023), which has one state, m:
 *
 *     c = beta1 m + (1 - beta1) g
 *     p = p - lr (sign(c) + weight_decay p),  m = beta2 m + (1 - beta2) g
 *
 * wf_update_sign - is p = p - lr sign(g); wf_update_keep - is p = g; both without states.
 * sign(0) is 0. A GPU has kernels for these three, which can be captured, with the CPU's bits.
 */
WF_API void wf_update_lion(const wf_update *u, int64_t n, float *p, const float *g,
                           float *const *state);
WF_API void wf_update_sign(const wf_update *u, int64_t n, float *p, const float *g,
                           float *const *state);
WF_API void wf_update_keep(const wf_update *u, int64_t n, float *p, const float *g,
                           float *const *state);

WF_END_DECLS

#endif
