/*
 * kernels/cuda/linear_joined.c - products that are finished before they are stored
 * (kernels/linear_joined.c). In exact mode the kernel that adds chunks has all of it: a bias
 * and gelu of it, silu of a gate, an addition, the rotation of queries and keys.
 */
#include "kernels/cuda/linear_internal.h"
#include "kernels/cuda/rope_table_internal.h"
#include "kernels/cuda/tensor_product_internal.h"
#include "kernels/cuda/wgmma_internal.h"
#include "kernels/shared_internal.h"

/* Returns true for biases that cuBLASLt can add: those of the result's type. */
static bool fits(const wf_tensor *bias, const wf_tensor *y)
{
    return bias->dtype == y->dtype && (uintptr_t)bias->data % WF_CUDA_ALIGNED == 0;
}

/* Steps that are left to be done when a product is complete. */
typedef struct rest {
    bool bias, gelu, swiglu, residual;
} rest;

/* Returns a product with its bias, and what it makes of it. In exact mode the kernel that adds
   chunks has it all; else cuBLASLt adds biases, and gelu is a pass of its own: the sum that
   cuBLASLt would keep for the gradient has the bias in it, ours has not. So is the addition to
   a residual stream, which would come before the sum is rounded there. */
static wf_cuda_product joined_product(const wf_call *call, int m, wf_call *one, rest *left)
{
    const wf_tensor *bias = wf_linear_joined_bias(call, m);
    const wf_tensor *residual = wf_linear_joined_residual(call);
    bool gelu = call->op->id == WF_ID_linear1_bias_gelu;
    bool swiglu = call->op->id == WF_ID_linear2_swiglu && m == 1; /* the gate is there */
    bool exact = wf_cuda_host_table->context_exact(call->ctx);
    wf_cuda_product p;

    *one = wf_cuda_linear_member(call, m);
    p = wf_cuda_linear_product(one);
    *left = (rest){.bias = bias && !exact && (gelu || !fits(bias, call->out[m])),
                   .gelu = gelu && !exact,
                   .swiglu = swiglu && !exact,
                   .residual = residual && !exact};
    if (!left->bias)
        p.bias = bias;
    if (gelu && exact)
        p.gelu = call->out[1]->data;
    if (swiglu && exact) {
        p.gate = call->out[0]->data;
        p.gelu = call->out[2]->data;
    }
    if (!left->residual)
        p.residual = residual;
    return p;
}

static size_t joined_workspace(const wf_call *call)
{
    size_t most = 0;

    for (int m = 0; m < wf_linear_joined(call); m++) {
        wf_call one;
        rest left;
        wf_cuda_product p = joined_product(call, m, &one, &left);
        size_t bytes = wf_cuda_product_workspace(&p);

        most = bytes > most ? bytes : most;
    }
    return most;
}

/* Runs the kernel of another row of ops.def on a and b, for a joined call. */
static wf_status run_after(const wf_call *call, int id, const wf_kernel *kernel, wf_tensor *a,
                           wf_tensor *b, wf_tensor *out)
{
    wf_op part = *call->op; /* failures name the whole */
    wf_call then = *call;

    part.id = id;
    then.op = &part;
    then.n_in = 2;
    then.in[0] = a;
    then.in[1] = b;
    then.n_out = 1;
    then.out[0] = out;
    return kernel->run(&then, NULL);
}

static wf_status joined(const wf_call *call, void *workspace)
{
    int count = wf_linear_joined(call);
    wf_call product = *call;
    wf_status status;

    product.n_in = count + 1;
    status = wf_cuda_check_factors(&product);
    for (int m = 0; m < count && status == WF_OK; m++) {
        wf_tensor *bias = wf_linear_joined_bias(call, m), *y = call->out[m];
        wf_call one;
        rest left;
        wf_cuda_product p = joined_product(call, m, &one, &left);

        status = wf_cuda_product_run(&p, workspace);
        if (status == WF_OK && left.gelu)
            status =
                run_after(call, WF_ID_bias_gelu, &wf_cuda_bias_gelu, y, bias, call->out[1]);
        else if (status == WF_OK && left.bias)
            status = run_after(call, WF_ID_bias_add, &wf_cuda_bias_add, y, bias, y);
        if (status == WF_OK && left.swiglu)
            status =
                run_after(call, WF_ID_swiglu, &wf_cuda_swiglu, call->out[0], y, call->out[2]);
        if (status == WF_OK && left.residual)
            status =
                run_after(call, WF_ID_add, &wf_cuda_add, wf_linear_joined_residual(call), y, y);
    }
    return status;
}

/* ---- queries and keys that are rotated ---- */

/* Heads whose two halves a block has among its columns: 64 on every GPU, and 128 of f32 and of
   Hopper, but for weights of nf4. */
enum { HEAD = 64, WIDE_HEAD = 128, TABLE_ALIGNED = 256 };

static bool has_both_halves(const wf_call *call, int64_t dim)
{
    const bool nf4 = call->in[1]->dtype == WF_NF4 || call->in[2]->dtype == WF_NF4;

    return dim == HEAD ||
           (dim == WIDE_HEAD && (call->in[0]->dtype == WF_F32 ||
                                 (wf_cuda_multiplies_by_wgmma(wf_cuda_of(call)) && !nf4)));
}

/* Returns true where the kernel of a product rotates what it makes: whole heads, the first half
   with the second, in rows that are aligned. */
static bool rotates(const wf_call *call, const wf_call *rope)
{
    const wf_rope_options *o = &((const wf_rope_attr *)rope->attr)->options;
    const wf_tensor *q = rope->in[0], *k = rope->in[1];
    const int64_t dim = q->local[3];

    return wf_cuda_host_table->context_exact(call->ctx) && !o->neighbours &&
           wf_rope_features(o, dim) == dim && has_both_halves(call, dim) &&
           ((uintptr_t)q->data | (uintptr_t)k->data) % WF_CUDA_ALIGNED == 0 &&
           q->local[0] * q->local[1] <= INT32_MAX;
}

/* Returns the bytes of workspace of a call's products, so that a table may follow. */
static size_t products_workspace(const wf_call *call)
{
    const size_t bytes = wf_cuda_linear_workspace(call);

    return (bytes + TABLE_ALIGNED - 1) / TABLE_ALIGNED * TABLE_ALIGNED;
}

static size_t rotated_workspace(const wf_call *call)
{
    wf_tensor heads[2];
    const wf_call rope = wf_linear_rope_part(call, heads), one = wf_rope_part(&rope, 0);

    return products_workspace(call) + wf_cuda_rope_table_bytes(&one);
}

/* Finds the table of the rotation; one that is not kept follows the workspace of the
   products. */
static wf_status find_table(const wf_call *call, const wf_call *rope, void *workspace,
                            wf_cuda_rotation *rotation)
{
    const wf_call one = wf_rope_part(rope, 0);
    const size_t bytes = products_workspace(call);
    wf_rope_rows rows = {0};
    wf_status status = wf_cuda_check(
        call->ctx,
        wf_cuda_rope_table(&one, bytes ? (char *)workspace + bytes : workspace, &rows),
        call->op->name);

    *rotation = (wf_cuda_rotation){.cosine = rows.cosine,
                                   .sine = rows.sine,
                                   .tokens = (int32_t)rows.tokens,
                                   .half = (int32_t)rows.half};
    return status;
}

/* Rotates what is there, by a launch of its own. */
static wf_status rotate_after(const wf_call *call, wf_call *rope, void *workspace)
{
    wf_op part = *call->op; /* failures name the whole */

    part.id = rope->in[2] ? WF_ID_rope_pair_at : WF_ID_rope_pair;
    part.integers = rope->in[2] ? 1u << 2 : 0;
    rope->op = &part;
    return wf_cuda_rope_pair.run(rope, workspace);
}

static wf_status rotated(const wf_call *call, void *workspace)
{
    wf_tensor heads[2];
    wf_call rope = wf_linear_rope_part(call, heads), product = *call;
    wf_cuda_rotation rotation = {0};
    const bool here = rotates(call, &rope);
    wf_status status;

    product.n_in = 1 + call->n_out;
    status = wf_cuda_check_factors(&product);
    if (status == WF_OK && here)
        status = find_table(call, &rope, workspace, &rotation);
    for (int m = 0; m < call->n_out && status == WF_OK; m++) {
        wf_call one = wf_cuda_linear_member(call, m);
        wf_cuda_product p = wf_cuda_linear_product(&one);

        if (m < rope.n_out)
            p.rotation = rotation;
        status = wf_cuda_product_run(&p, workspace);
    }
    return status == WF_OK && !here ? rotate_after(call, &rope, workspace) : status;
}

/* Factors are of one type; a result is rounded after its sum, or stays f32 where it is
   partial. */
enum {
    RESULTS = WF_OUT(0) | WF_OUT(1) | WF_OUT(2),
    ONE = WF_IN(0) | WF_IN(1),
    THREE = ONE | WF_IN(2) | WF_IN(3)
};

/* `other`: operands of a free choice of types; `factors`: those of one. */
#define JOINED(function, other, factors)                                                       \
    {                                                                                          \
        function, function##_workspace, .mixed_ok = RESULTS | (other), .all_bf16 = (factors),  \
                                        .nf4_ok = wf_cuda_forward_nf4                          \
    }

const wf_kernel wf_cuda_linear1_bias = JOINED(joined, WF_IN(2), ONE);
const wf_kernel wf_cuda_linear3_bias = JOINED(joined, WF_IN(4) | WF_IN(5) | WF_IN(6), THREE);
const wf_kernel wf_cuda_linear1_bias_gelu = JOINED(joined, WF_IN(2), ONE);
const wf_kernel wf_cuda_linear1_add = JOINED(joined, WF_IN(2), ONE);
const wf_kernel wf_cuda_linear1_bias_add = JOINED(joined, WF_IN(2) | WF_IN(3), ONE);
const wf_kernel wf_cuda_linear2_swiglu = JOINED(joined, 0, ONE | WF_IN(2));
const wf_kernel wf_cuda_linear3_rope = JOINED(rotated, 0, THREE);
const wf_kernel wf_cuda_linear3_rope_at = JOINED(rotated, 0, THREE);
