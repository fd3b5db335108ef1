/*
 * kernels/rope.c - rotary position embedding (Su et al. 2021): the pair (x[i], x[i + dim/2]) of
 * every head, or (x[2i], x[2i + 1]) where neighbours are paired, is rotated by the angle
 * position * base^(-2i/dim), or a frequency that is scaled (wf_rope_scaling), position being
 * the global index of the token, or for rope_at an operand. Where a part of a head is rotated,
 * dim is that part's, and the remainder stays. The gradient rotates back (YaRN also multiplies
 * with a factor, there and back, and WF_ROPE_TEMPERATURE with one by position). Queries and
 * keys are rotated by one op, as two would rotate them. The CPU's kernel is in
 * kernels/cpu/rope.c.
 */
#include "core/numerics/math.h"
#include "kernels/attention_cached.h"
#include "kernels/attention_internal.h"
#include <inttypes.h>
#include <string.h>

/* Checks a rotation of heads of `dim` features. */
static wf_status check(const wf_tensor *x, int64_t dim, const wf_rope_options *o)
{
    int64_t features = wf_rope_features(o, dim);
    const char *wrong = wf_rope_features_wrong(&o->scaling, o->factors, features);

    if (features % 2 != 0)
        return wf_fail(x->ctx, WF_ESHAPE,
                       "rope: rotates pairs of features, but heads have %" PRId64
                       "; make it even",
                       features);
    if (features > dim || o->features < 0)
        return wf_fail(x->ctx, WF_ESHAPE,
                       "rope: rotates %" PRId32 " features of heads that have %" PRId64,
                       o->features, dim);
    if (!(o->base > 0))
        return wf_fail(x->ctx, WF_EINVAL, "rope: base is %g, but must be greater than 0",
                       o->base);
    if (wrong)
        return wf_fail(x->ctx, WF_EINVAL, "rope: a scaling by %g: %s", o->scaling.factor,
                       wrong);
    return WF_OK;
}

/* Tokens of one forward pass are of texts of that many at least. */
wf_status wf_rope_attributes(const wf_tensor *x, int64_t dim, const wf_rope_options *options,
                             bool inverse, wf_rope_attr *a)
{
    memset(a, 0, sizeof *a); /* attributes are compared by their bytes */
    a->options.base = options->base;
    a->options.scaling.kind = options->scaling.kind;
    a->options.scaling.factor = options->scaling.factor;
    a->options.scaling.low_freq_factor = options->scaling.low_freq_factor;
    a->options.scaling.high_freq_factor = options->scaling.high_freq_factor;
    a->options.scaling.original_positions = options->scaling.original_positions;
    a->options.scaling.beta_fast = options->scaling.beta_fast;
    a->options.scaling.beta_slow = options->scaling.beta_slow;
    a->options.scaling.attention_factor = options->scaling.attention_factor;
    a->options.features = options->features;
    a->options.factors = options->factors;
    a->options.neighbours = options->neighbours;
    a->inverse = inverse;
    if (check(x, dim, options) != WF_OK)
        return WF_EINVAL;
    a->is_long = options->scaling.kind == WF_ROPE_LONG &&
                 (double)x->dim[1].size > options->scaling.original_positions;
    if (options->scaling.kind == WF_ROPE_DYNAMIC && !(options->scaling.length > 0))
        a->options.scaling.length = (double)x->dim[1].size;
    return WF_OK;
}

/* The same for heads that may not be such. */
static wf_status find_attributes(const wf_tensor *x, const wf_rope_options *options,
                                 bool inverse, wf_rope_attr *a)
{
    if (x && x->ndim == 4)
        return wf_rope_attributes(x, x->dim[3].size, options, inverse, a);
    memset(a, 0, sizeof *a); /* dispatch says what is wrong */
    return WF_OK;
}

/* positions: NULL where they are the indices of the tokens. */
static wf_tensor *rotated(wf_tensor *x, wf_tensor *positions, const wf_rope_options *options,
                          bool inverse)
{
    wf_rope_attr a;

    if (find_attributes(x, options, inverse, &a) != WF_OK)
        return NULL;
    if (positions)
        return wf_apply(&wf_op_rope_at, &a, sizeof a, 2, x, positions);
    return wf_apply(&wf_op_rope, &a, sizeof a, 1, x);
}

wf_tensor *wf_rope(wf_tensor *x, const wf_rope_options *options, bool inverse)
{
    return rotated(x, NULL, options, inverse);
}

wf_tensor *wf_rope_at(wf_tensor *x, wf_tensor *positions, const wf_rope_options *options,
                      bool inverse)
{
    return x && positions ? rotated(x, positions, options, inverse) : NULL;
}

void wf_rope_pair(wf_tensor *q, wf_tensor *k, wf_tensor *positions,
                  const wf_rope_options *options, bool inverse, wf_tensor *y[2])
{
    wf_rope_attr a;
    wf_call call = {.op = positions ? &wf_op_rope_pair_at : &wf_op_rope_pair,
                    .n_in = positions ? 3 : 2,
                    .in = {q, k, positions},
                    .n_out = 2,
                    .attr = &a,
                    .attr_size = sizeof a};

    if (find_attributes(q, options, inverse, &a) == WF_OK)
        wf_dispatch(&call);
    y[0] = call.out[0];
    y[1] = call.out[1];
}

static void backward(wf_gradient *g)
{
    const wf_rope_attr *a = g->attr;

    g->din[0] = rotated(g->dout[0], g->n_in > 1 ? g->in[1] : NULL, &a->options, !a->inverse);
}

static void pair_backward(wf_gradient *g)
{
    const wf_rope_attr *a = g->attr;
    wf_tensor *positions = g->n_in > 2 ? g->in[2] : NULL;

    if (g->dout[0] && g->dout[1] && g->want[0] && g->want[1]) {
        wf_rope_pair(g->dout[0], g->dout[1], positions, &a->options, !a->inverse, g->din);
        return;
    }
    for (int i = 0; i < 2; i++)
        if (g->dout[i] && g->want[i])
            g->din[i] = rotated(g->dout[i], positions, &a->options, !a->inverse);
}

static wf_status rotate_one(const wf_call *call)
{
    const wf_rope_attr *a = call->attr;
    const wf_tensor *t = call->in[0];
    const int64_t features = wf_rope_features(&a->options, t->dim[3].size);
    const wf_rope_range range = wf_rope_range_of(&a->options, features, wf_logd);
    const int32_t *at = call->n_in > 1 ? call->in[1]->data : NULL;
    const double *x = t->data;
    double *y = call->out[0]->data;
    int64_t heads = t->local[2], dim = t->local[3], half = features / 2;
    int64_t rows = t->local[0] * t->local[1];

    for (int64_t k = 0; k < rows * heads * dim; k++)
        y[k] = x[k];
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = 0; i < half; i++) {
            int64_t position = at ? wf_rope_position(at[row]) : t->start[1] + row % t->local[1];
            bool is_long = a->is_long || (at && at[row] < 0);
            double angle = wf_powd(a->options.base, -2.0 * (double)i / (double)features), s, c;

            double by = wf_rope_factor(&a->options, i, is_long), warmth = range.attention;

            if (a->options.scaling.kind == WF_ROPE_TEMPERATURE)
                warmth *= 1 + a->options.scaling.factor *
                                  wf_logd(wf_rope_warmth(&a->options.scaling, position));
            if (a->options.scaling.kind == WF_ROPE_DYNAMIC)
                by = wf_powd(wf_rope_stretch(&a->options.scaling, position),
                             wf_rope_slowed(i, features));
            angle = wf_rope_scaled(&a->options.scaling, range, by, i, angle);
            wf_sincos((double)position * angle, &s, &c);
            s *= a->inverse ? -warmth : warmth;
            c *= warmth;
            for (int64_t h = 0; h < heads; h++) {
                int64_t first = (row * heads + h) * dim;
                int64_t p = first + (a->options.neighbours ? 2 * i : i);
                int64_t q = a->options.neighbours ? p + 1 : p + half;
                const double low = x[p], high = x[q]; /* y may be x */

                y[p] = low * c - high * s;
                y[q] = high * c + low * s;
            }
        }
    return WF_OK;
}

static wf_status reference(const wf_call *call, void *workspace)
{
    wf_status status = WF_OK;

    (void)workspace;
    for (int i = 0; i < wf_rope_count(call) && status == WF_OK; i++) {
        const wf_call part = wf_rope_part(call, i);

        status = rotate_one(&part);
    }
    return status;
}

const wf_op wf_op_rope = {WF_OP_ROW(rope), .reference = {.run = reference},
                          .backward = backward};
const wf_op wf_op_rope_at = {WF_OP_ROW(rope_at), .integers = 1 << 1, .save = WF_SAVE_IN(1),
                             .reference = {.run = reference}, .backward = backward};
const wf_op wf_op_rope_pair = {WF_OP_ROW(rope_pair), .reference = {.run = reference},
                               .backward = pair_backward};
const wf_op wf_op_rope_pair_at = {WF_OP_ROW(rope_pair_at), .integers = 1 << 2,
                                  .save = WF_SAVE_IN(2), .reference = {.run = reference},
                                  .backward = pair_backward};
