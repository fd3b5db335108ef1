/*
 * kernels/cuda/optimizer.cu - updates of parameters, many by one launch: parameters and states
 * are f32, the gradient is f32 or bf16. Of update_elements the functions that the host's table
 * names have kernels, others run on the host (update_host.c).
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
    float *p, *state[2];
    const void *grad;
    int64_t n;
    float rate, weight_decay; /* the call's own */
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

template <class G, class M>
__device__ __forceinline__ void update_at(const parameter &a, const wf_update &u, int64_t i)
{
    const int64_t n = a.n - i;
    const bool keeps = M::keeps(u);
    float p[FLOATS], g[FLOATS], s[2][FLOATS] = {};

    wf_load(a.p + i, n, a.wide, p);
#pragma unroll
    for (int k = 0; k < M::STATES; k++)
        if (keeps)
            wf_load(a.state[k] + i, n, a.wide, s[k]);
    gradient_at((const G *)a.grad + i, n, a.wide, g);
#pragma unroll
    for (int k = 0; k < FLOATS; k++)
        M::step(u, g[k], &p[k], &s[0][k], &s[1][k]);
    wf_store(a.p + i, n, a.wide, p);
#pragma unroll
    for (int k = 0; k < M::STATES; k++)
        if (keeps)
            wf_store(a.state[k] + i, n, a.wide, s[k]);
}

template <class G, class M>
__global__ void __launch_bounds__(WF_BLOCK)
    update_kernel(const WF_GRID_CONSTANT parameter_updates a)
{
    if (a.all.held && *a.all.held)
        return;
    for (int piece = (int)blockIdx.x; piece < a.pieces.all(); piece += (int)gridDim.x) {
        const int k = a.pieces.of(piece);
        const parameter &p = a.list[k];
        const int64_t i = (int64_t)(piece - a.pieces.first[k]) * PIECE + threadIdx.x * FLOATS;

        if (i < p.n)
            update_at<G, M>(p, wf_update_now(a.all, p.rate, p.weight_decay), i);
    }
}

template <class M> parameter parameter_of(const wf_updates &all, const wf_call *call)
{
    parameter a = {};
    uintptr_t bits;

    a.p = (float *)call->in[0]->data;
    a.grad = call->in[1]->data;
    a.n = wf_count(call->in[0]);
    a.rate = wf_update_rate(all, call);
    a.weight_decay = wf_update_of(call)->weight_decay;
    bits = (uintptr_t)a.p | (call->in[1]->dtype == WF_F32 ? (uintptr_t)a.grad : 0);
    for (int k = 0; k < M::STATES; k++) {
        a.state[k] = (float *)call->in[2 + k]->data;
        bits |= (uintptr_t)a.state[k];
    }
    a.wide = bits % 16 == 0;
    return a;
}

/* Returns the function of a call of update_elements; NULL: it is of another op. */
wf_update_run *function_of(const wf_call *call)
{
    return call->op->id == WF_ID_update_elements ? ((const wf_update_attr *)call->attr)->run
                                                 : NULL;
}

/* Returns true where one launch may have both calls. */
bool alike(const wf_call *a, const wf_call *b)
{
    const wf_update *x = wf_update_of(a), *y = wf_update_of(b);

    return a->in[1]->dtype == b->in[1]->dtype && a->in[2]->dtype == b->in[2]->dtype &&
           function_of(a) == function_of(b) && x->step_lr == y->step_lr &&
           x->step_scale == y->step_scale && x->beta1 == y->beta1 && x->beta2 == y->beta2 &&
           x->eps == y->eps && x->bias1 == y->bias1 && x->bias2 == y->bias2 &&
           x->grad_scale == y->grad_scale;
}

/* Runs the first of n calls that are alike, as many as one launch may have, and returns their
   number. NARROW: gradients may be bf16. */
template <class M, bool NARROW>
int run_some(const wf_call *const *calls, int n, wf_status *status)
{
    parameter_updates a = {};
    int k = 0;

    a.all = wf_updates_of(calls[0]);
    for (; k < n && k < MANY; k++) {
        bool bf16;

        *status = wf_check_types(calls[k], &bf16);
        if (*status != WF_OK)
            return k;
        a.list[k] = parameter_of<M>(a.all, calls[k]);
        a.pieces.add(wf_ceil(a.list[k].n, PIECE));
    }
    const auto launch = [&](auto zero) {
        return wf_launch(update_kernel<decltype(zero), M>, wf_grid(a.pieces.all(), 1), WF_BLOCK,
                         0, wf_cuda_of(calls[0])->stream, a);
    };
    if constexpr (NARROW)
        *status = wf_run(calls[0], launch);
    else
        *status = wf_cuda_check(calls[0]->ctx, launch(0.0f), calls[0]->op->name);
    return k;
}

/* Each of these runs some of n calls, as run_some. */
int run_adamw(const wf_call *const *calls, int n, wf_status *status)
{
    return wf_dtype_is_dynamic8(calls[0]->in[2]->dtype)
               ? wf_cuda_adamw8(calls, n, status)
               : run_some<wf_adamw_method, true>(calls, n, status);
}

int run_sgd(const wf_call *const *calls, int n, wf_status *status)
{
    return run_some<wf_sgd_method, true>(calls, n, status);
}

int run_elements(const wf_call *const *calls, int n, wf_status *status)
{
    const wf_cuda_host *host = wf_cuda_host_table;
    wf_update_run *run = function_of(calls[0]);

    if (run == host->update_lion)
        return wf_dtype_is_dynamic8(calls[0]->in[2]->dtype)
                   ? wf_cuda_lion8(calls, n, status)
                   : run_some<wf_lion_method, false>(calls, n, status);
    if (run == host->update_sign)
        return run_some<wf_sign_method, false>(calls, n, status);
    if (run == host->update_keep)
        return run_some<wf_keep_method, false>(calls, n, status);
    *status = wf_cuda_update_on_host(calls[0]);
    return 1;
}

typedef int run_part(const wf_call *const *calls, int n, wf_status *status);

/* Each call changes tensors of its own, so those that are alike need not follow one another:
   vectors lie between matrices. */
template <run_part *RUN> wf_status run_many(const wf_call *calls, int n)
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
            k += RUN(list + k, count - k, &status);
    }
    return status;
}

template <run_part *RUN> wf_status run_one(const wf_call *call, void *)
{
    return run_many<RUN>(call, 1);
}
} // namespace

const wf_kernel wf_cuda_adamw = {run_one<run_adamw>, NULL, 0, WF_IN(1), WF_IN(2) | WF_IN(3),
                                 run_many<run_adamw>};
const wf_kernel wf_cuda_sgd = {run_one<run_sgd>, NULL, 0, WF_IN(1), 0, run_many<run_sgd>};
const wf_kernel wf_cuda_update_elements = {
    run_one<run_elements>, NULL, 0, 0, WF_IN(2) | WF_IN(3) | WF_IN(4), run_many<run_elements>};
