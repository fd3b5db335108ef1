/*
 * kernels/shared_internal.h - what an op's file and its CPU kernel have in common: the
 * parameters that a wrapper hands to the kernel, and where a local element lies in the whole.
 */
#ifndef WF_KERNELS_SHARED_INTERNAL_H
#define WF_KERNELS_SHARED_INTERNAL_H

#include "kernels/op_table_internal.h"

WF_BEGIN_DECLS

typedef struct wf_scale_attr {
    float factor;
} wf_scale_attr;

typedef struct wf_add_constant_attr {
    float value;
} wf_add_constant_attr;

typedef struct wf_linear_attr {
    bool add;  /* the product is added to what the output holds */
    bool rows; /* a gradient of weights has a row per sequence (kernels/linear_rows.h) */
} wf_linear_attr;

static inline bool wf_linear_adds(const wf_call *call)
{
    const wf_linear_attr *attr = (const wf_linear_attr *)call->attr;

    return attr && attr->add;
}

static inline bool wf_linear_in_rows(const wf_call *call)
{
    const wf_linear_attr *attr = (const wf_linear_attr *)call->attr;

    return attr && attr->rows;
}

/* wf_matrix_gradient - returns the gradient of operand i, a weight: a row per sequence where
   they come so (wf_comes_in_rows) and the operand takes them. */
wf_tensor *wf_matrix_gradient(const wf_gradient *g, int i, wf_tensor *dy, wf_tensor *x);

/*
 * wf_vector_gradient - returns the gradient of operand i from rows [b, n], a row per sequence:
 * the rows themselves, or their sum where the operand is the result of an op.
 */
wf_tensor *wf_vector_gradient(const wf_gradient *g, int i, wf_tensor *rows);

/*
 * wf_linear_run - the gradient of a group's input is a sum over runs of neighbouring members
 * whose columns are cut in chunks alike. *run is that of the members from `first` on, as a call
 * of its own, which adds to what the runs before it gave; returns where the next one begins.
 */
static inline int wf_linear_run(const wf_call *call, int first, wf_call *run)
{
    static const wf_linear_attr add = {.add = true};
    int members = call->n_in / 2, next = first;
    int last = call->in[0]->ndim - 1, chunks = call->in[2 * first]->dim[last].chunks;

    *run = *call;
    for (; next < members && call->in[2 * next]->dim[last].chunks == chunks; next++)
        for (int i = 0; i < 2; i++)
            run->in[2 * (next - first) + i] = call->in[2 * next + i];
    run->n_in = 2 * (next - first);
    run->attr = first > 0 ? &add : NULL;
    return next;
}

/* The weights of logits in what cross-entropy picks of a row: the target's, beside that which
   each has. */
typedef struct wf_label_weights {
    float target, each;
} wf_label_weights;

/* Returns those of a call of logit_sum or logit_sum_grad, whose attribute is the smoothing. */
WF_HOST_DEVICE static inline wf_label_weights wf_label_weights_of(const wf_call *call)
{
    const wf_tensor *logits = call->in[0];
    float smoothing = call->attr ? *(const float *)call->attr : 0.0f;
    wf_label_weights w = {1 - smoothing, smoothing / (float)logits->dim[logits->ndim - 1].size};

    return w;
}

/* Returns true where such a call rotates its first two products, whose heads are as long as the
   grain of their last dim. */
static inline bool wf_linear_rotates(const wf_call *call)
{
    return call->op->id == WF_ID_linear3_rope || call->op->id == WF_ID_linear3_rope_at;
}

/* Returns the number of products of a call of linear_joined.c: x, their weights, their biases,
   what one is added to, positions. */
static inline int wf_linear_joined(const wf_call *call)
{
    return call->op->id == WF_ID_linear3_bias || wf_linear_rotates(call) ? 3
           : call->op->id == WF_ID_linear2_swiglu                        ? 2
                                                                         : 1;
}

/* Returns the bias of product m of such a call; NULL: there is none. */
static inline wf_tensor *wf_linear_joined_bias(const wf_call *call, int m)
{
    const int at = 1 + wf_linear_joined(call) + m;
    const bool none = call->op->id == WF_ID_linear1_add ||
                      call->op->id == WF_ID_linear2_swiglu || wf_linear_rotates(call);

    return none ? NULL : call->in[at];
}

/* Returns what the product of such a call is added to; NULL: nothing. */
static inline wf_tensor *wf_linear_joined_residual(const wf_call *call)
{
    const bool adds =
        call->op->id == WF_ID_linear1_add || call->op->id == WF_ID_linear1_bias_add;

    return adds ? call->in[call->n_in - 1] : NULL;
}

/* The position is kept, so that the gradient has its forward's mask whenever it runs; where a
   rank's rows begin says the tensor that is worked on, so that it has it wherever it lies. */
typedef struct wf_dropout_attr {
    int64_t step;
    wf_sequences sequences;
    uint64_t key;
    float p;
    int site;
} wf_dropout_attr;

/* Attributes of the norm of x + dropout(y); p is 0 for no dropout. */
typedef struct wf_add_norm_attr {
    wf_dropout_attr dropout;
    float eps;
} wf_add_norm_attr;

/*
 * A gradient of a norm in one pass (norm_grad.c): x, gain, (mean), rstd, dy, (what is added to
 * dx) -> dx, dgain, (dbias). Returns the part of such a call that is a call of *_dx, or of
 * *_dw, but for its op.
 */
static inline wf_call wf_norm_grad_rows(const wf_call *call)
{
    wf_call part = *call;

    part.n_out = 1;
    return part;
}

static inline wf_call wf_norm_grad_vectors(const wf_call *call)
{
    const int vectors = call->n_out - 1; /* as many as there are statistics */
    wf_call part = *call;

    for (int i = 0; i <= vectors; i++)
        part.in[1 + i] = call->in[2 + i];
    for (int o = 0; o < vectors; o++)
        part.out[o] = call->out[1 + o];
    part.n_in = vectors + 2;
    part.n_out = vectors;
    return part;
}

/* Returns true where such a call adds something to dx. */
static inline bool wf_norm_grad_adds(const wf_call *call)
{
    return call->n_in > call->n_out + 2;
}

/*
 * wf_norm_gradients - makes the gradients of a norm's rows and vectors in one pass, where both
 * are wanted, now or later: g->din[0] and those of the operands from `first` on.
 *
 * @param mean  NULL where the norm has none
 * @param ds    NULL, or what is added to the gradient of the rows
 * Returns:     false where it has made nothing
 */
bool wf_norm_gradients(wf_gradient *g, int first, wf_tensor *x, wf_tensor *gain,
                       wf_tensor *mean, wf_tensor *rstd, wf_tensor *dy, wf_tensor *ds);

/* wf_dropout_key - the key of a site's masks, and the number that its counters have. */
uint64_t wf_dropout_key(const wf_context *ctx, int site, int *counted);

/*
 * wf_dropout_here - the attributes of dropout at a site, now; p is 0 in evaluation. WF_EINVAL,
 * naming `op`, where p is not in [0, 1).
 */
wf_status wf_dropout_here(wf_context *ctx, const char *op, float p, int site,
                          wf_dropout_attr *attr);

/* wf_dropout_factor - returns the factor of local element i of t: 0 or 1 / (1 - p). */
double wf_dropout_factor(const wf_dropout_attr *attr, const wf_tensor *t, int64_t i);

/* The numbers of an initialisation are in the order of its wrapper's parameters. */
typedef struct wf_init_attr {
    uint64_t key, stream;
    float arg[WF_INIT_ARGS];
    wf_init_run *elements;
    wf_init_all *whole;
} wf_init_attr;

static inline wf_init_site wf_init_site_of(const wf_init_attr *attr)
{
    wf_init_site site = {attr->key, attr->stream, attr->arg};

    return site;
}

/* An optimizer of one's own: `states` of the operands after the gradient are states. */
typedef struct wf_update_attr {
    wf_update update;
    wf_update_run *run;
    int states;
} wf_update_attr;

/*
 * wf_global_index - index of local element e in the whole, both counted over the dims [from,
 * ndim) alone. *run: as many elements from e on are neighbours in the whole too.
 */
WF_HOST_DEVICE static inline int64_t wf_global_index(const wf_tensor *t, int from, int64_t e,
                                                     int64_t *run)
{
    int64_t length = 1, index = 0, stride = 1, rest = e;
    bool whole = true;

    for (int d = t->ndim - 1; d >= from; d--) {
        if (whole)
            length *= t->local[d];
        whole = whole && t->local[d] == t->dim[d].size;
        index += (t->start[d] + rest % t->local[d]) * stride;
        rest /= t->local[d];
        stride *= t->dim[d].size;
    }
    *run = length - e % length;
    return index;
}

/*
 * wf_check_tokens - WF_EINVAL, naming the token and its position, where one of an i32 operand
 * is outside [least, vocabulary).
 */
wf_status wf_check_tokens(const wf_call *call, const wf_tensor *tokens, int64_t least,
                          int64_t vocabulary);

/* The target of a row whose loss is +0 and which gives no gradient. */
enum { WF_NO_TARGET = -1 };

/* wf_add_squares - the squares of rows [begin, end) of dim 0, chunk by chunk, to an exact
   sum. */
void wf_add_squares(const wf_tensor *t, int64_t begin, int64_t end,
                    double (*chunk)(const float *x, int64_t n), struct wf_exact_sum *sum);

WF_END_DECLS

#endif
