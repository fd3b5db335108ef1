/* tests/differential/attributes.c - attributes of an op that is drawn, once it has operands. */
#include "tests/differential/program.h"

/* [b, s, h] as heads, flat from the left, the right or both sides, turned over, or with a dim
   more. */
static wf_reshape_attr draw_reshape(draw *d, const wf_tensor *x)
{
    const wf_dim *b = &x->dim[0], *s = &x->dim[1], *h = &x->dim[2];
    const wf_dim left = {b->size * s->size, b->grain * (s->size ? s->size : 1), WF_CHUNKS_8},
                 right = {s->size * h->size, s->grain * (h->size ? h->size : 1), s->chunks};

    switch (draw_below(d, 6)) {
    case 0:
        return reshape_to(2, (wf_dim[]){left, *h});
    case 1:
        return reshape_to(2, (wf_dim[]){*b, right});
    case 2:
        return reshape_to(1, (wf_dim[]){wf_dim_chunked(b->size * s->size * h->size)});
    case 3:
        return reshape_to(3, (wf_dim[]){*s, *b, *h});
    case 4:
        return reshape_to(4, (wf_dim[]){*b, wf_dim_width(1), *s, *h});
    default:
        return reshape_heads(x);
    }
}

/* Draws from numbers of their own, so that those of all that follows stay. */
static draw apart(const maker *m, uint64_t thing)
{
    return draw_at(m->d.key, thing, m->d.n);
}

/* The scaling of a rotation, or a part of a head that rotates, for heads of this size. */
static void draw_rotation(const maker *m, int64_t size, wf_rope_options *o)
{
    static const wf_rope_scaling scalings[] = {
        {.kind = WF_ROPE_LLAMA3,
         .factor = 8,
         .low_freq_factor = 1,
         .high_freq_factor = 4,
         .original_positions = 16},
        {.kind = WF_ROPE_LINEAR, .factor = 3},
        {.kind = WF_ROPE_YARN, .factor = 4, .original_positions = 16},
        {.kind = WF_ROPE_YARN,
         .factor = 2.5,
         .original_positions = 3,
         .beta_fast = 1.5,
         .beta_slow = 0.2,
         .attention_factor = 1.35},
        {.kind = WF_ROPE_LONG, .factor = 4, .original_positions = 3},
        {.kind = WF_ROPE_DYNAMIC, .factor = 8, .original_positions = 2}};
    static const wf_rope_factors factors[] = {
        {1, {1.5f}, {4}}, {2, {1, 1.25f}, {2, 7}}, {3, {1, 1.5f, 2}, {3, 4, 5}}};
    draw d = apart(m, 7);

    o->neighbours = draw_one_in(&d, 2);
    if (draw_one_in(&d, 3))
        o->features = 2 * (1 + draw_below(&d, (int)size / 2));
    o->scaling = scalings[draw_below(&d, (int)(sizeof scalings / sizeof *scalings))];
    size = o->features ? o->features : size;
    if (o->scaling.kind == WF_ROPE_LONG)
        o->factors = &factors[size / 2 - 1];
    if (o->scaling.kind == WF_ROPE_DYNAMIC && size <= 2)
        o->scaling = scalings[1]; /* its first pair stays, so that nothing would be scaled */
}

/* A window and a cap of scores. */
static void draw_pattern(const maker *m, step *s)
{
    draw d = apart(m, 8);
    bool is_causal = !s->attr.attention.bidirectional;

    if (op_is(s->op, "attention_cached"))
        return;
    if (is_causal && draw_one_in(&d, 2))
        s->attr.attention.window = 1 + draw_below(&d, 5);
    if (draw_one_in(&d, 3))
        s->attr.attention.cap = 0.7f;
}

void draw_attributes(maker *m, step *s)
{
    static const float factors[] = {-1, 0.5f, 1.5f, 0.3f};
    wf_tensor *x = m->p->value[s->in[0]].one;

    op_attributes(s->op, x, &s->attr);
    if (op_is(s->op, "scale"))
        s->attr.scale.factor = factors[draw_below(&m->d, 4)];
    if (op_is(s->op, "route"))
        s->attr.route =
            (wf_route_options){.k = 1 + draw_below(&m->d, (int)(x->dim[x->ndim - 1].size > 1
                                                                    ? x->dim[x->ndim - 1].size
                                                                    : 1)),
                               .normalise = draw_one_in(&m->d, 2)};
    if (op_is(s->op, "slice_grad"))
        s->attr.slice.first =
            draw_below(&m->d, 2) * (x->dim[1].size - m->p->value[s->in[1]].dim[1].size);
    if (op_is(s->op, "route_grad"))
        s->attr.route.k = m->p->value[s->in[1]].dim[m->p->value[s->in[1]].ndim - 1].size;
    if (op_is(s->op, "patches"))
        s->attr.patch = (wf_patch_attr){{1, 1 + draw_below(&m->d, 3)},
                                        {1, 1 + draw_below(&m->d, 3)},
                                        {0, draw_below(&m->d, 3)},
                                        {1, 1 + draw_below(&m->d, 2)}};
    if (op_is(s->op, "reshape"))
        s->attr.reshape = draw_reshape(&m->d, x);
    if (op_is(s->op, "rows"))
        s->attr.count = x->dim[0].size ? 1 + draw_below(&m->d, (int)x->dim[0].size) : 0;
    if (strncmp(s->op->name, "linear3_rope", 12) == 0)
        draw_rotation(m, m->p->value[s->in[1]].dim[0].grain, &s->attr.rope.options);
    else if (strstr(s->op->name, "rope"))
        s->attr.rope.inverse = draw_one_in(&m->d, 2);
    if (strncmp(s->op->name, "rope", 4) == 0 && draw_one_in(&m->d, 2) && x->dim[3].size > 1)
        draw_rotation(m, x->dim[3].size, &s->attr.rope.options);
    if (s->op->flags & WF_OP_GROUPS)
        draw_pattern(m, s);
    if (op_is(s->op, "split_heads"))
        s->attr.count = x->dim[x->ndim - 1].grain;
}
