/*
 * kernels/cpu/add_norm.c - residual additions joined with norms on the CPU: a few rows at a
 * time go through the inner loops of the ops that are joined, and stay in the first-level cache
 * from one to the next. So memory is passed once and the bits are those of the ops apart.
 */
#include "kernels/cpu/dropout_internal.h"
#include "kernels/cpu/task_size_internal.h"

enum { NEAR = 2048 }; /* elements of the few rows */

static float *at(const wf_tensor *t, int64_t offset)
{
    return (float *)t->data + offset;
}

static int64_t width(const wf_call *call)
{
    return call->in[0]->local[call->in[0]->ndim - 1];
}

/* Rows from r on that are worked on together. */
static int64_t few(int64_t r, int64_t end, int64_t d)
{
    return wf_least(end - r, d < NEAR ? NEAR / (d > 0 ? d : 1) : 1);
}

static void add_norm_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    const wf_add_norm_attr *attr = call->attr;
    wf_tensor *const *in = call->in, *const *out = call->out;
    int64_t d = width(call), n;

    (void)worker;
    for (int64_t r = begin; r < end; r += n) {
        const float *y = at(in[1], r * d);
        float *z = at(out[0], r * d), *s = at(out[1], r * d);

        n = few(r, end, d);
        if (attr->dropout.p > 0) {
            wf_cpu_dropout_range(simd, &attr->dropout, in[1], r * d, (r + n) * d, s);
            y = s;
        }
        simd->add(at(in[0], r * d), y, s, n * d);
        if (call->n_in == 4)
            simd->layernorm(s, in[2]->data, in[3]->data, attr->eps, z, at(out[2], r),
                            at(out[3], r), n, d);
        else
            simd->rmsnorm(s, in[2]->data, attr->eps, z, at(out[2], r), n, d);
    }
}

static void add_norm_dx_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const wf_call *call = arg;
    const wf_simd *simd = wf_cpu_of(call)->simd;
    wf_tensor *const *in = call->in;
    bool centred = call->n_in == 6;
    int64_t d = width(call), n;

    (void)worker;
    for (int64_t r = begin; r < end; r += n) {
        float *dx = at(call->out[0], r * d);

        n = few(r, end, d);
        if (centred)
            simd->layernorm_grad(at(in[0], r * d), in[1]->data, at(in[2], r), at(in[3], r),
                                 at(in[4], r * d), dx, n, d);
        else
            simd->rmsnorm_grad(at(in[0], r * d), in[1]->data, at(in[2], r), at(in[3], r * d),
                               dx, n, d);
        simd->add(at(in[call->n_in - 1], r * d), dx, dx, n * d);
    }
}

static wf_status over_rows(const wf_call *call, void (*rows_of)(void *, int64_t, int64_t, int))
{
    const wf_tensor *x = call->in[0];

    wf_team_run(wf_cpu_of(call)->team, wf_extent(x, 0, x->ndim - 1), wf_task_rows(width(call)),
                rows_of, (void *)call);
    return WF_OK;
}

static wf_status add_norm(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, add_norm_rows);
}

static wf_status add_norm_dx(const wf_call *call, void *workspace)
{
    (void)workspace;
    return over_rows(call, add_norm_dx_rows);
}

const wf_kernel wf_cpu_add_layernorm = {.run = add_norm};
const wf_kernel wf_cpu_add_layernorm_dx = {.run = add_norm_dx};
const wf_kernel wf_cpu_add_rmsnorm = {.run = add_norm};
const wf_kernel wf_cpu_add_rmsnorm_dx = {.run = add_norm_dx};
