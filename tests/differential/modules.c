/*
 * tests/differential/modules.c - parts of a program as modules under activation checkpointing
 * (wf_nn_recompute), whose uses of their input, of leaves and of what they make are repeated in
 * backward, on another tape.
 */
#include "tests/differential/run.h"

bool within_reach(const maker *m, int id)
{
    const value *v = &m->p->value[id];
    bool is_input = m->inside && id == m->inside->in;
    bool is_inner = m->inside && id >= m->p->step[m->inside->first].out[0];

    if (v->hidden || !v->one)
        return false;
    return !m->inside || is_input || is_inner || !v->one->tape;
}

/* The result is the last value that ops made; others that they made are of no use outside. */
static bool choose_result(program *p, submodule *part)
{
    part->end = p->n_steps;
    part->out = -1;
    for (int k = part->first; k < part->end; k++)
        for (int o = 0; o < p->step[k].n_out; o++)
            if (p->step[k].kind != STEP_LEAF && p->value[p->step[k].out[o]].one->tape)
                part->out = p->step[k].out[o];
    for (int k = part->first; k < part->end && part->out >= 0; k++)
        for (int o = 0; o < p->step[k].n_out; o++) {
            value *v = &p->value[p->step[k].out[o]];

            v->hidden = p->step[k].out[o] != part->out && p->step[k].kind != STEP_LEAF &&
                        p->step[k].kind != STEP_REUSE;
        }
    return part->out >= 0;
}

void draw_module(maker *m)
{
    program *p = m->p;
    submodule *part = &p->module[p->n_modules];
    int steps = 1 + draw_below(&m->d, 4);
    int in = p->n_values ? draw_below(&m->d, p->n_values) : 0;

    if (!p->n_values || p->n_modules == MODULES || !within_reach(m, in) ||
        !p->value[in].one->requires_grad) /* a maximum over ranks can have none */
        return;
    *part = (submodule){.first = p->n_steps, .in = in};
    m->inside = part;
    p->step[part->first].out[0] = p->n_values; /* set even if no step follows */
    for (int i = 0; i < steps; i++)
        if (draw_one_in(&m->d, 5))
            draw_move(m);
        else
            draw_row(m);
    m->inside = NULL;
    if (choose_result(p, part))
        p->n_modules++;
    else
        for (int k = part->first; k < p->n_steps; k++)
            p->step[k].module = 0;
}

static bool is_leaf(const step *s)
{
    return s->kind == STEP_LEAF || s->kind == STEP_REUSE;
}

/* Whenever the module runs, its input stands in for the value outside; what it makes stays
   inside. */
static wf_tensor *forward(wf_nn_module *module, wf_tensor *x)
{
    const recomputed *a = (const recomputed *)module;
    run *r = a->r;
    const program *p = r->p;
    wf_tensor *outside = r->value[a->part->in], *y;

    r->again = wf_nn_is_recomputing(module);
    r->value[a->part->in] = x;
    for (int k = a->part->first; k < a->part->end; k++)
        if (!is_leaf(&p->step[k]) && run_step(r, k) != WF_OK)
            break;
    r->value[a->part->in] = outside;
    r->again = false;
    y = r->value[a->part->out];
    for (int k = a->part->first; k < a->part->end; k++)
        for (int o = 0; o < p->step[k].n_out && !is_leaf(&p->step[k]); o++)
            r->value[p->step[k].out[o]] = NULL;
    return y;
}

static const wf_nn_type type = {
    .name = "submodule", .size = sizeof(recomputed), .forward = forward};

wf_status run_module(run *r, const submodule *part)
{
    recomputed *a = &r->recomputed[part - r->p->module];

    *a = (recomputed){.module = {.type = &type, .ctx = r->ctx}, .r = r, .part = part};
    for (int k = part->first; k < part->end; k++)
        if (is_leaf(&r->p->step[k]))
            GOOD(run_step(r, k));
    if (wf_nn_recompute(&a->module, "submodule") == WF_OK)
        r->value[part->out] = wf_nn_call(&a->module, r->value[part->in]);
    if (r->value[part->out])
        return WF_OK;
    fail_case(r->b, "a module: %s", wf_context_error(r->ctx)->text);
    return give_up(r->rank, r->ctx);
}
