/*
 * kernels/cuda/optimizer.cu - the rows of kernels/optimizer.c, with the expressions of
 * kernels/cpu/simd/optimizer.c: parameters and moments are f32, the gradient is f32 or bf16.
 */
#include "core/together.h"
#include "kernels/cuda/update_internal.h"

namespace
{
enum {
    FLOATS = 4, /* elements of a thread: 16 bytes of each float */
    PIECE = WF_BLOCK * FLOATS,
    MANY = WF_TOGETHER /* parameters of a launch, at most */
};

struct parameter {
    float *p, *m, *v;
    const void *grad;
    int64_t n;
    float lr, weight_decay; /* the call's own */
    bool wide;
};

struct parameter_updates {
    parameter list[MANY];
    wf_pieces<MANY> pieces; /* PIECE elements each */
    wf_updates all;
};

static_assert(sizeof(parameter_updates) <= WF_ARGUMENT_BYTES, "a launch takes no more");
static_assert(MANY <= 64, "a bit for each");

__device__ __forceinline__ void gradient_at(const float *g, int64_t n, bool wide, float *out)
{
    wf_load(g, n, wide, out);
}

__device__ __forceinline__ void gradient_at(const wf_bf16 *g, int64_t n, bool, float *out)
{
#pragma unroll
    for (int k = 0; k < FLOATS; k++)
        out[k] = k < n ? wf_get(g[k]) : 0.0f;
}

template <class G>
__device__ __forceinline__ void adamw_of(const parameter &a, const wf_update &u, int64_t i)
{
    const int64_t n = a.n - i;
    float p[FLOATS], m[FLOATS], v[FLOATS], g[FLOATS];

    wf_load(a.p + i, n, a.wide, p);
    wf_load(a.m + i, n, a.wide, m);
    wf_load(a.v + i, n, a.wide, v);
    gradient_at((const G *)a.grad + i, n, a.wide, g);
#pragma unroll
    for (int k = 0; k < FLOATS; k++)
        wf_adamw_step(u, g[k], &p[k], &m[k], &v[k]);
    wf_store(a.p + i, n, a.wide, p);
    wf_store(a.m + i, n, a.wide, m);
    wf_store(a.v + i, n, a.wide, v);
}

/* Without momentum m is neither read nor written. */
template <class G>
__device__ __forceinline__ void sgd_of(const parameter &a, const wf_update &u, int64_t i)
{
    const int64_t n = a.n - i;
    const bool momentum = u.beta1 > 0.0f;
    float p[FLOATS], m[FLOATS], g[FLOATS];

    wf_load(a.p + i, n, a.wide, p);
    gradient_at((const G *)a.grad + i, n, a.wide, g);
    if (momentum)
        wf_load(a.m + i, n, a.wide, m);
#pragma unroll
    for (int k = 0; k < FLOATS; k++) {
        g[k] = fmaf(u.weight_decay, p[k], g[k] * u.grad_scale);
        if (momentum)
            g[k] = m[k] = fmaf(u.beta1, m[k], g[k]);
        p[k] = fmaf(-u.lr, g[k], p[k]);
    }
    wf_store(a.p + i, n, a.wide, p);
    if (momentum)
        wf_store(a.m + i, n, a.wide, m);
}

template <class G, bool ADAMW>
__global__ void __launch_bounds__(WF_BLOCK)
    update_kernel(const WF_GRID_CONSTANT parameter_updates a)
{
    if (a.all.held && *a.all.held)
        return;
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const parameter &p = a.list[k];
        const int64_t i = (int64_t)(piece - a.pieces.first[k]) * PIECE + threadIdx.x * FLOATS;

        if (i >= p.n)
            continue;
        const wf_update u = wf_update_now(a.all, p.lr, p.weight_decay);

        if (ADAMW)
            adamw_of<G>(p, u, i);
        else
            sgd_of<G>(p, u, i);
    }
}

parameter parameter_of(const wf_call *call)
{
    const wf_update *u = (const wf_update *)call->attr;
    parameter a = {};
    uintptr_t bits;

    a.p = (float *)call->in[0]->data;
    a.grad = call->in[1]->data;
    a.m = (float *)call->in[2]->data;
    a.v = call->n_in > 3 ? (float *)call->in[3]->data : NULL;
    a.n = wf_count(call->in[0]);
    a.lr = u->lr;
    a.weight_decay = u->weight_decay;
    bits = (uintptr_t)a.p | (uintptr_t)a.m | (uintptr_t)a.v;
    a.wide = (bits | (call->in[1]->dtype == WF_F32 ? (uintptr_t)a.grad : 0)) % 16 == 0;
    return a;
}

/* Returns true where one launch may have both calls. */
bool alike(const wf_call *a, const wf_call *b)
{
    const wf_update *x = (const wf_update *)a->attr, *y = (const wf_update *)b->attr;

    return a->in[1]->dtype == b->in[1]->dtype && a->in[2]->dtype == b->in[2]->dtype &&
           x->of_step == y->of_step && x->beta1 == y->beta1 && x->beta2 == y->beta2 &&
           x->eps == y->eps && x->bias1 == y->bias1 && x->bias2 == y->bias2 &&
           x->grad_scale == y->grad_scale;
}

/* Runs the first of n calls that are alike, as many as one launch may have, and returns their
   number. */
template <bool ADAMW> int run_some(const wf_call *const *calls, int n, wf_status *status)
{
    parameter_updates a = {};
    int k = 0;

    if (wf_dtype_is_dynamic8(calls[0]->in[2]->dtype))
        return wf_cuda_adamw8(calls, n, status);
    a.all = wf_updates_of(calls[0]);
    for (; k < n && k < MANY; k++) {
        bool bf16;

        *status = wf_check_types(calls[k], &bf16);
        if (*status != WF_OK)
            return k;
        a.list[k] = parameter_of(calls[k]);
        a.pieces.add(wf_ceil(a.list[k].n, PIECE));
    }
    *status = wf_run(calls[0], [&](auto zero) {
        return wf_launch(update_kernel<decltype(zero), ADAMW>, wf_grid(a.pieces.all(), 1),
                         WF_BLOCK, 0, wf_cuda_of(calls[0])->stream, a);
    });
    return k;
}

/* Each call changes tensors of its own, so those that are alike need not follow one another:
   vectors lie between matrices. */
template <bool ADAMW> wf_status run_many(const wf_call *calls, int n)
{
    const wf_call *list[MANY];
    uint64_t done = 0; /* bit k: of call k */
    wf_status status = WF_OK;

    for (int i = 0; i < n && status == WF_OK; i++) {
        int count = 0;

        for (int k = i; k < n; k++)
            if (!(done >> k & 1) && alike(&calls[i], &calls[k])) {
                list[count++] = &calls[k];
                done |= (uint64_t)1 << k;
            }
        for (int k = 0; k < count && status == WF_OK;)
            k += run_some<ADAMW>(list + k, count - k, &status);
    }
    return status;
}

template <bool ADAMW> wf_status run_one(const wf_call *call, void *)
{
    return run_many<ADAMW>(call, 1);
}
} // namespace

const wf_kernel wf_cuda_adamw = {run_one<true>,       NULL,          0, WF_IN(1),
                                 WF_IN(2) | WF_IN(3), run_many<true>};
const wf_kernel wf_cuda_sgd = {run_one<false>, NULL, 0, WF_IN(1), 0, run_many<false>};
