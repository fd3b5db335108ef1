/*
 * kernels/cuda/moe_job_internal.h - a call of experts at work: its rows in the workspace, and
 * its products. moe.c has forward, moe_grad.c the gradients.
 */
#ifndef WF_KERNELS_CUDA_MOE_JOB_INTERNAL_H
#define WF_KERNELS_CUDA_MOE_JOB_INTERNAL_H

#include "kernels/cuda/moe_rows_internal.h"
#include <string.h>

/* A call at work: rows [tokens k] of numbers of `type`. */
typedef struct wf_cuda_moe_job {
    const wf_call *call; /* its operands where experts, or experts_adapted_grad, have them */
    bool part;           /* results are rows of choices, floats of a part of their features */
    wf_moe_sizes s;
    wf_moe_lists lists;
    wf_dtype type;
    cudaStream_t stream;
    int processors;
    const wf_moe_products *products;
    cudaError_t error;
    int cuts; /* chunks of features, of which sums over these are trees, and where */
    int64_t cut[WF_MAX_CHUNKS + 1];
    void *gate, *up, *h, *rows; /* [.., f] three times, and what experts give, [.., d] */
    void *dgate, *dup;          /* [.., f]; gate and up themselves where these are not kept */
    void *wdy;                  /* backward alone: w dy, and c = dy down in floats */
    float *c;
    float *aside; /* sums of gradients of matrices that wait, of bf16 */
    /* NULL where there are no adapters, which all that follows is of: u = scale A x, scale A h;
       v = scale B^T dy, w v; scale B^T of dgate and dup */
    wf_tensor *const *factors;
    int64_t rank;
    float scale;
    bool last; /* sums over features end with the terms of `rank` here */
    void *u_in, *u_out, *v_out, *wv_out, *v_in;
} wf_cuda_moe_job;

/* Lays a job's rows out in the workspace; *used: its bytes. */
wf_cuda_moe_job wf_cuda_moe_job_of(const wf_call *call, void *workspace, size_t *used);

/* Returns the bytes of a call's workspace. */
size_t wf_cuda_moe_workspace(const wf_call *call);

/* Checks types and sizes, and lists each expert's rows. */
wf_status wf_cuda_moe_begin(wf_cuda_moe_job *j);

/* Computes gate and up of all rows, where a gradient has not kept them, and h. */
void wf_cuda_moe_h(wf_cuda_moe_job *j);

/* Compute u = scale gate_up_a x, and u = scale down_a h, of all rows; the product that the
   second one is. */
void wf_cuda_moe_gate_up_low(wf_cuda_moe_job *j);
void wf_cuda_moe_down_low(wf_cuda_moe_job *j);
wf_moe_row_product wf_cuda_moe_u(wf_cuda_moe_job *j, void *to);

/* Run the ops of experts, forward and backward. */
wf_status wf_cuda_moe_forward(const wf_call *call, void *workspace);
wf_status wf_cuda_moe_gradient(const wf_call *call, void *workspace);

/* Makes the results of products with down from h, and u where there are adapters. */
void wf_cuda_moe_down(wf_cuda_moe_job *j);

/* Fills rows of choices with zeros, or NaN where the expert is none. */
void wf_cuda_moe_clear(wf_cuda_moe_job *j, const wf_tensor *rows);

/* Puts rows out, each where its choice is; takes such, times a factor; multiplies rows, or
   those of tokens, by the weights of their choices. */
void wf_cuda_moe_put(wf_cuda_moe_job *j, const void *rows, wf_tensor *to);
void wf_cuda_moe_get(wf_cuda_moe_job *j, const wf_tensor *from, float factor, void *rows);
void wf_cuda_moe_weigh(wf_cuda_moe_job *j, wf_moe_matrix from, int64_t n, void *rows);

/* The steps of gradients: v of down; c, dgate and dup, and where c and h go for gradients of
   weights, which else are made; the product that v of gate and up is; rows of dx, those of
   choices where they are given; the gradient of a matrix of every expert. */
void wf_cuda_moe_down_v(wf_cuda_moe_job *j);
void wf_cuda_moe_row_gradients(wf_cuda_moe_job *j, wf_tensor *const *terms);
wf_moe_row_product wf_cuda_moe_v(wf_cuda_moe_job *j, void *to);
void wf_cuda_moe_x_gradient(wf_cuda_moe_job *j, wf_tensor *of_choices);
void wf_cuda_moe_weights_gradient(wf_cuda_moe_job *j, wf_moe_matrix a, wf_moe_matrix b,
                                  const wf_tensor *dw);

/* y of a token = the tree over its experts of weight * row; weights NULL: of rows. */
void wf_cuda_moe_combine(wf_cuda_moe_job *j, const float *weights, const wf_tensor *y);

/* ---- factors of products ---- */

/* Rows of x or dy, by token. */
static inline wf_moe_matrix of_tokens(const wf_cuda_moe_job *j, int operand)
{
    return (wf_moe_matrix){
        .data = j->call->in[operand]->data, .row = j->s.d, .step = 1, .token = j->lists.token};
}

static inline wf_moe_matrix of_rows(const void *rows, int64_t n)
{
    return (wf_moe_matrix){.data = rows, .row = n, .step = 1};
}

/* A matrix of each expert, [m, k]: its rows, or its columns. */
static inline wf_moe_matrix matrix(const wf_tensor *t, bool columns)
{
    const int64_t m = t->local[1], k = t->local[2];

    return (wf_moe_matrix){
        .data = t->data, .row = columns ? 1 : k, .step = columns ? k : 1, .each = m * k};
}

static inline wf_moe_matrix operand(const wf_cuda_moe_job *j, int which, bool columns)
{
    return matrix(j->call->in[which], columns);
}

static inline wf_moe_matrix factor(const wf_cuda_moe_job *j, int which, bool columns)
{
    return matrix(j->factors[which], columns);
}

/* ---- products ---- */

/* A product over `depth` numbers, one chain, or over features, whose sums are trees. */
static inline wf_moe_row_product product_of(const wf_cuda_moe_job *j, wf_moe_matrix a,
                                            wf_moe_matrix b, int64_t depth, int64_t n, void *c)
{
    return (wf_moe_row_product){.lists = &j->lists,
                                .c_type = j->type,
                                .pair = {{a, b}},
                                .pairs = 1,
                                .cuts = 1,
                                .cut = {0, depth},
                                .n = n,
                                .scale = 1,
                                .c = c};
}

static inline void over_features(const wf_cuda_moe_job *j, wf_moe_row_product *p)
{
    p->cuts = j->cuts;
    memcpy(p->cut, j->cut, sizeof p->cut);
}

static inline void ends_with(const wf_cuda_moe_job *j, wf_moe_row_product *p, const void *rows,
                             wf_moe_matrix b)
{
    p->pair[WF_MOE_LOW] = (wf_moe_pair){of_rows(rows, j->rank), b};
    p->rank = j->rank;
}

static inline void multiply(wf_cuda_moe_job *j, const wf_moe_row_product *p)
{
    if (j->error == cudaSuccess)
        j->error = j->products->rows(j->stream, p, j->processors);
}

/* Has a product put its rows out where their choices are, as floats. */
static inline void put_out(const wf_cuda_moe_job *j, wf_moe_row_product *p, void *to)
{
    p->c = to;
    p->c_type = WF_F32;
    p->to = j->lists.choice;
}

/* Rows of u or v. */
static inline void multiply_low(wf_cuda_moe_job *j, wf_moe_row_product p)
{
    p.scale = j->scale;
    multiply(j, &p);
}

#endif
