/*
 * parallel/stages/stages_beside.c - a forward and a backward that may overlap, alternately:
 * where one waits for tokens on their way to experts, or for results on their way home, the
 * other one computes.
 *
 * Both have all that they need before either begins, and what they send is sent after both, so
 * the proof of a table, that each may end first, holds for any turns. Ranks of a pipeline
 * coordinate have one row, and turns are taken where exchanges end: they begin all collectives
 * in the same order. Sums of gradients are those of one action after the other, since forward
 * makes none.
 */
#include "core/beside.h"
#include "nn/layers/moe.h"
#include "parallel/stages/stages_internal.h"

static void find_exchange(void *arg, wf_nn_module *m)
{
    wf_par_stages *s = arg;
    const wf_par *par = s->t->par;
    const wf_nn_moe *moe = wf_nn_as_moe(m);

    s->beside |= moe && wf_par_exchanges(&par->options, wf_mesh_size(par->mesh, par->ep_axis),
                                         moe->gate->tensor->dim[0].size, moe->route.k);
}

void wf_par_stages_find_exchange(wf_par_stages *s)
{
    const wf_par *par = s->t->par;

    if (par->ep_axis >= 0 && par->cp_axis < 0)
        wf_nn_visit(s->t->model, find_exchange, NULL, s);
}

/* Two actions, by their index in the row; forward first. */
typedef struct pair {
    wf_par_stages *s;
    int64_t at[2];
    wf_par_action_step *begin, *act;
    wf_par_units_pass other; /* the units' state in the one that does not run */
} pair;

/* Backward begins: it comes to an exchange before it has computed anything, and what forward
   computes in front of its own first one hides that. */
static void do_forward(void *arg)
{
    const pair *p = arg;

    wf_beside_turn(p->s->t->par->ctx);
    p->act(p->s, p->at[0]);
}

static void do_backward(void *arg)
{
    const pair *p = arg;

    p->act(p->s, p->at[1]);
}

static void turn(void *self, int which)
{
    pair *p = self;
    wf_par_units *units = p->s->t->units;
    const wf_par_units_pass next = p->other;

    p->other = units->pass;
    units->pass = next;
    p->begin(p->s, p->at[which]);
}

void wf_par_actions_beside(wf_par_stages *s, int64_t i, wf_par_action_step *begin,
                           wf_par_action_step *act)
{
    const int64_t forward = s->row[i].kind == WF_PIPE_F ? i : i + 1;
    pair p = {.s = s,
              .at = {forward, forward == i ? i + 1 : i},
              .begin = begin,
              .act = act,
              .other = s->t->units->pass};

    wf_beside_run(s->t->par->ctx, &(wf_beside){.run = {do_forward, do_backward},
                                               .arg = {&p, &p},
                                               .turn = turn,
                                               .self = &p});
}
