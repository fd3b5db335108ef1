/*
 * kernels/experts_part_adapted.c - experts with low-rank adapters of a part of their features
 * (kernels/experts_part.h). What adapters add to a sum over features is made of another such
 * sum, which ranks complete in between, so that forward and gradients are halves:
 *
 *     experts_part_u        h, and u = down_a h
 *     experts_part_y        down_e h + down_b (s u) of each choice
 *     experts_part_v        c, h, dgate, dup, and v = gate_b^T dgate + up_b^T dup
 *     experts_part_factors  gradients of gate_b, up_b, down_a, which have features; the
 *     choice's
 *                           part of dx, gate_e^T dgate + up_e^T dup + gate_up_a^T (s v)
 *     experts_part_whole    gradients of gate_up_a and down_b, of complete u and v
 *
 * The CPU's kernels are in kernels/cpu/experts_part_adapted.c.
 */
#include "core/numerics/math.h"
#include "kernels/experts_part.h"
#include "kernels/moe_internal.h"

enum { A = WF_MOE_DY + 1 };

static void run(wf_call *call, const wf_experts_operands *in, const wf_experts_adapters *a)
{
    const wf_moe_attr attr = wf_moe_attr_of(a->scale, &in->bound);

    call->attr = &attr;
    call->attr_size = sizeof attr;
    wf_dispatch(call);
}

wf_experts_hidden wf_experts_part_u(const wf_experts_operands *in, const wf_experts_adapters *a)
{
    wf_call call = {.op = &wf_op_experts_part_u,
                    .n_in = 8,
                    .n_out = 2,
                    .in = {in->gate, in->up, in->x, in->index, a->gate_up_a, a->gate_b, a->up_b,
                           a->down_a}};

    run(&call, in, a);
    return (wf_experts_hidden){call.out[0], call.out[1]};
}

wf_tensor *wf_experts_part_y(const wf_experts_operands *in, const wf_experts_adapters *a,
                             const wf_experts_hidden *hidden)
{
    wf_call call = {
        .op = &wf_op_experts_part_y,
        .n_in = 7,
        .n_out = 1,
        .in = {in->gate, in->down, in->x, in->index, a->down_b, hidden->h, hidden->u}};

    run(&call, in, a);
    return call.out[0];
}

wf_experts_terms wf_experts_part_v(const wf_experts_operands *in, const wf_experts_adapters *a,
                                   wf_tensor *dy)
{
    wf_call call = {.op = &wf_op_experts_part_v,
                    .n_in = 12,
                    .n_out = 5,
                    .in = {in->gate, in->up, in->down, in->x, in->weights, in->index, dy,
                           a->gate_up_a, a->gate_b, a->up_b, a->down_a, a->down_b}};
    wf_tensor **out = call.out;

    run(&call, in, a);
    return (wf_experts_terms){out[0], out[1], out[2], out[3], out[4]};
}

wf_tensor *wf_experts_part_factors(const wf_experts_operands *in, const wf_experts_adapters *a,
                                   wf_tensor *dy, wf_tensor *u, const wf_experts_terms *t,
                                   wf_experts_adapters *d)
{
    wf_call split = {.op = &wf_op_experts_part_factors,
                     .n_in = 12,
                     .n_out = 4,
                     .in = {in->gate, in->up, in->x, in->weights, in->index, dy, a->gate_up_a,
                            a->down_b, t->h, t->dgate, t->dup, t->v}};
    wf_call whole = {
        .op = &wf_op_experts_part_whole,
        .n_in = 8,
        .n_out = 2,
        .in = {a->gate_up_a, a->down_b, in->x, in->weights, in->index, dy, u, t->v}};

    run(&split, in, a);
    run(&whole, in, a);
    d->gate_up_a = whole.out[0];
    d->gate_b = split.out[0];
    d->up_b = split.out[1];
    d->down_a = split.out[2];
    d->down_b = whole.out[1];
    return split.out[3];
}

/* ---- references ---- */

/* A choice in double: its expert's matrices and factors, which an op may lack, and rows. */
typedef struct one {
    const double *position[WF_MOE_POSITIONS];
    double *out[WF_MAX_OUTPUTS]; /* this choice's, or its expert's */
    int64_t d, f, r;
    double w, scale; /* w: its weight, where there are such */
    bool last;       /* this rank adds what adapters make of all features */
} one;

static double as_double(const void *data, int64_t e)
{
    return ((const double *)data)[e];
}

/* Finds what there is of a choice; false: its expert is another rank's. */
static bool choose(const wf_moe_arranged *p, const wf_moe_sizes *s, int64_t choice, one *at)
{
    wf_tensor *const *in = p->call.in;
    const int64_t e = (int64_t)as_double(in[WF_MOE_INDEX]->data, choice) - s->first;

    *at = (one){.d = s->d,
                .f = s->f,
                .r = wf_moe_rank(in + A),
                .scale = (double)((const wf_moe_attr *)p->call.attr)->scale,
                .last = wf_moe_has_last(in[WF_MOE_GATE])};
    for (int i = 0; i < WF_MOE_POSITIONS && e >= 0 && e < s->experts; i++) {
        const wf_tensor *t = i < WF_MOE_H ? in[i] : p->rows[i - WF_MOE_H];
        int64_t row = t ? t->local[t->ndim - 1] : 0;

        if (i == WF_MOE_WEIGHTS || i == WF_MOE_INDEX)
            continue;
        if (t && (i == WF_MOE_X || i == WF_MOE_DY))
            row *= choice / s->k;
        else if (t && i < WF_MOE_H)
            row *= e * t->local[1];
        else
            row *= choice;
        at->position[i] = t ? (const double *)t->data + row : NULL;
    }
    for (int o = 0; o < p->call.n_out; o++) {
        const wf_tensor *t = p->call.out[o];
        const int64_t row = t->local[t->ndim - 1];

        at->out[o] = (double *)t->data + (t->ndim == 3 && t->dim[0].chunks == WF_CHUNKS_EXPERTS
                                              ? e * t->local[1] * row
                                              : choice * row);
    }
    if (in[WF_MOE_WEIGHTS])
        at->w = as_double(in[WF_MOE_WEIGHTS]->data, choice);
    return e >= 0 && e < s->experts;
}

/* y[m] += by a[m, n] x[n]; where a is transposed a[n, m]. */
static void add(double *y, double by, const double *a, bool transposed, int64_t m, int64_t n,
                const double *x)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            y[i] += by * (transposed ? a[j * m + i] : a[i * n + j]) * x[j];
}

/* dw[m, n] += by a[m] b[n] */
static void outer(double *dw, double by, int64_t m, const double *a, int64_t n, const double *b)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++)
            dw[i * n + j] += by * a[i] * b[j];
}

static void clear(double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = 0;
}

/* Computes gate x, up x [f] and h of a choice; low: [r]. */
static void make_h(const one *at, double *g, double *u, double *low, double *h)
{
    const double *const *p = at->position;

    clear(g, at->f);
    clear(u, at->f);
    clear(low, at->r);
    add(low, at->scale, p[A + WF_MOE_GATE_UP_A], false, at->r, at->d, p[WF_MOE_X]);
    add(g, 1, p[WF_MOE_GATE], false, at->f, at->d, p[WF_MOE_X]);
    add(g, 1, p[A + WF_MOE_GATE_B], false, at->f, at->r, low);
    add(u, 1, p[WF_MOE_UP], false, at->f, at->d, p[WF_MOE_X]);
    add(u, 1, p[A + WF_MOE_UP_B], false, at->f, at->r, low);
    for (int64_t j = 0; j < at->f; j++)
        h[j] = g[j] / (1 + wf_expd(-g[j])) * u[j];
}

static void one_u(const one *at, double *room)
{
    make_h(at, room, room + at->f, room + 2 * at->f, at->out[0]);
    add(at->out[1], 1, at->position[A + WF_MOE_DOWN_A], false, at->r, at->f, at->out[0]);
}

static void one_y(const one *at, double *room)
{
    const double *const *p = at->position;

    (void)room;
    add(at->out[0], 1, p[WF_MOE_DOWN], false, at->d, at->f, p[WF_MOE_H]);
    if (at->last)
        add(at->out[0], at->scale, p[A + WF_MOE_DOWN_B], false, at->d, at->r, p[WF_MOE_U]);
}

static void one_v(const one *at, double *room)
{
    const double *const *p = at->position;
    double *g = room, *u = room + at->f, *low = u + at->f, *c = at->out[0], *h = at->out[1];
    double *dgate = at->out[2], *dup = at->out[3];

    make_h(at, g, u, low, h);
    clear(low, at->r);
    add(low, at->scale, p[A + WF_MOE_DOWN_B], true, at->r, at->d, p[WF_MOE_DY]);
    add(c, 1, p[WF_MOE_DOWN], true, at->f, at->d, p[WF_MOE_DY]);
    add(c, 1, p[A + WF_MOE_DOWN_A], true, at->f, at->r, low);
    for (int64_t j = 0; j < at->f; j++) {
        const double sigmoid = 1 / (1 + wf_expd(-g[j]));

        dgate[j] = at->w * c[j] * u[j] * sigmoid * (1 + g[j] * (1 - sigmoid));
        dup[j] = at->w * c[j] * g[j] * sigmoid;
    }
    add(at->out[4], 1, p[A + WF_MOE_GATE_B], true, at->r, at->f, dgate);
    add(at->out[4], 1, p[A + WF_MOE_UP_B], true, at->r, at->f, dup);
}

static void one_factors(const one *at, double *low)
{
    const double *const *p = at->position, *dgate = p[WF_MOE_DGATE], *dup = p[WF_MOE_DUP];

    clear(low, at->r);
    add(low, at->scale, p[A + WF_MOE_GATE_UP_A], false, at->r, at->d, p[WF_MOE_X]);
    outer(at->out[0], 1, at->f, dgate, at->r, low);
    outer(at->out[1], 1, at->f, dup, at->r, low);
    clear(low, at->r);
    add(low, at->scale, p[A + WF_MOE_DOWN_B], true, at->r, at->d, p[WF_MOE_DY]);
    outer(at->out[2], at->w, at->r, low, at->f, p[WF_MOE_H]);
    add(at->out[3], 1, p[WF_MOE_GATE], true, at->d, at->f, dgate);
    add(at->out[3], 1, p[WF_MOE_UP], true, at->d, at->f, dup);
    if (at->last)
        add(at->out[3], at->scale, p[A + WF_MOE_GATE_UP_A], true, at->d, at->r, p[WF_MOE_V]);
}

static void one_whole(const one *at, double *room)
{
    const double *const *p = at->position;

    (void)room;
    outer(at->out[0], at->scale, at->r, p[WF_MOE_V], at->d, p[WF_MOE_X]);
    outer(at->out[1], at->w * at->scale, at->d, p[WF_MOE_DY], at->r, p[WF_MOE_U]);
}

static size_t workspace(const wf_call *call)
{
    const wf_moe_arranged p = wf_moe_arrange(call);

    return (size_t)(2 * wf_moe_sizes_of(&p.call).f + wf_moe_rank(p.call.in + A)) *
           sizeof(double);
}

static wf_status each(const wf_call *call, double *room,
                      void (*compute)(const one *at, double *room))
{
    const wf_moe_arranged p = wf_moe_arrange(call);
    const wf_moe_sizes s = wf_moe_sizes_of(&p.call);
    one at;

    if (wf_moe_check(&p.call, as_double) != WF_OK)
        return WF_EINVAL;
    for (int o = 0; o < call->n_out; o++)
        clear(call->out[o]->data, wf_tensor_local_count(call->out[o]));
    for (int64_t c = 0; c < s.tokens * s.k; c++)
        if (choose(&p, &s, c, &at))
            compute(&at, room);
    return WF_OK;
}

static wf_status reference_u(const wf_call *call, void *room)
{
    return each(call, room, one_u);
}

static wf_status reference_y(const wf_call *call, void *room)
{
    return each(call, room, one_y);
}

static wf_status reference_v(const wf_call *call, void *room)
{
    return each(call, room, one_v);
}

static wf_status reference_factors(const wf_call *call, void *room)
{
    return each(call, room, one_factors);
}

static wf_status reference_whole(const wf_call *call, void *room)
{
    return each(call, room, one_whole);
}

/* ---- rows ---- */

/* Counts a product and a sum for each element of some matrices, and of factors of width d
   and of features f. */
static double products(const wf_call *call, double matrices, double of_d, double of_f)
{
    const wf_moe_arranged p = wf_moe_arrange(call);
    const wf_moe_sizes s = wf_moe_sizes_of(&p.call);
    const double share = s.all ? (double)s.experts / (double)s.all : 0;
    const double d = (double)s.d, f = (double)s.f, r = (double)wf_moe_rank(p.call.in + A);

    return 2 * (double)s.tokens * (double)s.k * share *
           (matrices * d * f + r * (of_d * d + of_f * f));
}

static double flops_u(const wf_call *call)
{
    return products(call, 2, 1, 3);
}

static double flops_y(const wf_call *call)
{
    return products(call, 1, 1, 0);
}

static double flops_v(const wf_call *call)
{
    return products(call, 3, 2, 5);
}

/* Returns that without what recomputes gate and up. */
static double model_flops_v(const wf_call *call)
{
    return products(call, 1, 1, 3);
}

static double flops_factors(const wf_call *call)
{
    return products(call, 2, 3, 3);
}

static double flops_whole(const wf_call *call)
{
    return products(call, 0, 2, 0);
}

#define REFERENCE(of) .reference = {.run = of, .workspace = workspace}

const wf_op wf_op_experts_part_u = {WF_OP_ROW(experts_part_u), .keep_fp32 = 3,
                                    REFERENCE(reference_u), .flops = flops_u};
const wf_op wf_op_experts_part_y = {WF_OP_ROW(experts_part_y), .keep_fp32 = 1,
                                    .shapes = WF_IN(0), REFERENCE(reference_y),
                                    .flops = flops_y};
const wf_op wf_op_experts_part_v = {WF_OP_ROW(experts_part_v), .keep_fp32 = 31,
                                    REFERENCE(reference_v), .flops = flops_v,
                                    .model_flops = model_flops_v};
const wf_op wf_op_experts_part_factors = {WF_OP_ROW(experts_part_factors), .keep_fp32 = 15,
                                          REFERENCE(reference_factors), .flops = flops_factors};
const wf_op wf_op_experts_part_whole = {WF_OP_ROW(experts_part_whole), .keep_fp32 = 3,
                                        REFERENCE(reference_whole), .flops = flops_whole};
