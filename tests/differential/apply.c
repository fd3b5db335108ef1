/* tests/differential/apply.c - what a step does, on one rank and on many: ops by their row, and
 * the numbers of leaves. */
#include "kernels/attention_cached.h"
#include "tests/differential/program.h"

/*
 * sum of x * w over everything, an application's op: its gradient is w. A program ends with the
 * sum of these over all values that nothing else uses, so that every gradient is of random
 * numbers.
 */
static wf_status weigh_run(const wf_call *call, void *workspace)
{
    const float *x = call->in[0]->data, *w = call->in[1]->data;
    float sum = 0;

    (void)workspace;
    for (int64_t i = 0; i < wf_tensor_local_count(call->in[0]); i++)
        sum += x[i] * w[i];
    *(float *)call->out[0]->data = sum;
    return WF_OK;
}

static void weigh_backward(wf_gradient *g)
{
    g->din[0] = wf_scale(g->in[1], 1);
}

static const wf_kernel weigh_kernel = {.run = weigh_run};
const wf_op weigh_op = {.name = "weigh",
                        .signature = "...,...->",
                        .keep_fp32 = 1,
                        .save = WF_SAVE_IN(1),
                        .backward = weigh_backward,
                        .kernels = WF_KERNELS({"cpu", &weigh_kernel})};

static int letters_of(const char **s, const char *end, int rest, int8_t *letter,
                      uint32_t *whole)
{
    int n = 0;

    for (; *s < end && **s != ','; ++*s) {
        if (**s == '.') {
            for (int i = 0; i < rest; i++)
                letter[n++] = (int8_t)(26 + i);
            *s += 2;
        } else if (**s == '!') {
            *whole |= 1u << letter[n - 1];
        } else {
            letter[n++] = (int8_t)(**s - 'a');
        }
    }
    return n;
}

/* Returns the number of outputs of a row. */
static int outputs_of(const wf_op *op)
{
    int n = op->flags & WF_OP_IN_PLACE ? 0 : 1;

    for (const char *s = strstr(op->signature, "->"); *s; s++)
        n += *s == ',';
    return n;
}

pattern pattern_of(const wf_op *op, int rest)
{
    const char *s = op->signature, *arrow = strstr(s, "->"), *end = s + strlen(s);
    pattern p = {.n_out = outputs_of(op)};
    uint32_t made = 0;

    for (;; s++) {
        p.ndim[p.n_in] = letters_of(&s, arrow, rest, p.letter[p.n_in], &p.whole);
        for (int d = 0; d < p.ndim[p.n_in]; d++)
            p.letters |= 1u << p.letter[p.n_in][d];
        p.n_in++;
        if (s == arrow)
            break;
    }
    for (s = arrow + 2; s < end; s++) {
        int8_t letter[WF_MAX_DIMS];
        int n = letters_of(&s, end, rest, letter, &p.whole);

        for (int d = 0; d < n; d++)
            made |= 1u << letter[d];
    }
    p.contracted = p.letters & ~made;
    return p;
}

/* Queries and keys as they lie in memory, as those of the row. */
static bool rotated(const step *s, wf_tensor *const *in, wf_tensor **out)
{
    wf_linear_rope(in[0], &in[1], s->n_in > 4 ? in[4] : NULL, &s->attr.rope.options, out);
    for (int i = 0; i < 2; i++)
        out[i] = wf_merge_heads(out[i]);
    return true;
}

/* Rows whose functions do more than hand them on: they record other ops, or check what no
   signature says. True where this is one. */
static bool by_function(const step *s, wf_tensor *const *in, wf_tensor **out)
{
    if (op_is(s->op, "linear1_bias"))
        wf_linear_bias(in[0], 1, &in[1], &in[2], out);
    else if (op_is(s->op, "linear3_bias"))
        wf_linear_bias(in[0], 3, &in[1], &in[4], out);
    else if (op_is(s->op, "linear1_bias_gelu"))
        out[0] = wf_linear_bias_gelu(in[0], in[1], in[2]);
    else if (op_is(s->op, "linear2_swiglu"))
        out[0] = wf_linear_swiglu(in[0], in[1], in[2]);
    else if (op_is(s->op, "linear1_add"))
        out[0] = wf_linear_add(in[2], in[0], in[1], NULL);
    else if (op_is(s->op, "linear1_bias_add"))
        out[0] = wf_linear_add(in[3], in[0], in[1], in[2]);
    else if (op_is(s->op, "linear3_rope") || op_is(s->op, "linear3_rope_at"))
        return rotated(s, in, out);
    else if (op_is(s->op, "rope"))
        out[0] = wf_rope(in[0], &s->attr.rope.options, s->attr.rope.inverse);
    else if (op_is(s->op, "rope_at"))
        out[0] = wf_rope_at(in[0], in[1], &s->attr.rope.options, s->attr.rope.inverse);
    else if (op_is(s->op, "rope_pair") || op_is(s->op, "rope_pair_at"))
        wf_rope_pair(in[0], in[1], s->n_in > 2 ? in[2] : NULL, &s->attr.rope.options,
                     s->attr.rope.inverse, out);
    else if (op_is(s->op, "split_heads"))
        out[0] = wf_split_heads(in[0], s->attr.count);
    else if (op_is(s->op, "merge_heads"))
        out[0] = wf_merge_heads(in[0]);
    else
        return false;
    return true;
}

wf_status apply(const step *s, wf_context *ctx, wf_tensor *const *in, wf_tensor **out)
{
    wf_call call = {.op = s->op,
                    .ctx = ctx,
                    .n_in = s->n_in,
                    .n_out = s->n_out,
                    .attr = &s->attr,
                    .attr_size = s->op->id ? sizeof s->attr : 0};

    if (by_function(s, in, out))
        return wf_context_status(ctx);
    memcpy(call.in, in, (size_t)s->n_in * sizeof *in);
    wf_dispatch(&call);
    memcpy(out, call.out, (size_t)s->n_out * sizeof *out);
    return wf_context_status(ctx);
}

/* Returns a number of all 24 bits, so that no sum of them is exact: the order of the sum
   shows. */
float leaf_number(const step *s, wf_dtype dtype, int below, int64_t index, int member,
                  int members)
{
    uint64_t bits = wf_mix64(s->key ^ wf_mix64((uint64_t)index * 64 + (uint64_t)member));
    float x = (float)(int64_t)(bits % (1 << 24)) / (1 << 22) - 2;

    if (below > 0) /* tokens, or indices of a row */
        return (float)(bits % (uint64_t)below);
    if (s->positive)
        x = (x < 0 ? -x : x) + 0.5f;
    x /= (float)members;
    return dtype == WF_BF16 ? wf_bf16_value(wf_bf16_of(x)) : x;
}

int partial_members(const placing *at, const world *w)
{
    int members = 1;

    for (int a = 0; a < w->n_axes; a++)
        members *= at->at[a] == LAYOUT_SUM || at->at[a] == LAYOUT_MAX ? w->size[a] : 1;
    return members;
}

typedef struct folded {
    const step *s;
    const world *w;
    const value *v;
    int64_t index;
    int members;
} folded;

/* The innermost axis is folded first, each by the midpoint tree. */
static float fold_axes(const folded *f, int axis, int member);

static float fold_members(const folded *f, int axis, int first, int n, int member)
{
    float a, b;

    if (n == 1)
        return fold_axes(f, axis + 1, member * f->w->size[axis] + first);
    a = fold_members(f, axis, first, n / 2, member);
    b = fold_members(f, axis, first + n / 2, n - n / 2, member);
    if (f->s->to.at[axis] == LAYOUT_MAX)
        return a > b ? a : b;
    return a + b;
}

static float fold_axes(const folded *f, int axis, int member)
{
    if (axis == f->w->n_axes)
        return leaf_number(f->s, f->v->dtype, f->v->below, f->index, member, f->members);
    if (f->s->to.at[axis] == LAYOUT_SUM || f->s->to.at[axis] == LAYOUT_MAX)
        return fold_members(f, axis, 0, f->w->size[axis], member);
    return fold_axes(f, axis + 1, member);
}

float leaf_element(const step *s, const world *w, const value *v, int64_t index)
{
    folded f = {s, w, v, index, partial_members(&s->to, w)};

    return fold_axes(&f, 0, 0);
}

wf_status optimize(const program *p, wf_tensor *parameter, wf_tensor *gradient)
{
    const wf_update update = {.lr = 0.1f,
                              .beta1 = 0.9f,
                              .beta2 = 0.95f,
                              .eps = 1e-3f,
                              .weight_decay = 0.1f,
                              .bias1 = 1.5f,
                              .bias2 = 1.25f,
                              .grad_scale = 0.7f};
    wf_tensor *m = wf_tensor_like(parameter, WF_MEMORY_OPTIMIZER);
    wf_tensor *v = wf_tensor_like(parameter, WF_MEMORY_OPTIMIZER);

    if (!m || !v)
        return wf_context_status(parameter->ctx);
    wf_init_normal(m, 0, 0.1f, 3);
    wf_init_uniform(v, 0, 0.1f, 4);
    return p->adam ? wf_adamw(parameter, gradient, m, v, &update)
                   : wf_sgd(parameter, gradient, m, &update);
}

wf_tensor *whole_vector(const wf_tensor *leaf, wf_tensor *grad)
{
    return grad && grad->ndim == leaf->ndim + 1 ? wf_batch_sum(grad) : grad;
}
