/* parallel/pipeline/prove_stages.c - actions of whole stages: gathers, reductions, and the end
   of a step. */
#include "parallel/pipeline/prove_internal.h"

static wf_status unshard(wf_pipe_reading *p, const wf_pipe_action *a)
{
    int most = p->table->facts.resident;

    if (!most)
        return wf_pipe_prove_refuse(p, "the table gathers nothing: it has no resident");
    if (p->stage[a->stage].resident)
        return wf_pipe_prove_refuse(p, "stage %d is gathered already", a->stage);
    if (p->n_resident == most)
        return wf_pipe_prove_refuse(p,
                                    "%d stages are gathered, as many as resident allows: "
                                    "RESHARD one before",
                                    most);
    p->stage[a->stage].resident = true;
    p->n_resident++;
    return WF_OK;
}

static wf_status reshard(wf_pipe_reading *p, const wf_pipe_action *a)
{
    if (!p->stage[a->stage].resident)
        return wf_pipe_prove_refuse(p, "stage %d is not gathered", a->stage);
    p->stage[a->stage].resident = false;
    p->n_resident--;
    return WF_OK;
}

static wf_status reduce(wf_pipe_reading *p, const wf_pipe_action *a)
{
    int group = p->table->facts.group, most = p->table->shape.micro - 1;
    int64_t last = (int64_t)a->micro + group - 1;

    if (!group)
        return wf_pipe_prove_refuse(p, "the table reduces nothing: it has no group");
    if (a->micro % group || a->last != (last < most ? last : most))
        return wf_pipe_prove_refuse(p,
                                    "it cuts a group: gradients are reduced in groups of %d "
                                    "micro-batches, from a multiple of it on",
                                    group);
    if (p->stage[a->stage].open >= 0)
        return wf_pipe_prove_refuse(p, "the one before has not ended: REDUCED%d.%d is missing",
                                    a->stage, p->stage[a->stage].open);
    for (int m = a->micro; m <= a->last; m++) {
        uint32_t *done = &p->done[wf_pipe_at(p->table, a->stage, m)];

        if (!(*done >> WF_PIPE_W & 1))
            return wf_pipe_prove_refuse(p, "it needs W%d.%d before it", a->stage, m);
        if (*done >> WF_PIPE_REDUCE & 1)
            return wf_pipe_prove_refuse(p, "micro-batch %d has been reduced already", m);
        *done |= UINT32_C(1) << WF_PIPE_REDUCE;
    }
    p->stage[a->stage].covered += a->last - a->micro + 1;
    p->stage[a->stage].open = a->micro;
    p->stage[a->stage].last = a->last;
    return WF_OK;
}

static wf_status reduced(wf_pipe_reading *p, const wf_pipe_action *a)
{
    if (p->stage[a->stage].open != a->micro || p->stage[a->stage].last != a->last)
        return wf_pipe_prove_refuse(p, "no such REDUCE is open");
    p->stage[a->stage].open = -1;
    return WF_OK;
}

/* A stage's gradients are all there, and reduced where they have to be. */
static wf_status gradients(wf_pipe_reading *p, int stage)
{
    int micro = p->table->shape.micro;

    if (p->stage[stage].weights < micro)
        return wf_pipe_prove_refuse(p, "stage %d has gradients of %d of %d micro-batches",
                                    stage, p->stage[stage].weights, micro);
    if (p->table->facts.group && p->stage[stage].covered < micro)
        return wf_pipe_prove_refuse(p, "stage %d has reduced %d of %d micro-batches", stage,
                                    p->stage[stage].covered, micro);
    if (p->stage[stage].open >= 0)
        return wf_pipe_prove_refuse(p, "a REDUCE of stage %d has not ended", stage);
    return WF_OK;
}

/* Returns true where a rank takes part in TIE. */
static bool ties(const wf_pipe_table *t, int rank)
{
    int first = t->stage_rank[0], last = t->stage_rank[t->shape.stages - 1];

    return t->facts.tied && first != last && (rank == first || rank == last);
}

static wf_status tie(wf_pipe_reading *p)
{
    if (!ties(p->table, p->rank))
        return wf_pipe_prove_refuse(p, "this rank has no tied gradients to exchange");
    if (p->tied)
        return wf_pipe_prove_refuse(p, "a second TIE");
    p->tied = true;
    return gradients(p, p->table->stage_rank[0] == p->rank ? 0 : p->table->shape.stages - 1);
}

static wf_status norm(wf_pipe_reading *p)
{
    wf_status status = WF_OK;

    if (p->normed)
        return wf_pipe_prove_refuse(p, "a second NORM");
    if (ties(p->table, p->rank) && !p->tied)
        return wf_pipe_prove_refuse(p, "it needs TIE before it");
    for (int s = 0; status == WF_OK && s < p->table->shape.stages; s++)
        if (p->table->stage_rank[s] == p->rank)
            status = gradients(p, s);
    p->normed = true;
    return status;
}

static wf_status update(wf_pipe_reading *p, const wf_pipe_action *a)
{
    if (!p->normed)
        return wf_pipe_prove_refuse(p, "it needs NORM before it");
    if (p->stage[a->stage].updated)
        return wf_pipe_prove_refuse(p, "a second OPT%d", a->stage);
    p->stage[a->stage].updated = true;
    return WF_OK;
}

wf_status wf_pipe_prove_stage_action(wf_pipe_reading *p, const wf_pipe_action *a)
{
    switch (a->kind) {
    case WF_PIPE_UNSHARD:
        return unshard(p, a);
    case WF_PIPE_RESHARD:
        return reshard(p, a);
    case WF_PIPE_REDUCE:
        return reduce(p, a);
    case WF_PIPE_REDUCED:
        return reduced(p, a);
    case WF_PIPE_TIE:
        return tie(p);
    case WF_PIPE_NORM:
        return norm(p);
    default:
        return update(p, a);
    }
}
