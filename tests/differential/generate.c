/* tests/differential/generate.c - a program drawn step by step, each step run on one rank at
   once. */
#include "tests/differential/program.h"
#include "tests/sanitizer.h"
#include <math.h>

void draw_world(const selection *what, int64_t number, world *w)
{
    static const int sizes[] = {1, 2, 2, 2, 3, 4, 4, 5};
    draw d = draw_at(what->seed, 1, (uint64_t)number);
    int most = UNDER_SANITIZER ? 8 : draw_one_in(&d, 12) ? 32 : draw_one_in(&d, 4) ? 16 : 8;

    do {
        *w = (world){.n_axes = 1 + draw_below(&d, AXES), .ranks = 1, .fine = -1};
        for (int a = 0; a < w->n_axes; a++) {
            w->size[a] = sizes[draw_below(&d, (int)(sizeof sizes / sizeof *sizes))];
            if (what->largest_axis && w->size[a] > what->largest_axis)
                w->size[a] = what->largest_axis;
            w->ranks *= w->size[a];
        }
    } while (w->ranks > most || (w->ranks == 1 && !what->largest_axis && !draw_one_in(&d, 8)));
    if (draw_one_in(&d, 4))
        w->fine = draw_below(&d, w->n_axes);
    w->threads = draw_one_in(&d, 8) ? 2 : 1;
    w->exact_off = draw_one_in(&d, 10);
}

static size_t bytes_of_value(const value *v)
{
    return (size_t)v->count * wf_dtype_size(v->dtype);
}

static void *copy_of(const wf_tensor *t)
{
    size_t bytes = (size_t)wf_tensor_count(t) * wf_dtype_size(t->dtype);
    void *copy = malloc(bytes + 1);

    if (copy && bytes)
        memcpy(copy, t->data, bytes);
    return copy;
}

/* Makes a leaf of one rank: the fold of its shares. */
static bool run_leaf(maker *m, const step *s, value *v)
{
    v->count = 1;
    for (int i = 0; i < v->ndim; i++)
        v->count *= v->dim[i].size;
    v->whole = malloc(bytes_of_value(v) + 1);
    for (int64_t i = 0; v->whole && i < v->count; i++) {
        float x = leaf_element(s, m->p->world, v, i);

        if (v->dtype == WF_BF16)
            ((uint16_t *)v->whole)[i] = wf_bf16_of(x);
        else
            put(v->dtype, v->whole, i, x);
    }
    v->one = wf_distribute(m->ctx, v->whole, v->dtype, v->ndim, v->dim, NULL);
    if (v->one && v->wanted)
        v->one = wf_leaf(v->one);
    return v->one != NULL;
}

static void take_result(value *v, int id, wf_tensor *t)
{
    *v = (value){.one = t,
                 .dtype = t->dtype,
                 .ndim = t->ndim,
                 .count = wf_tensor_count(t),
                 .source = id,
                 .whole = copy_of(t)};
    memcpy(v->dim, t->dim, sizeof v->dim);
}

/* Numbers that another order of sums leaves close. */
static bool useful(const wf_tensor *t)
{
    for (int64_t i = 0; i < wf_tensor_count(t) && t->dtype != WF_I32; i++) {
        float x = t->dtype == WF_BF16 ? wf_bf16_value(((const uint16_t *)t->data)[i])
                                      : ((const float *)t->data)[i];

        if (!(fabsf(x) < 1e3f))
            return false;
    }
    return true;
}

/* Returns the sum of the absolute terms of a number on the way to the root. */
static double terms_of(const program *p, const step *s)
{
    const value *a = &p->value[s->in[0]], *b = s->n_in > 1 ? &p->value[s->in[1]] : NULL;
    double sum = 0;

    if (s->op != &weigh_op)
        return a->terms + (b ? b->terms : 0);
    for (int64_t i = 0; i < a->count; i++)
        sum += fabs(element_of(a->dtype, a->whole, i) * element_of(b->dtype, b->whole, i));
    return sum;
}

static bool run_op(maker *m, const step *s)
{
    program *p = m->p;
    wf_tensor *in[WF_MAX_INPUTS], *out[WF_MAX_OUTPUTS] = {NULL};
    bool good;

    for (int i = 0; i < s->n_in; i++) {
        in[i] = p->value[s->in[i]].one;
        if (s->way != WAY_AS_IS)
            in[i] = wf_redistribute(in[i], NULL);
    }
    good = apply(s, m->ctx, in, out) == WF_OK;
    wf_context_clear(m->ctx);
    for (int o = 0; o < s->n_out && good; o++)
        good = out[o] && useful(out[o]);
    for (int o = 0; o < s->n_out && good; o++)
        take_result(&p->value[s->out[o]], s->out[o], out[o]);
    if (good && s->n_out && !out[0]->ndim)
        p->value[s->out[0]].terms = terms_of(p, s);
    for (int i = 0; i < s->n_in && good; i++)
        if (in[i]->requires_grad)
            p->value[p->value[s->in[i]].source].uses++;
    return good;
}

bool run_on_one(maker *m)
{
    program *p = m->p;
    step *s = &p->step[p->n_steps - 1];
    value *v = &p->value[s->out[0]];
    const value *from = s->n_in ? &p->value[s->in[0]] : NULL;
    bool good = true;

    atomic_fetch_add(&m->b->beat, 1);
    note(m->b, "one rank: step %d, %s\n", p->n_steps - 1, s->op ? s->op->name : "leaf or move");
    if (s->kind == STEP_LEAF) {
        good = run_leaf(m, s, v);
    } else if (s->kind == STEP_APPLY) {
        good = run_op(m, s);
    } else if (s->kind == STEP_MOVE) {
        take_result(v, s->out[0], wf_redistribute(from->one, NULL));
        v->source = from->source;
        v->below = from->below;
    } else {
        take_result(v, s->out[0], wf_leaf(from->one));
        v->wanted = true;
    }
    if (good)
        p->n_values += s->n_out;
    else
        p->n_steps--;
    return good;
}

bool draw_move(maker *m)
{
    program *p = m->p;
    int id = p->n_values ? draw_below(&m->d, p->n_values) : 0;
    const value *v = &p->value[id];
    step s = {.kind = STEP_MOVE, .round = m->round, .n_in = 1, .in = {id}, .n_out = 1};

    if (!p->n_values || !within_reach(m, id))
        return false;
    s.to = draw_dim_layouts(p, &m->d, v->ndim, v->dtype == WF_F32 && !draw_one_in(&m->d, 3));
    s.way = (way)(WAY_REDISTRIBUTE + draw_below(&m->d, WAYS - WAY_REDISTRIBUTE));
    s.axis = draw_below(&m->d, p->world->n_axes);
    return append(m, s) && run_on_one(m);
}

/* The number that gradients are of: what nobody used, weighed and added up. */
static void draw_weighed_root(maker *m)
{
    program *p = m->p;
    int last = p->n_values, root = -1;

    for (int id = last - 1; id >= 0 && p->n_steps + 4 < STEPS; id--) {
        const value *v = &p->value[id];
        step s = {.kind = STEP_APPLY, .round = ROUNDS, .op = &weigh_op, .n_in = 2, .n_out = 1};

        if (!v->one->requires_grad || v->hidden || p->value[v->source].uses)
            continue;
        s.in[0] = id;
        s.in[1] = make_leaf(m, WF_F32, v->ndim, v->dim, 0, false);
        s.rest = v->ndim;
        s.way = p->strict ? WAY_REDISTRIBUTE : WAY_AS_IS;
        s.to = draw_dim_layouts(p, &m->d, v->ndim, false);
        for (int a = 0; a < AXES; a++)
            s.to.at[a] = (int8_t)(s.to.at[a] + (s.to.at[a] >= 0 ? 26 : 0));
        if (s.in[1] < 0 || !append(m, s) || !run_on_one(m))
            continue;
        if (root >= 0) {
            step sum = {.kind = STEP_APPLY,
                        .round = ROUNDS,
                        .op = &wf_op_add,
                        .n_in = 2,
                        .in = {root, p->n_values - 1},
                        .n_out = 1,
                        .way = s.way};

            sum.to = draw_dim_layouts(p, &m->d, 0, false);
            if (!append(m, sum) || !run_on_one(m))
                return;
        }
        root = p->n_values - 1;
    }
    p->root = root;
}

/* Or one of the results, weighed by what backward is given. */
static void draw_plain_root(maker *m)
{
    program *p = m->p;

    for (int id = p->n_values - 1; id >= 0 && p->root < 0; id--)
        if (p->value[id].one->tape && !p->value[id].hidden)
            p->root = id;
}

static void draw_root(maker *m)
{
    program *p = m->p;
    const value *v;
    wf_dtype storage;

    m->d = draw_at(m->what->seed, 3, (uint64_t)p->number);
    m->round = ROUNDS;
    p->root = p->seed = -1;
    if (draw_one_in(&m->d, 3))
        draw_plain_root(m);
    else
        draw_weighed_root(m);
    if (p->root < 0)
        return;
    v = &p->value[p->root];
    storage = p->storage;
    p->storage = v->dtype; /* a seed is of the root's type, or of the device's */
    p->seed = make_leaf(m, WF_F32, v->ndim, v->dim, 0, false);
    p->storage = storage;
    if (p->seed < 0)
        p->root = -1;
    else
        p->value[p->seed].wanted = false;
}

/* Which leaf an optimizer changes: one of numbers that lie as its gradient does. */
static void draw_update(maker *m)
{
    program *p = m->p;

    p->update = -1;
    p->adam = draw_one_in(&m->d, 2);
    p->overwrite = draw_one_in(&m->d, 6);
    for (int k = 0; k < p->n_steps && draw_below(&m->d, 4); k++) {
        const value *v = &p->value[p->step[k].out[0]];

        if (p->step[k].kind == STEP_LEAF && v->wanted && v->dtype == WF_F32 && v->grad &&
            v->grad->dtype == WF_F32 && v->grad->ndim == v->ndim &&
            v->one->grad->ndim == v->ndim && partial_members(&p->step[k].to, p->world) == 1)
            p->update = p->step[k].out[0];
    }
}

/* Returns true for errors that one rank may refuse to differentiate with; all others are
   faults. */
static bool may_be_refused(const char *text)
{
    return strstr(text, "of a linear group was not used") ||
           strstr(text, "two gradients of one vector meet");
}

static void run_backward(maker *m)
{
    program *p = m->p;
    wf_tensor *root = p->value[p->root].one;

    if (p->strict)
        root = wf_redistribute(root, NULL);
    p->backward = wf_backward(root, p->value[p->seed].one, false);
    snprintf(p->backward_text, sizeof p->backward_text, "%s", wf_context_error(m->ctx)->text);
    wf_context_clear(m->ctx);
    if (p->backward != WF_OK && !may_be_refused(p->backward_text))
        fail_case(m->b, "backward on one rank: %s", p->backward_text);
    for (int id = 0; id < p->n_values && p->backward == WF_OK; id++) {
        value *v = &p->value[id];

        if (!v->wanted || !v->one->grad)
            continue;
        v->grad = whole_vector(v->one, v->one->grad);
        v->grad_whole = copy_of(v->grad);
        v->grad_dtype = v->grad->dtype;
        v->grad_count = wf_tensor_count(v->grad);
    }
    draw_update(m);
    if (p->update >= 0) {
        value *v = &p->value[p->update];

        optimize(p, v->one, v->grad);
        v->updated = copy_of(v->one);
    }
}

/* Leaves out ops that change operands or read what such an op wrote, and gradients of experts,
   whose indices ascend in each row as wf_route's do: these are run by the gradients of
   experts. Experts with adapters are frozen, and sources here never are. Experts of a part of
   their features have no gradients of their own. */
bool is_drawn(const wf_op *op)
{
    return !(op->flags & WF_OP_IN_PLACE) && op != &wf_op_attention_cached &&
           op != &wf_op_experts_dx && op != &wf_op_experts_grad &&
           op != &wf_op_experts_adapted && op != &wf_op_experts_adapted_grad &&
           strncmp(op->name, "experts_part", 12) != 0 && op != &wf_op_experts_sum &&
           op != &wf_op_experts_dot;
}

bool draw_row(maker *m)
{
    const wf_op *op;

    do
        op = wf_op_at(1 + draw_below(&m->d, wf_op_count()));
    while (!is_drawn(op));
    return draw_apply(m, op);
}

bool generate(wf_context *ctx, const selection *what, const world *w, int64_t number,
              program *p, board *b)
{
    maker m = {.p = p, .ctx = ctx, .what = what, .b = b};
    wf_tape *tape;
    int rounds;

    *p = (program){.world = w, .number = number, .root = -1, .seed = -1, .update = -1};
    m.d = draw_at(what->seed, 2, (uint64_t)number);
    p->storage = draw_one_in(&m.d, 3) ? WF_BF16 : WF_F32;
    p->strict = draw_below(&m.d, 3) > 0;
    p->deferred = draw_one_in(&m.d, 3);
    rounds = 2 + draw_below(&m.d, ROUNDS - 2);
    wf_scope_open(ctx);
    tape = wf_tape_open(ctx);
    wf_context_storage(ctx, p->storage);
    for (m.round = 0; m.round < rounds; m.round++) {
        m.d = draw_at(what->seed, (uint64_t)number + 16, (uint64_t)m.round);
        if (what->drop >> m.round & 1)
            continue;
        if (draw_one_in(&m.d, 4))
            draw_move(&m);
        else if (draw_one_in(&m.d, 4))
            draw_module(&m);
        else
            draw_row(&m);
    }
    draw_root(&m);
    if (p->root >= 0)
        run_backward(&m);
    wf_tape_close(tape);
    wf_scope_close(ctx);
    return wf_context_status(ctx) == WF_OK && !b->failed;
}

void forget_program(program *p)
{
    for (int id = 0; id < p->n_values; id++) {
        free(p->value[id].whole);
        free(p->value[id].grad_whole);
        free(p->value[id].updated);
    }
}
