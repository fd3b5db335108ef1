/*
 * kernels/broadcast.c - tensors of unlike shapes made alike, as NumPy's rule has it: dims are
 * counted from the last one; of two that differ one has size 1 or is missing, and is repeated.
 *
 *     y[.., i, ..] = x[.., 0, ..]
 *
 * The gradient is the sum over the repeated dims, one after the other, each in its chunks
 * (kernels/dims.c) and complete before the next begins: no tree has nodes for ranks that split
 * two dims. The batch comes last and stays a partial sum, as other gradients do.
 */
#include "core/distribution.h"
#include "kernels/dims_internal.h"
#include "kernels/reshape.h"
#include "kernels/shared_internal.h"

static wf_dim dim_at(const wf_tensor *t, int ndim, int d)
{
    int own = d - (ndim - t->ndim);

    return own < 0 ? wf_dim_width(1) : t->dim[own];
}

static int64_t size_at(const wf_tensor *t, int ndim, int d)
{
    return dim_at(t, ndim, d).size;
}

/* Orders kinds of dims of size 1: a plain width yields to the others. */
static int64_t rank_of(wf_dim dim)
{
    return dim.grain * 3 + (dim.chunks == WF_CHUNKS_8 ? 1 : 2 * (dim.chunks == WF_CHUNKS_EACH));
}

/* Returns true where dim d of a result of ndim comes from `other`. */
static bool is_repeated(const wf_tensor *t, const wf_tensor *other, int ndim, int d)
{
    wf_dim own = dim_at(t, ndim, d), its = dim_at(other, ndim, d);

    if (own.size != 1 || d - (ndim - other->ndim) < 0)
        return false;
    return its.size != 1 || d - (ndim - t->ndim) < 0 || rank_of(own) < rank_of(its);
}

static int most_dims(const wf_tensor *a, const wf_tensor *b)
{
    return a->ndim > b->ndim ? a->ndim : b->ndim;
}

/* Writes the letters of t's dims as dims of a result of ndim; those that are repeated have
   letters of their own, from `own` on. */
static char *write_operand(char *at, const wf_tensor *t, const wf_tensor *other, int ndim,
                           char own)
{
    for (int d = ndim - t->ndim; d < ndim; d++) {
        bool repeated = is_repeated(t, other, ndim, d);

        *at++ = repeated ? own++ : "bijklm"[d];
        if (repeated)
            *at++ = '!';
    }
    return at;
}

static const char *broadcast_signature(const wf_call *call, char *text)
{
    const wf_tensor *x = call->in[0], *like = call->in[1];
    int ndim = most_dims(x, like);
    char *at = write_operand(text, x, like, ndim, 'n');

    *at++ = ',';
    at = write_operand(at, like, x, ndim, 't');
    *at++ = '-';
    *at++ = '>';
    for (int d = 0; d < ndim; d++)
        *at++ = "bijklm"[d];
    *at = '\0';
    return text;
}

static wf_status broadcast_reference(const wf_call *call, void *workspace)
{
    const wf_tensor *x = call->in[0], *y = call->out[0];
    int64_t step[WF_MAX_DIMS];

    (void)workspace;
    wf_broadcast_steps(x, y, step);
    wf_copy_by_steps(x, y, step);
    return WF_OK;
}

/* Sums the gradient; that of a vector comes as rows, a sequence each, as that of a bias. */
static void broadcast_backward(wf_gradient *g)
{
    const wf_tensor *x = g->in[0];
    wf_tensor *dy = g->dout[0];
    bool exact = wf_context_exact(g->ctx);
    int ndim = dy->ndim;

    if (!g->want[0])
        return;
    if (x->ndim == 1 && ndim > 1 && x->dim[0].size == dy->dim[ndim - 1].size) {
        g->din[0] = wf_vector_gradient(g, 0, wf_bias_grad(dy));
        return;
    }
    for (int d = ndim - 1; d >= 0 && dy; d--)
        if (is_repeated(x, g->dout[0], ndim, d))
            dy = wf_sum(exact ? wf_completed(dy) : dy, d);
    g->din[0] = dy ? wf_reshape(dy, x->ndim, x->dim) : NULL;
}

wf_tensor *wf_broadcast_like(wf_tensor *x, wf_tensor *like)
{
    return wf_apply(&wf_op_broadcast, NULL, 0, 2, x, like);
}

static bool any_repeated(const wf_tensor *t, const wf_tensor *other)
{
    int ndim = most_dims(t, other);
    bool any = t->ndim < other->ndim;

    for (int d = 0; d < ndim && !any; d++)
        any = is_repeated(t, other, ndim, d);
    return any;
}

static bool fits(const wf_tensor *a, const wf_tensor *b)
{
    int ndim = most_dims(a, b);
    bool fit = true;

    for (int d = 0; d < ndim && fit; d++) {
        int64_t n = size_at(a, ndim, d), m = size_at(b, ndim, d);

        fit = n == m || n == 1 || m == 1;
    }
    return fit;
}

/* Returns true where operands are of one shape, as most are: nothing is repeated. */
static bool have_one_shape(int n, wf_tensor *const *x)
{
    bool alike = x[0] != NULL;

    for (int i = 1; i < n && alike; i++) {
        alike = x[i] && x[i]->ndim == x[0]->ndim;
        for (int d = 0; alike && d < x[0]->ndim; d++)
            alike = wf_dim_equal(x[i]->dim[d], x[0]->dim[d]);
    }
    return alike;
}

void wf_broadcast_all(int n, wf_tensor **x)
{
    if (have_one_shape(n, x))
        return;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n; k++)
            if (!x[i] || !x[k] || !fits(x[i], x[k]))
                return;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < n && x[i]; k++)
            if (x[k] && any_repeated(x[i], x[k]))
                x[i] = wf_broadcast_like(x[i], x[k]);
}

const wf_op wf_op_broadcast = {WF_OP_ROW(broadcast),
                               .write_signature = broadcast_signature,
                               .shapes = 1 << 1,
                               .save_shape = WF_SAVE_IN(0),
                               .reference = {.run = broadcast_reference},
                               .backward = broadcast_backward};
